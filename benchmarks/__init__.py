"""Measurements that answer a question about callkeeper each; ``python -m benchmarks`` lists them."""

"""Benchmarks; each answers one question about callkeeper. ``python -m benchmarks`` lists them."""

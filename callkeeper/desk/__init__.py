"""The desk API and its stream, the board, ``/metrics``, the RQ dashboard, and access to all of them."""

"""A stand-in for the service, and ``callkeeper run``, which shows callkeeper at work with it."""

"""What we know of a call and what may happen to it."""

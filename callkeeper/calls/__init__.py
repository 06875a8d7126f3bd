"""What we know of a call, and what may be done for it."""

"""What we keep in Redis. Only this package knows the keys and scripts (``callkeeper/calls/lua``)."""

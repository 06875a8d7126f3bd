"""What we keep in Redis. Keys and scripts (``calls/lua``) are known here only."""

"""What we keep in Redis. Only this package knows the keys and scripts (``callkeeper/calls/lua``).

Whatever asks Redis raises ``redis.exceptions.RedisError`` if it is down or refuses writes.
"""

"""The rights that our user needs in Redis, and which of them it lacks.

A missing right to a single command goes wrong quietly: without BLPOP a worker hears of no push, without ROLE it follows no
failover, and a command in a script is refused without its name. So each command is queued once in a transaction, which is
discarded: Redis refuses there what the user may not run, and runs nothing.
"""

import re
from typing import Any, Final

from redis.exceptions import NoPermissionError, RedisError
from structlog.typing import FilteringBoundLogger

from callkeeper.app.connections import blocking_redis
from callkeeper.app.redis_location import RedisLocation
from callkeeper.calls.store.keys import Keys

COMMANDS: Final = {
    name: int(arguments)
    for name, arguments in re.findall(
        r"(\S+):(\d)",
        """
        bitfield:1 blmove:5 blpop:2 del:1 evalsha:2 exists:1 expire:2 get:1 getdel:1 hdel:2 hexists:2 hget:2 hgetall:1
        hincrby:3 hincrbyfloat:3 hkeys:1 hlen:1 hmget:2 hscan:2 hset:3 hsetnx:3 hvals:1 incr:1 info:0 llen:1 lpop:1 lpos:2
        lpush:2 lrange:3 lrem:3 ltrim:3 mget:1 persist:1 pexpire:2 ping:0 pttl:1 rename:2 role:0 rpush:2 sadd:2 scard:1
        script|load:1 set:2 smembers:1 srem:2 time:0 ttl:1 unwatch:0 watch:1 xadd:4 xlen:1 xrange:3 xread:3 xrevrange:3
        zadd:3 zcard:1 zcount:3 zdiff:2 zincrby:3 zmscore:2 zpopmin:1 zrange:3 zrangebyscore:3 zrank:2 zrem:2
        zremrangebyrank:3 zremrangebyscore:3 zrevrange:3 zrevrangebyscore:3 zscan:2 zscore:2 zunionstore:3
        """,
    )
}
"""What our code, our scripts and RQ run, and the fewest arguments of each: Redis counts these before it looks at rights."""

REMEDY: Final = (
    "add that to our user, by ACL SETUSER or in the file of users; deploy/redis/users.acl.example has all it needs"
)


def missing_rights(place: RedisLocation, keys: Keys) -> list[str]:
    """Return the rights that our user lacks, as rules of an access list; none if Redis does not tell."""
    try:
        with blocking_redis(place, timeout_s=1.0) as redis:
            connection: Any = redis.connection_pool.get_connection()
            try:
                return _refused(connection, keys)
            finally:
                connection.disconnect()  # ends the transaction, whatever became of it
    except (RedisError, OSError):
        return []


def _refused(connection: Any, keys: Keys) -> list[str]:
    try:
        connection.send_command("MULTI")
        connection.read_response()
    except NoPermissionError:
        return ["+multi"]  # without it the commands would run
    tried = [(name, [*name.split("|"), *[keys.due] * arguments]) for name, arguments in COMMANDS.items()]
    tried.append(("exists", ["exists", "rq:workers"]))
    connection.send_packed_command(connection.pack_commands([*(words for _, words in tried), ["DISCARD"]]))
    missing: dict[str, None] = {}
    for name, words in [*tried, ("discard", ["DISCARD"])]:
        try:
            connection.read_response()
        except NoPermissionError as error:
            whose = keys.setting if words[-1] == keys.due else "rq"
            missing[f"~{whose}:*" if "to access" in str(error) else f"+{name}"] = None
        except RedisError:
            pass  # a command that no transaction takes, or a full Redis: the rights were looked at before
    return list(missing)


def warn_of_missing_rights(place: RedisLocation, keys: Keys, log: FilteringBoundLogger) -> None:
    """Log the rights that our user lacks, with the remedy."""
    if missing := missing_rights(place, keys):
        log.error("redis_rights_missing", rights=missing, remedy=REMEDY)

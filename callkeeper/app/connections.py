"""Connections to Redis: how long each kind of process may wait for it.

The Redis client repeats a command whose answer was lost, so all our scripts are idempotent. Timeouts are short: a
process that cannot reach Redis logs it and tries again. `sentinels` follows a master that is replaced, `demoted_server`
an address that moves to another one.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import hiredis
from redis import Redis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from structlog.typing import FilteringBoundLogger

from callkeeper.app.demoted_server import AsyncLeaving, BlockingLeaving
from callkeeper.app.redis_location import RedisLocation, Sentinels, Tls
from callkeeper.app.sentinels import async_master, blocking_master


class CommandPacking:
    """Packs commands in C. redis-py uses hiredis for this in blocking connections only.

    *Measured*: packing a script call with 20 arguments takes 21 microseconds in redis-py's asyncio connection, 3 here.
    The bytes are the same.
    """

    def pack_command(self, *args: Any) -> list[bytes]:
        """Pack one command. Each word of its name becomes an argument."""
        name = args[0]
        return [hiredis.pack_command((*name.split(), *args[1:]) if " " in name else args)]

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        """Pack a pipeline's commands for one write."""
        return [b"".join([part for command in commands for part in self.pack_command(*command)])]


@lru_cache
def _mixed(kind: Any, *more: Any) -> Any:
    """Return a class of connections that does more."""
    return type("".join(each.__name__ for each in (*more, kind)), (*more, kind), {})


def with_command_packing(redis: AsyncRedis) -> AsyncRedis:
    """Pack commands in C on all connections that a client opens from now on."""
    pool: Any = redis.connection_pool
    pool.connection_class = _mixed(pool.connection_class, CommandPacking)
    return redis


MOST_CONNECTIONS: Final = 64
"""Of one client to Redis. While all are in use, a command waits for one. After an outage hundreds of calls are due at
once, and redis-py's usual pool makes commands fail that find no free connection."""

FEED_TIMEOUT_S = 8.0
"""Longer than ``callkeeper.desk.feed.BLOCK_MS``."""

SENTINEL_TIMEOUT_S = 0.5
"""How long to wait for one sentinel before trying the next."""

_AWAY = (RedisConnectionError, RedisTimeoutError)
_NO_PLACE = ("host", "port", "path", "connection_class")


def receiver_redis(place: RedisLocation) -> AsyncRedis:
    """Connect for the receiver: one second and one retry, because the sender is waiting."""
    return _async(place, timeout_s=1.0, retries=1)


def worker_redis(place: RedisLocation) -> AsyncRedis:
    """Connect for a worker's moves: timeouts are well within a lease."""
    return _async(place, timeout_s=2.0, retries=2)


def feed_redis(place: RedisLocation) -> AsyncRedis:
    """Connect for the desk's feed: it blocks until there are changes, and does its own retries."""
    return _async(place, timeout_s=FEED_TIMEOUT_S, retries=0)


def blocking_redis(place: RedisLocation, *, timeout_s: float = 2.0) -> Redis:
    """Connect for threads, RQ and commands."""
    options = _waits(timeout_s) | {"retry": Retry(_backoff(), 1, supported_errors=_AWAY)}
    known = place.sentinels
    if known is None:
        redis = Redis.from_url(place.url.reveal(), **options, **place.tls_options())
        kind: Any = redis.connection_pool.connection_class
        redis.connection_pool.connection_class = _mixed(kind, BlockingLeaving)
        return redis
    once = {"retry": Retry(NoBackoff(), 0)}
    return blocking_master(
        known, to_sentinels=_to_sentinels(place, known) | once, to_master=options | _to_master(place)
    )


def other_mode(info: Mapping[str, Any]) -> str | None:
    """Return what refuses our scripts, if a server that gave this answer to INFO is no single server."""
    mode = info.get("redis_mode") or info.get("server_mode")  # Valkey's name
    if mode == "cluster" or info.get("cluster_enabled") == 1:
        return "a Redis Cluster, which is not supported"
    return "a sentinel, not the server itself" if mode == "sentinel" else None


def warn_of_redis(place: RedisLocation, log: FilteringBoundLogger) -> None:
    """Log that the connection to Redis is not encrypted, or that its certificate is not verified."""
    if place.uses_tls and place.tls is Tls.UNVERIFIED:
        log.warning("redis_unverified")
    if place.is_exposed:
        log.warning("redis_unencrypted", address=place.address)


def _async(place: RedisLocation, *, timeout_s: float, retries: int) -> AsyncRedis:
    retry = AsyncRetry(_backoff(), retries, supported_errors=_AWAY)
    options = _waits(timeout_s) | {"retry": retry, "max_connections": MOST_CONNECTIONS, "timeout": timeout_s}
    known = place.sentinels
    if known is None:
        pool = BlockingConnectionPool.from_url(place.url.reveal(), **options, **place.tls_options())
        kind: Any = pool.connection_class
        pool.connection_class = _mixed(kind, AsyncLeaving)
        return with_command_packing(AsyncRedis.from_pool(pool))
    once = {"retry": AsyncRetry(NoBackoff(), 0)}
    to_sentinels, to_master = _to_sentinels(place, known) | once, options | _to_master(place)
    return with_command_packing(async_master(known, to_sentinels=to_sentinels, to_master=to_master))


def _waits(timeout_s: float) -> dict[str, Any]:
    return {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}


def _to_master(place: RedisLocation) -> dict[str, Any]:
    """Return the URL's options for the master: user, password, database, TLS."""
    options = {name: value for name, value in parse_url(place.url.reveal()).items() if name not in _NO_PLACE}
    return options | _tls(place)


def _to_sentinels(place: RedisLocation, known: Sentinels) -> dict[str, Any]:
    """Return the options for sentinels: one short attempt each, because there are others."""
    password = known.password.reveal() if known.password else None
    return _waits(SENTINEL_TIMEOUT_S) | {"username": known.username, "password": password} | _tls(place)


def _tls(place: RedisLocation) -> dict[str, Any]:
    return {"ssl": True, **place.tls_options()} if place.uses_tls else {}


def _backoff() -> ExponentialWithJitterBackoff:
    return ExponentialWithJitterBackoff(base=0.05, cap=0.3)

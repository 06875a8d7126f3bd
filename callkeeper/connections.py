"""Connections to Redis: how long each kind of process may wait for it.

The Redis client repeats a command whose answer was lost; every script of ours bears that. Waits are short: a process that
cannot reach Redis says so and tries again, rather than stand still. Behind sentinels every new connection asks them first
which server is the master.
"""

from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from structlog.typing import FilteringBoundLogger

from callkeeper.packing import packed
from callkeeper.redis_place import RedisPlace, Sentinels, Tls
from callkeeper.sentinels import async_master, blocking_master

FEED_TIMEOUT_S = 8.0
"""Longer than ``desk.feed.BLOCK_MS``."""

SENTINEL_TIMEOUT_S = 0.5
"""How long one sentinel is waited for before the next is asked."""

_AWAY = (RedisConnectionError, RedisTimeoutError)
_NO_PLACE = ("host", "port", "path", "connection_class")


def receiver_redis(place: RedisPlace) -> "AsyncRedis":
    """Connect as the receiver does: a second, tried once more; the sender is waiting."""
    return _async(place, timeout_s=1.0, retries=1)


def worker_redis(place: RedisPlace) -> "AsyncRedis":
    """Connect as the moves of a worker do: well within a lease."""
    return _async(place, timeout_s=2.0, retries=2)


def feed_redis(place: RedisPlace) -> "AsyncRedis":
    """Connect as the desk's feed does: it waits for changes longer than any answer may take, and tries again by itself."""
    return _async(place, timeout_s=FEED_TIMEOUT_S, retries=0)


def blocking_redis(place: RedisPlace, *, timeout_s: float = 2.0) -> "Redis":
    """Connect as threads, RQ and commands do."""
    options = _waits(timeout_s) | {"retry": Retry(_backoff(), 1, supported_errors=_AWAY)}
    known = place.sentinels
    if known is None:
        return Redis.from_url(place.url.reveal(), **options, **place.tls_options())
    once = {"retry": Retry(NoBackoff(), 0)}
    return blocking_master(
        known, to_sentinels=_to_sentinels(place, known) | once, to_master=options | _to_master(place)
    )


def warn_of_redis(place: RedisPlace, log: FilteringBoundLogger) -> None:
    """Log that the connection to Redis can be read by others, or that its certificate is not verified."""
    if place.uses_tls and place.tls is Tls.UNVERIFIED:
        log.warning("redis_unverified")
    if place.is_exposed:
        log.warning("redis_unencrypted", address=place.address)


def _async(place: RedisPlace, *, timeout_s: float, retries: int) -> "AsyncRedis":
    retry = AsyncRetry(_backoff(), retries, supported_errors=_AWAY)
    options = _waits(timeout_s) | {"retry": retry, "max_connections": 64}
    known = place.sentinels
    if known is None:
        return packed(AsyncRedis.from_url(place.url.reveal(), **options, **place.tls_options()))
    once = {"retry": AsyncRetry(NoBackoff(), 0)}
    to_sentinels, to_master = _to_sentinels(place, known) | once, options | _to_master(place)
    return packed(async_master(known, to_sentinels=to_sentinels, to_master=to_master))


def _waits(timeout_s: float) -> dict[str, Any]:
    return {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}


def _to_master(place: RedisPlace) -> dict[str, Any]:
    """Return what the URL says about whichever server is the master: user, password, database, TLS."""
    said = {name: value for name, value in parse_url(place.url.reveal()).items() if name not in _NO_PLACE}
    return said | _tls(place)


def _to_sentinels(place: RedisPlace, known: Sentinels) -> dict[str, Any]:
    """Return how the sentinels are asked: each only once and for a short time, there are others."""
    password = known.password.reveal() if known.password else None
    return _waits(SENTINEL_TIMEOUT_S) | {"username": known.username, "password": password} | _tls(place)


def _tls(place: RedisPlace) -> dict[str, Any]:
    return {"ssl": True, **place.tls_options()} if place.uses_tls else {}


def _backoff() -> ExponentialWithJitterBackoff:
    return ExponentialWithJitterBackoff(base=0.05, cap=0.3)

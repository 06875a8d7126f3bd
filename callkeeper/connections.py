"""Connections to Redis: how long each kind of process may wait for it.

The Redis client repeats a command whose answer was lost; every script of ours bears that. Waits are short: a process that
cannot reach Redis says so and tries again, rather than stand still.
"""

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from reseller.secret import Secret

FEED_TIMEOUT_S = 8.0
"""Longer than ``desk.feed.BLOCK_MS``."""

_AWAY = (RedisConnectionError, RedisTimeoutError)


def receiver_redis(url: Secret) -> "AsyncRedis":
    """Connect as the receiver does: a second, tried once more; the sender is waiting."""
    return _async(url, timeout_s=1.0, retries=1)


def worker_redis(url: Secret) -> "AsyncRedis":
    """Connect as the moves of a worker do: well within a lease."""
    return _async(url, timeout_s=2.0, retries=2)


def blocking_redis(url: Secret, *, timeout_s: float = 2.0) -> "Redis":
    """Connect as threads, RQ and commands do."""
    return Redis.from_url(
        url.reveal(),
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(_backoff(), 1, supported_errors=_AWAY),
    )


def feed_redis(url: Secret) -> "AsyncRedis":
    """Connect as the desk's feed does: it waits for changes longer than any answer may take, and tries again by itself."""
    return _async(url, timeout_s=FEED_TIMEOUT_S, retries=0)


def _async(url: Secret, *, timeout_s: float, retries: int) -> "AsyncRedis":
    return AsyncRedis.from_url(
        url.reveal(),
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=AsyncRetry(_backoff(), retries, supported_errors=_AWAY),
        max_connections=64,
    )


def _backoff() -> ExponentialWithJitterBackoff:
    return ExponentialWithJitterBackoff(base=0.05, cap=0.3)

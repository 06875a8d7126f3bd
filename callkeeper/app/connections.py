"""Connections to Redis: how long each kind of process may wait for it.

The Redis client repeats a command whose answer was lost, so all our scripts are idempotent. Timeouts are short: a
process that cannot reach Redis logs it and tries again. Behind sentinels, every new connection first asks them which
server is the master.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import Any, Final

import hiredis
from redis import Redis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncPool
from redis.asyncio.sentinel import SentinelManagedConnection as AsyncManaged
from redis.asyncio.sentinel import SentinelManagedSSLConnection as AsyncManagedTls
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from structlog.typing import FilteringBoundLogger

from callkeeper.app.redis_location import RedisLocation, Sentinels, Tls
from callkeeper.calls.store.script_runner import Address


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
def _with_command_packing(kind: Any) -> Any:
    """Return a class of connections that packs commands in C."""
    return type(f"CommandPacking{kind.__name__}", (CommandPacking, kind), {})


def with_command_packing(redis: "AsyncRedis") -> "AsyncRedis":
    """Pack commands in C on all connections that a client opens from now on."""
    pool: Any = redis.connection_pool
    pool.connection_class = _with_command_packing(pool.connection_class)
    return redis


_REFUSALS: Final = ("READONLY ", "NOREPLICAS ")


def _is_of_a_demoted_master(error: ResponseError) -> bool:
    """Tell whether a server refused because it is no longer the master. In a script's error the word comes later."""
    return any(refusal in str(error) for refusal in _REFUSALS)


class _Following(AsyncManaged):
    """A connection that asks the sentinels again when it is lost, or its server refuses a write.

    redis-py does not ask them when it repeats a command on a connection that was lost or timed out: it goes back to the
    old master, frozen or not (redis/redis-py#3874).

    An old master accepts writes for 8 s (*measured*) after its replica was promoted, unless ``min-replicas-to-write``
    makes it refuse them. redis-py disconnects when a plain command is refused with READONLY. We also disconnect when a
    script is refused with READONLY, or any write with NOREPLICAS.
    """

    async def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        """Connect. redis-py calls this with ``retry_socket_connect`` to repeat a command: we ask the sentinels first."""
        if retry_socket_connect:
            connect_to: Any = self.connect_to  # it has no types
            await connect_to(await self.connection_pool.get_master_address())
        else:
            await super().connect_check_health(check_health, retry_socket_connect)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Read an answer.

        Raises:
            redis.exceptions.ConnectionError: The server is not the master any more.
        """
        try:
            return await super().read_response(*args, **options)
        except ResponseError as error:
            if not _is_of_a_demoted_master(error):
                raise
            await self.disconnect()
            raise RedisConnectionError("the server takes no writes: not the master any more") from None


class _FollowingTls(_Following, AsyncManagedTls):
    """The same behind TLS."""


class _BlockingFollowing(SentinelManagedConnection):
    """The same for threads and RQ."""

    def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        """Connect. redis-py calls this with ``retry_socket_connect`` to repeat a command: we ask the sentinels first."""
        if retry_socket_connect:
            connect_to: Any = self.connect_to  # it has no types
            connect_to(self.connection_pool.get_master_address())
        else:
            super().connect_check_health(check_health, retry_socket_connect)

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Read an answer.

        Raises:
            redis.exceptions.ConnectionError: The server is not the master any more.
        """
        try:
            return super().read_response(*args, **options)
        except ResponseError as error:
            if not _is_of_a_demoted_master(error):
                raise
            self.disconnect()  # type: ignore[no-untyped-call]  # the library's
            raise RedisConnectionError("the server takes no writes: not the master any more") from None


class _BlockingFollowingTls(_BlockingFollowing, SentinelManagedSSLConnection):
    """The same for threads and RQ, behind TLS."""


_ASK_EVERY_S: Final = 1.0
"""How often a pool in use asks the sentinels which server is the master; seldomer if they take long or do not answer."""


def _ask_again_at_s(began_s: float) -> float:
    """Return when to ask again, by the monotonic clock, so that asking takes a tenth of the time at most."""
    now_s = time.monotonic()
    return now_s + max(_ASK_EVERY_S, 10 * (now_s - began_s))


class _Pool(AsyncPool, BlockingConnectionPool):
    """Connections to the master. Closing them also closes those to the sentinels.

    A master that was replaced answers like any other until it is demoted, so that nothing else tells of it. redis-py
    asks the sentinels for new connections only, and keeps those that were in use when another master was found.
    """

    _ask_at_s = 0.0

    async def ensure_connection(self, connection: Any) -> None:
        """Connect. A connection to a server that is no longer the master is closed first."""
        began_s = time.monotonic()
        if began_s >= self._ask_at_s:
            self._ask_at_s = inf  # others do not ask meanwhile
            try:
                with suppress(RedisError, OSError):
                    await self.get_master_address()  # type: ignore[no-untyped-call]  # the library's
            finally:
                self._ask_at_s = _ask_again_at_s(began_s)
        if (connection.host, connection.port) != self.master_address:
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)

    async def aclose(self) -> None:
        """Close everything. The client would leave the sentinels' connections open."""
        await super().aclose()
        await self.sentinel_manager.aclose()


class _BlockingPool(SentinelConnectionPool):
    """The same for threads and RQ. When another master is found, redis-py closes all connections of this pool."""

    _ask_at_s = 0.0

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection to the master."""
        began_s = time.monotonic()
        if began_s >= self._ask_at_s:
            self._ask_at_s = inf
            try:
                with suppress(RedisError, OSError):
                    self.get_master_address()  # type: ignore[no-untyped-call]  # the library's
            finally:
                self._ask_at_s = _ask_again_at_s(began_s)
        return super().get_connection(*args, **options)


class _Master(AsyncRedis):
    """A client of the master that can ask the sentinels about it."""

    async def is_replaced(self, address: Address) -> bool:
        """Ask all sentinels whether they have replaced the master at this address, or are replacing it.

        If they disagree, those with the latest replacement decide: one that is cut off may name an older master. The one
        that leads a replacement names the old master until all replicas follow the new one.
        """
        pool: Any = self.connection_pool
        asked = (sentinel.sentinel_masters() for sentinel in pool.sentinel_manager.sentinels)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, RedisError | OSError):
                raise answer
        named = [answer for answer in answers if isinstance(answer, dict)]
        known = [masters[pool.service_name] for masters in named if pool.service_name in masters]
        latest = max((master["config-epoch"] for master in known), default=0)
        naming = [
            master for master in known if master["config-epoch"] == latest and (master["ip"], master["port"]) == address
        ]
        return bool(known) and not (naming and all("failover_in_progress" not in master["flags"] for master in naming))


def async_master(known: Sentinels, *, to_sentinels: dict[str, Any], to_master: dict[str, Any]) -> "AsyncRedis":
    """Return a client of the master, for asyncio; ``ssl`` in its options asks for TLS."""
    make: Any = AsyncSentinel  # it has no types
    kind = _FollowingTls if to_master.get("ssl") else _Following
    sentinel = make(known.addresses, sentinel_kwargs=to_sentinels)
    client: AsyncRedis = sentinel.master_for(
        known.master, redis_class=_Master, connection_pool_class=_Pool, connection_class=kind, **to_master
    )
    return client


def blocking_master(known: Sentinels, *, to_sentinels: dict[str, Any], to_master: dict[str, Any]) -> "Redis":
    """Return a client of the master, for threads and RQ; arguments as above."""
    make: Any = Sentinel  # it has no types
    kind = _BlockingFollowingTls if to_master.get("ssl") else _BlockingFollowing
    client: Redis = make(known.addresses, sentinel_kwargs=to_sentinels).master_for(
        known.master, connection_pool_class=_BlockingPool, connection_class=kind, **to_master
    )
    return client


MOST_CONNECTIONS: Final = 64
"""Of one client to Redis. While all are in use, a command waits for one. After an outage hundreds of calls are due at
once, and redis-py's usual pool makes commands fail that find no free connection."""

FEED_TIMEOUT_S = 8.0
"""Longer than ``callkeeper.desk.feed.BLOCK_MS``."""

SENTINEL_TIMEOUT_S = 0.5
"""How long to wait for one sentinel before trying the next."""

_AWAY = (RedisConnectionError, RedisTimeoutError)
_NO_PLACE = ("host", "port", "path", "connection_class")


def receiver_redis(place: RedisLocation) -> "AsyncRedis":
    """Connect for the receiver: one second and one retry, because the sender is waiting."""
    return _async(place, timeout_s=1.0, retries=1)


def worker_redis(place: RedisLocation) -> "AsyncRedis":
    """Connect for a worker's moves: timeouts are well within a lease."""
    return _async(place, timeout_s=2.0, retries=2)


def feed_redis(place: RedisLocation) -> "AsyncRedis":
    """Connect for the desk's feed: it blocks until there are changes, and does its own retries."""
    return _async(place, timeout_s=FEED_TIMEOUT_S, retries=0)


def blocking_redis(place: RedisLocation, *, timeout_s: float = 2.0) -> "Redis":
    """Connect for threads, RQ and commands."""
    options = _waits(timeout_s) | {"retry": Retry(_backoff(), 1, supported_errors=_AWAY)}
    known = place.sentinels
    if known is None:
        return Redis.from_url(place.url.reveal(), **options, **place.tls_options())
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


def _async(place: RedisLocation, *, timeout_s: float, retries: int) -> "AsyncRedis":
    retry = AsyncRetry(_backoff(), retries, supported_errors=_AWAY)
    options = _waits(timeout_s) | {"retry": retry, "max_connections": MOST_CONNECTIONS, "timeout": timeout_s}
    known = place.sentinels
    if known is None:
        pool = BlockingConnectionPool.from_url(place.url.reveal(), **options, **place.tls_options())
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

"""Clients of a Redis behind sentinels, which follow its master."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Final

from redis import Redis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncPool
from redis.asyncio.sentinel import SentinelManagedConnection as AsyncManaged
from redis.asyncio.sentinel import SentinelManagedSSLConnection as AsyncManagedTls
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection, SentinelManagedSSLConnection

from callkeeper.app.demoted_server import AsyncLeaving, BlockingLeaving
from callkeeper.app.redis_location import Sentinels
from callkeeper.calls.store.script_runner import Address


class _Following(AsyncLeaving, AsyncManaged):
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
            if not self.hears(error):
                raise
            await self.disconnect()
            raise RedisConnectionError("the server takes no writes: not the master any more") from None


class _FollowingTls(_Following, AsyncManagedTls):
    """The same behind TLS."""


class _BlockingFollowing(BlockingLeaving, SentinelManagedConnection):
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
            if not self.hears(error):
                raise
            self.disconnect()  # type: ignore[no-untyped-call]  # the library's
            raise RedisConnectionError("the server takes no writes: not the master any more") from None


class _BlockingFollowingTls(_BlockingFollowing, SentinelManagedSSLConnection):
    """The same for threads and RQ, behind TLS."""


_ASK_EVERY_S: Final = 1.0
"""How often a pool in use asks the sentinels which server is the master; less often if they take long."""


@contextmanager
def _asking(pool: "_Pool | _BlockingPool") -> Iterator[None]:
    """Let a pool ask in the block, and set when it asks again: asking takes a tenth of the time at most."""
    began_s = time.monotonic()
    pool.ask_at_s = inf  # others do not ask meanwhile
    try:
        with suppress(RedisError, OSError):
            yield
    finally:
        now_s = time.monotonic()
        pool.ask_at_s = now_s + max(_ASK_EVERY_S, 10 * (now_s - began_s))


class _Pool(AsyncPool, BlockingConnectionPool):
    """Connections to the master. Closing them also closes those to the sentinels.

    A master that was replaced answers like any other until it is demoted, so that nothing else tells of it. redis-py
    asks the sentinels for new connections only, and keeps those that were in use when another master was found.
    """

    ask_at_s = 0.0

    async def ensure_connection(self, connection: Any) -> None:
        """Connect. A connection to a server that is no longer the master is closed first."""
        if time.monotonic() >= self.ask_at_s:
            with _asking(self):
                await self.get_master_address()  # type: ignore[no-untyped-call]  # the library's
        if (connection.host, connection.port) != self.master_address:
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)

    async def aclose(self) -> None:
        """Close everything. The client would leave the sentinels' connections open."""
        await super().aclose()
        await self.sentinel_manager.aclose()


class _BlockingPool(SentinelConnectionPool):
    """The same for threads and RQ. When another master is found, redis-py closes all connections of this pool."""

    ask_at_s = 0.0

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection to the master."""
        if time.monotonic() >= self.ask_at_s:
            with _asking(self):
                self.get_master_address()  # type: ignore[no-untyped-call]  # the library's
        return super().get_connection(*args, **options)


class _Master(AsyncRedis):
    """A client of the master that can ask the sentinels about it."""

    async def named_masters(self) -> list[dict[str, Any]]:
        """Ask all sentinels for the master, as ``SENTINEL MASTERS`` does. Those that do not name one are left out."""
        pool: Any = self.connection_pool
        asked = (sentinel.sentinel_masters() for sentinel in pool.sentinel_manager.sentinels)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, RedisError | OSError):
                raise answer
        named = [answer for answer in answers if isinstance(answer, dict)]
        return [masters[pool.service_name] for masters in named if pool.service_name in masters]

    async def is_replaced(self, address: Address) -> bool:
        """Ask all sentinels whether they have replaced the master at this address, or are replacing it.

        If they disagree, those with the latest replacement decide: one that is cut off may name an older master. The one
        that leads a replacement names the old master until all replicas follow the new one.
        """
        known = await self.named_masters()
        latest = max((master["config-epoch"] for master in known), default=0)
        naming = [
            master for master in known if master["config-epoch"] == latest and (master["ip"], master["port"]) == address
        ]
        return bool(known) and not (naming and all("failover_in_progress" not in master["flags"] for master in naming))


def async_master(known: Sentinels, *, to_sentinels: dict[str, Any], to_master: dict[str, Any]) -> AsyncRedis:
    """Return a client of the master, for asyncio; ``ssl`` in its options asks for TLS."""
    make: Any = AsyncSentinel  # it has no types
    kind = _FollowingTls if to_master.get("ssl") else _Following
    sentinel = make(known.addresses, sentinel_kwargs=to_sentinels)
    client: AsyncRedis = sentinel.master_for(
        known.master, redis_class=_Master, connection_pool_class=_Pool, connection_class=kind, **to_master
    )
    return client


def blocking_master(known: Sentinels, *, to_sentinels: dict[str, Any], to_master: dict[str, Any]) -> Redis:
    """Return a client of the master, for threads and RQ; arguments as above."""
    make: Any = Sentinel  # it has no types
    kind = _BlockingFollowingTls if to_master.get("ssl") else _BlockingFollowing
    client: Redis = make(known.addresses, sentinel_kwargs=to_sentinels).master_for(
        known.master, connection_pool_class=_BlockingPool, connection_class=kind, **to_master
    )
    return client

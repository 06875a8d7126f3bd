"""Clients of whichever server the sentinels call the master: they leave one that has been demoted, also before it knows.

A master whose replica was promoted takes writes for seconds until the sentinels demote it, unless ``min-replicas-to-write``
makes it refuse them. The Redis client understands only the refusal of a plain command to a replica; ours also that of a
script, and that of a master without replicas.
"""

from typing import Any, Final

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncPool
from redis.asyncio.sentinel import SentinelManagedConnection as AsyncManaged
from redis.asyncio.sentinel import SentinelManagedSSLConnection as AsyncManagedTls
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from callkeeper.redis_place import Sentinels

_REFUSALS: Final = ("READONLY ", "NOREPLICAS ")


def _is_of_a_demoted_master(error: ResponseError) -> bool:
    """Tell whether a server refused because it is not, or soon will not be, the master. In a script the word comes later."""
    return any(refusal in str(error) for refusal in _REFUSALS)


class _Following(AsyncManaged):
    """A connection that asks the sentinels anew when its server refuses to write."""

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


class _Pool(AsyncPool):
    """Connections to the master that are closed together with those to the sentinels."""

    async def aclose(self) -> None:
        """Close everything; the client leaves the sentinels' connections open."""
        await super().aclose()
        await self.sentinel_manager.aclose()


def async_master(known: Sentinels, *, to_sentinels: dict[str, Any], to_master: dict[str, Any]) -> "AsyncRedis":
    """Return a client of the master, for asyncio.

    Args:
        known: The sentinels and the master's name.
        to_sentinels: Options of the connections to the sentinels.
        to_master: Options of the connections to the master; ``ssl`` asks for TLS.
    """
    make: Any = AsyncSentinel  # it has no types
    kind = _FollowingTls if to_master.get("ssl") else _Following
    sentinel = make(known.addresses, sentinel_kwargs=to_sentinels)
    client: AsyncRedis = sentinel.master_for(
        known.master, connection_pool_class=_Pool, connection_class=kind, **to_master
    )
    return client


def blocking_master(known: Sentinels, *, to_sentinels: dict[str, Any], to_master: dict[str, Any]) -> "Redis":
    """Return a client of the master, for threads and RQ; arguments as above."""
    make: Any = Sentinel  # it has no types
    kind = _BlockingFollowingTls if to_master.get("ssl") else _BlockingFollowing
    client: Redis = make(known.addresses, sentinel_kwargs=to_sentinels).master_for(
        known.master, connection_class=kind, **to_master
    )
    return client

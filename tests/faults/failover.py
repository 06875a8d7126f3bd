"""A Redis that can be replaced by an older one: in this process, or two real servers that take over from each other."""

from typing import Any

from fakeredis import FakeAsyncRedis, FakeServer
from redis.asyncio import Redis

from tests.faults.seams import RUN_ID


class InProcess:
    """A Redis in this process. It has no INFO command, so its run id is a key that every failover writes anew."""

    is_fake = True

    def __init__(self) -> None:
        self._count = 0
        self._server = FakeAsyncRedis(server=FakeServer())

    def current(self) -> Any:
        """Return a client of the current server."""
        return self._server

    async def fail_over(self) -> None:
        """Empty it and give it another run id."""
        self._count += 1
        await self._server.flushall()
        await self._server.set(RUN_ID, f"run{self._count}")

    async def aclose(self) -> None:
        """Close the client."""
        await self._server.aclose()


class TwoServers:
    """Two real servers that take turns. Neither restarts: a promotion changes the replication id, not the run id."""

    is_fake = False

    def __init__(self, urls: tuple[str, str]) -> None:
        self._clients: list[Any] = [Redis.from_url(url) for url in urls]

    def current(self) -> Any:
        """Return a client of the current server."""
        return self._clients[0]

    async def fail_over(self) -> None:
        """Empty the other server and promote it."""
        self._clients.reverse()
        await self._clients[0].flushall()
        await self._clients[0].script_flush()
        await self._clients[0].execute_command("REPLICAOF", "127.0.0.1", "1")
        await self._clients[0].execute_command("REPLICAOF", "NO", "ONE")

    async def aclose(self) -> None:
        """Close both clients."""
        for client in self._clients:
            await client.aclose()

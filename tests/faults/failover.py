"""A Redis that can be replaced by an empty one: one server that is emptied, or two that take over from each other."""

from typing import Any

from tests.harness.redis_in_step import emptied, in_step


class OneServer:
    """A server that is emptied when it fails over. Its replication id changes, as if a replica had been promoted."""

    def __init__(self) -> None:
        self._client: Any = in_step(emptied())

    def current(self) -> Any:
        """Return a client of the server."""
        return self._client

    async def fail_over(self) -> None:
        """Empty the server and promote it."""
        await _promote(self._client)

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.aclose()


class TwoServers:
    """Two servers that take turns. Neither restarts: a promotion changes the replication id, not the run id."""

    def __init__(self, urls: tuple[str, str]) -> None:
        self._clients: list[Any] = [in_step(url) for url in urls]

    def current(self) -> Any:
        """Return a client of the current server."""
        return self._clients[0]

    async def fail_over(self) -> None:
        """Empty the other server and promote it."""
        self._clients.reverse()
        await _promote(self._clients[0])

    async def aclose(self) -> None:
        """Close both clients."""
        for client in self._clients:
            await client.aclose()


async def _promote(server: Any) -> None:
    await server.flushall()
    await server.script_flush()
    await server.execute_command("REPLICAOF", "127.0.0.1", "1")
    await server.execute_command("REPLICAOF", "NO", "ONE")

"""A real Redis for tests in virtual time: its answer arrives before virtual time moves on.

An ordinary client waits for an answer in the event loop. A loop that jumps from timer to timer would let time pass
meanwhile. This client waits outside of the loop, for a fraction of a millisecond; that is also faster. Commands that wait
at the server, such as BLPOP, would stop the loop: do not use them.
"""

import asyncio
import atexit
import selectors
import socket
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from redis import Redis as BlockingRedis
from redis.asyncio import BlockingConnectionPool, Connection, Redis

from callkeeper.app.connections import MOST_CONNECTIONS, CommandPacking
from callkeeper_sandbox.demo.embedded_redis import embedded_redis

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Return the virtual time."""
        return self.elapsed_s


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.elapsed_s += timeout or 0.0
        return super().select(0)


class Wire:
    """Both directions of a connection, with the methods of asyncio's streams that the Redis client uses."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""  # the client looks whether unread answers are left

    def writelines(self, chunks: Iterable[bytes]) -> None:
        """Send commands."""
        self._socket.sendall(b"".join(chunks))

    async def drain(self) -> None:
        """Return at once: everything was sent."""

    async def read(self, size: int) -> bytes:
        """Return the next part of the answer. Other tasks run once before, as they may while an answer is on its way."""
        await asyncio.sleep(0)
        return self._socket.recv(size)

    def at_eof(self) -> bool:
        """Return False: the server closes no connection."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    async def wait_closed(self) -> None:
        """Return at once: it is closed."""


class InStep(CommandPacking, Connection):
    """A connection whose answers are waited for outside of the event loop."""

    async def _connect(self) -> None:
        self._reader = self._writer = Wire(self.host, self.port)  # type: ignore[assignment]  # all that is used of both


def in_step(url: str) -> Redis:
    """Return a client of a server that runs."""
    return Redis.from_pool(
        BlockingConnectionPool.from_url(url, connection_class=InStep, max_connections=MOST_CONNECTIONS)
    )


def emptied() -> str:
    """Empty the Redis of this test process and return its URL. The server runs until the process ends."""
    url, client = _server()
    client.flushall()
    return url


@cache
def _server() -> tuple[str, Any]:
    running = ExitStack()
    atexit.register(running.close)
    folder = running.enter_context(TemporaryDirectory())
    url = running.enter_context(embedded_redis(Path(folder))).url
    client = running.enter_context(BlockingRedis.from_url(url))
    client.config_set("appendonly", "no")
    return url, client


def virtually(what: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(what)

"""A TCP proxy that disturbs the line between two processes: latency, limited bandwidth, cuts, resets, black holes.

It runs in its own thread, so that tests with and without an event loop can use it.
"""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_CHUNK = 64 * 1024
_START_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """How connections are disturbed. ``up`` is towards the server, ``down`` towards the client.

    Attributes:
        latency_s: Delay of every piece of data, plus a random part of ``jitter_s`` that follows from the proxy's seed.
        bytes_per_s: The bandwidth of a connection in each direction; None for no limit.
        cut_up_after: Reset the connection after this many bytes have gone up. With 0, nothing of the request passes.
        cut_down_after: The same downwards. With 0, the request passes but nothing of the answer.
        refuses: Reset new connections at once.
        swallows: A black hole: connections are accepted and stay open, and no data passes until this is set to False.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    cut_up_after: int | None = None
    cut_down_after: int | None = None
    refuses: bool = False
    swallows: bool = False


UNDISTURBED = Disturbance()


class Cut(Exception):
    """The proxy cut a connection."""


@dataclass(slots=True)
class Proxy:
    """One listening port in front of one server."""

    host: str
    target_port: int
    seed: int = 0
    port: int = 0
    disturbance: Disturbance = UNDISTURBED
    connections: int = 0
    _open: dict[asyncio.StreamWriter, asyncio.StreamWriter] = field(default_factory=dict)
    _passes: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _draw: random.Random = field(default_factory=random.Random)

    def set(self, disturbance: Disturbance) -> None:
        """Change how all connections, also open ones, are disturbed. May be called from any thread."""
        self._call(lambda: self._change(disturbance))

    def reset_all(self) -> None:
        """Reset every open connection. May be called from any thread."""
        self._call(self._reset_all)

    def stop(self) -> None:
        """Stop serving. May be called from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def serve(self, ready: Callable[[], None]) -> None:
        """Serve until told to stop, then reset open connections."""
        self._loop = asyncio.get_running_loop()
        self._draw.seed(self.seed)
        self._passes.set()
        server = await asyncio.start_server(self._take, self.host, 0)
        self.port = server.sockets[0].getsockname()[1]
        ready()
        await self._stopped.wait()
        server.close()
        self._change(UNDISTURBED)
        while self._open:
            self._reset_all()
            await asyncio.sleep(0)

    def _call(self, change: Callable[[], None]) -> None:
        """Run a change in the proxy's loop, and wait until it is done."""
        assert self._loop is not None
        done = threading.Event()
        self._loop.call_soon_threadsafe(change)
        self._loop.call_soon_threadsafe(done.set)
        done.wait()

    def _change(self, disturbance: Disturbance) -> None:
        self.disturbance = disturbance
        if disturbance.swallows:
            self._passes.clear()
        else:
            self._passes.set()

    def _reset_all(self) -> None:
        for down, up in list(self._open.items()):
            _reset(down)
            _reset(up)

    async def _take(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.disturbance.refuses:
            _reset(to_client)
            return
        try:
            from_server, to_server = await asyncio.open_connection(self.host, self.target_port)
        except (OSError, asyncio.CancelledError):  # cancelled: the proxy was stopped meanwhile
            _reset(to_client)
            return
        self._open[to_client] = to_server
        try:
            await self._carry(from_client, to_client, from_server, to_server)
        finally:
            del self._open[to_client]

    async def _carry(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pump(from_client, to_server, lambda: self.disturbance.cut_up_after))
                ways.create_task(self._pump(from_server, to_client, lambda: self.disturbance.cut_down_after))
        except* (Cut, OSError):
            _reset(to_client)
            _reset(to_server)
        for writer in (to_client, to_server):
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut_after: Callable[[], int | None]
    ) -> None:
        """Copy one direction until its end.

        Raises:
            Cut: The limit of bytes was reached.
            OSError: One of the ends closed the connection.
        """
        passed = 0
        while piece := await reader.read(_CHUNK):
            await self._hold_back(len(piece))
            limit = cut_after()
            allowed = piece if limit is None else piece[: max(0, limit - passed)]
            writer.write(allowed)
            await writer.drain()
            passed += len(allowed)
            if passed == limit:
                raise Cut
        writer.write_eof()

    async def _hold_back(self, size: int) -> None:
        disturbance = self.disturbance
        wait_s = disturbance.latency_s + self._draw.uniform(0, disturbance.jitter_s)
        if disturbance.bytes_per_s is not None:
            wait_s += size / disturbance.bytes_per_s
        if wait_s:
            await asyncio.sleep(wait_s)
        await self._passes.wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


@contextmanager
def proxied(target_port: int, *, seed: int = 0) -> Iterator[Proxy]:
    """Run a proxy in front of a local port until the block ends. The system chooses the proxy's own port."""
    proxy, is_ready = Proxy("127.0.0.1", target_port, seed), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(proxy.serve(is_ready.set)), name="proxy")
    thread.start()
    assert is_ready.wait(_START_DEADLINE_S), "the proxy does not listen"
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()

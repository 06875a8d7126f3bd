"""An outgoing proxy that only opens tunnels (CONNECT), and records which hosts were asked for."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Tunnel:
    """A running proxy. ``login``: the ``user:password`` that it asks for; None: nobody needs one."""

    login: str | None
    port: int = 0
    asked: list[str] = field(default_factory=list)
    passed: bytearray = field(default_factory=bytearray)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open one tunnel, or answer 407."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [writer]
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split(" ", 2)
            assert method == "CONNECT", "only tunnels are opened"
            self.asked.append(target)
            expected = base64.b64encode((self.login or "").encode()).decode()
            if self.login is not None and f"basic {expected}".lower() not in head.lower():
                writer.write(b"HTTP/1.1 407 Login\r\nContent-Length: 0\r\n\r\n")
                return
            host, _, port = target.rpartition(":")
            there, back = await asyncio.open_connection(host.strip("[]"), int(port))
            writers.append(back)
            writer.write(b"HTTP/1.1 200 Tunnel\r\n\r\n")
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for each in writers:
                each.close()
                with suppress(OSError):
                    await each.wait_closed()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.passed += data
            writer.write(data)
            await writer.drain()
        writer.close()

    async def close(self) -> None:
        """End all tunnels."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def tunnel(login: str | None = None) -> AsyncIterator[Tunnel]:
    """Run a proxy until the block ends."""
    proxy = Tunnel(login)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()

"""A service made of bare sockets: it counts what arrives and answers byte by byte as a test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from callkeeper.service import MemoryTokenStore, Secret, ServiceConfig, TokenStore
from callkeeper.service.client import Reseller
from callkeeper.service.proxy import Proxy


@dataclass(frozen=True)
class Arrival:
    """One request as it came over the socket."""

    connection: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Respond = Callable[[Arrival, asyncio.StreamWriter], Awaitable[None]]


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of an answer; a keyword's underscores are a header's hyphens."""
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def login(token: str = "sso-1") -> bytes:
    """Return the answer of a login."""
    return reply(200, b'{"success":true,"token":"%s","institutionKeys":["cu-1"]}' % token.encode())


@dataclass
class RawService:
    """Answers logins by itself, everything else as `respond` says."""

    respond: Respond
    arrivals: list[Arrival] = field(default_factory=list)
    logins: list[Arrival] = field(default_factory=list)
    port: int = 0
    _connections: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until one side closes it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        number = self._connections
        try:
            while not writer.is_closing():
                await self._one(await _arrival(number, reader), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _one(self, arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        if arrival.target == "/external/token/request":
            self.logins.append(arrival)
            writer.write(login(f"sso-{len(self.logins)}"))
        else:
            self.arrivals.append(arrival)
            await self.respond(arrival, writer)

    async def close(self) -> None:
        """End all connections that are still open."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _arrival(connection: int, reader: asyncio.StreamReader) -> Arrival:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Arrival(connection, method, target, headers, body)


def always(answer: bytes) -> Respond:
    """Answer everything with the same bytes."""

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    return respond


@asynccontextmanager
async def raw_service(respond: Respond, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawService]:
    """Run a raw service on a free port."""
    service = RawService(respond)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, ssl=tls)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        await service.close()
        await server.wait_closed()


def config_of(
    url: str,
    *,
    deadline_s: float = 6.0,
    max_body_bytes: int = 1 << 20,
    ca_file: str | None = None,
    proxy: Proxy | None = None,
) -> ServiceConfig:
    """Return what reaches a service."""
    return ServiceConfig(
        base_url=url,
        access_token=Secret("access-1"),
        email=Secret("bot@example.test"),
        password=Secret("pass-1"),
        deadline_s=deadline_s,
        max_body_bytes=max_body_bytes,
        ca_file=ca_file,
        proxy=proxy,
    )


@asynccontextmanager
async def client(url: str, tokens: TokenStore | None = None, **more: Any) -> AsyncIterator[Reseller]:
    """Open a client of a service, with ``more`` for `config_of`; close it at the end."""
    reseller = Reseller(config_of(url, **more), MemoryTokenStore() if tokens is None else tokens)
    try:
        yield reseller
    finally:
        await reseller.aclose()

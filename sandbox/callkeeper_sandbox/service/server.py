"""Serves the sandbox over real sockets, with a background task that advances time and sends pushes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from callkeeper_sandbox.service import control, endpoint, page
from callkeeper_sandbox.service.connection import CuttableProtocol
from callkeeper_sandbox.service.service import Sandbox

TICK_S = 0.02
_GRACE_S = 1
_BACKLOG = 2048


def create_app(sandbox: Sandbox) -> Starlette:
    """Combine the interface of the service, the control interface and the page."""
    return Starlette(
        routes=[*endpoint.routes(sandbox), *control.routes(sandbox), *page.routes(sandbox)],
        middleware=[Middleware(page.SameOrigin)],
    )


def bind(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Listen; port 0 finds a free one. Connections wait until the server accepts them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is named. With it, every answer waits 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def address(sock: socket.socket) -> str:
    """Return the base address of a bound socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class UnsignalledServer(uvicorn.Server):
    """A server that does not handle signals, so that the state can be saved before the process ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def create_server(sandbox: Sandbox) -> uvicorn.Server:
    """Return a server whose connections can be cut. Hanging requests are cancelled one second after a stop."""
    config = uvicorn.Config(
        create_app(sandbox),
        http=CuttableProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return UnsignalledServer(config)


async def serve(server: uvicorn.Server, sandbox: Sandbox, sock: socket.socket) -> None:
    """Serve until a stop, then wait for pushes under way and close their client."""
    async with sandbox.client, ticking(sandbox):
        await server.serve(sockets=[sock])


@contextlib.asynccontextmanager
async def ticking(sandbox: Sandbox) -> AsyncIterator[None]:
    """Tick in the background, and send due pushes without waiting for slow receivers."""
    async with asyncio.TaskGroup() as deliveries:
        ticker = deliveries.create_task(_tick_forever(sandbox, deliveries))
        try:
            yield
        finally:
            ticker.cancel()


async def _tick_forever(sandbox: Sandbox, deliveries: asyncio.TaskGroup) -> None:
    while True:
        sandbox.tick()
        if sandbox.pusher.has_due():
            deliveries.create_task(sandbox.pusher.deliver())
        await asyncio.sleep(TICK_S)

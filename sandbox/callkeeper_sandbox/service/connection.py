"""Connections that can be cut: a real socket through uvicorn's transport, an in-process one by an httpx error.

uvicorn does not give its transport to the application. `CuttableProtocol` does, as an ASGI extension. So a scripted
reset is a real RST, and a drop is a real FIN without an answer.
"""

import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

EXTENSION = "sandbox.line"
_NO_LINGER = struct.pack("ii", 1, 0)


class Line(Protocol):
    """The connection of a request. After either call nothing more can be sent."""

    async def reset(self, receive: Receive) -> None:
        """Reset the connection at once. Data that was not delivered is lost."""

    async def close(self, receive: Receive) -> None:
        """Close the connection normally, whether or not the answer is complete."""


class SocketLine:
    """A connection over a real socket."""

    def __init__(self, protocol: H11Protocol) -> None:
        self._transport = protocol.transport

    async def reset(self, receive: Receive) -> None:
        """Send RST, by a linger time of zero."""
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()
        await gone(receive)

    async def close(self, receive: Receive) -> None:
        """Flush what was written, then send FIN."""
        self._transport.close()
        await gone(receive)


class ProcessLine:
    """An in-process connection: the client of an ASGI transport gets the error that a socket would give."""

    async def reset(self, receive: Receive) -> None:
        """Raise what httpx raises for a reset.

        Raises:
            httpx.ReadError: Always.
        """
        raise httpx.ReadError("connection reset by the stand-in")

    async def close(self, receive: Receive) -> None:
        """Raise what httpx raises for an early end.

        Raises:
            httpx.RemoteProtocolError: Always.
        """
        raise httpx.RemoteProtocolError("connection closed by the stand-in")


async def gone(receive: Receive) -> None:
    """Wait until the connection is closed."""
    while (await receive())["type"] != "http.disconnect":
        pass


def line_of(scope: Scope) -> Line:
    """Return the connection of a request."""
    protocol = scope.get("extensions", {}).get(EXTENSION)
    return SocketLine(protocol) if protocol is not None else ProcessLine()


class CuttableProtocol(H11Protocol):
    """uvicorn's HTTP protocol, which puts itself into the ASGI scope."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = _with_extension(self.app, self)


def _with_extension(app: Any, protocol: H11Protocol) -> Callable[[Any, Any, Any], Awaitable[None]]:
    inner: ASGIApp = app

    async def extended(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[EXTENSION] = protocol
        await inner(scope, receive, send)

    return extended

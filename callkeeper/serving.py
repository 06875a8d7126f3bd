"""How the web process listens: uvicorn, with limits on what a client may send, how long it may take, and how many may come.

uvicorn itself bounds none of it; one slow or endless sender per connection would be enough to hold all of them.
"""

import asyncio
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, cast

import httptools
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from callkeeper.crowd import MAX_CONNECTIONS, Crowd, room_for_connections

REQUEST_WITHIN_S: Final = 10.0
"""How long a request may take to arrive, and a new connection to send one."""

READ_WITHIN_S: Final = 30.0
"""How long a client may leave an answer unread; whoever follows a stream and stops reading it is cut."""

MAX_OVERHEAD: Final = 64 * 1024
"""Bytes of a request that are not its body: line, headers, chunk sizes, trailers."""

KEEP_ALIVE_S: Final = 75
"""Longer than routers and clients keep idle connections: whoever closes first must not be us, or an event that is being
sent at that moment is lost (it is sent only once)."""

SHUTDOWN_S: Final = 8
"""How long requests under way may take to end; platforms kill after 10 s."""

SAY_EVERY_S: Final = 60.0
"""How often it is said that there are too many connections."""

_LOGGER: Final = logging.getLogger("uvicorn.error.connection")
"""For bugs of ours alone: uvicorn would write a line whenever a stranger sends what is no HTTP."""
_LOGGER.addFilter(lambda record: record.levelno >= logging.ERROR)  # a level would not outlast the set-up of logging

_BACKLOG: Final = 2048


class BoundedProtocol(HttpToolsProtocol):
    """HTTP on one connection, cut when a request comes too slowly or is mostly not body, or an answer is not read."""

    request_within_s = REQUEST_WITHIN_S
    read_within_s = READ_WITHIN_S
    crowd = Crowd(MAX_CONNECTIONS)
    """All connections of a server; `WebServer` gives its own."""

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _is_arriving = False
    _overhead = 0
    _received = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Expect the first request."""
        self.logger = _LOGGER
        super().connection_made(cast("asyncio.Transport", _Quiet(transport)))
        self._expect()
        self.crowd.admit(len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._expect_nothing()
        self._is_read()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Note that a request has begun; only if it is not whole by what has arrived is its rest expected."""
        super().on_message_begin()
        self._expect_nothing()
        self._is_arriving = True

    def on_body(self, body: bytes) -> None:
        """Count a piece of the body as such."""
        self._overhead -= len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Begin to answer, unless the request wishes for another protocol: then it is read again without the wish."""
        if not self._wishes_to_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect nothing until the next request begins."""
        if self._wishes_to_upgrade():
            return
        self._expect_nothing()
        self._is_arriving = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Be idle, unless the next request is on its way already."""
        super().on_response_complete()
        if not self._is_arriving and self.cycle.response_complete:
            self.crowd.is_idle(self)

    def pause_writing(self) -> None:
        """Give the client time to read."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.read_within_s, self.cut)

    def resume_writing(self) -> None:
        """Take it back: the client reads."""
        super().resume_writing()
        self._is_read()

    def data_received(self, data: bytes) -> None:
        """Take what arrived, and cut the connection when it is too much."""
        self._overhead += len(data)
        self._received = data
        super().data_received(data)
        self._received = b""
        if self._is_arriving and self._deadline is None:
            self._expect()
        if self._deadline is not None and self._overhead > MAX_OVERHEAD:
            self.cut()

    def _wishes_to_upgrade(self) -> bool:
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """Read the request again without its wish for another protocol, as is anybody's right (RFC 9110, Upgrade).

        The parser takes whatever follows for that protocol and the body for none: an event would be lost.
        """
        found = sys.exception()
        if not self._wishes_to_upgrade() or found is None:
            return
        rest = self._received[found.args[0] :]
        kept = [name + b": " + value + b"\r\n" for name, value in self.headers if name != b"upgrade"]
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join([line, *kept, b"\r\n", rest]))

    def _expect(self) -> None:
        self._deadline = self.loop.call_later(self.request_within_s, self.cut)
        self.crowd.awaits(self)

    def _expect_nothing(self) -> None:
        self._overhead = 0
        self.crowd.forget(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; an answer that is under way to what came before it is dropped."""
        self._is_gone()
        super().send_400_response(msg)

    def cut(self) -> None:
        """End the connection at once, whatever is under way."""
        self._expect_nothing()
        self._is_gone()
        self.transport.abort()

    def _is_gone(self) -> None:
        """Tell whoever is answering: what would be written to a closed transport is an error to it."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()


class _Quiet:
    """A transport to which a late answer may be written: uvloop's raises if the client has just left."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write, unless the connection is gone."""
        if not self.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class WebServer(Server):
    """Serves one application on one socket until a signal; a second signal waits for nobody."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        log: FilteringBoundLogger,
        *,
        protocol: type[BoundedProtocol] = BoundedProtocol,
        leave: Callable[[], None] = lambda: None,
        room: int | None = None,
    ) -> None:
        """Prepare to serve.

        Args:
            app: The application.
            listener: Where to listen.
            log: Where it is said that we do.
            protocol: What is spoken on each connection.
            leave: Ends what would never end by itself.
            room: Connections at most; as many as the process may have, unless told otherwise.
        """
        crowd = Crowd(room or room_for_connections(), self._on_full)
        super().__init__(
            Config(
                app,
                http=type("CrowdedProtocol", (protocol,), {"crowd": crowd}),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
        )
        self._listener = listener
        self._log = log
        self._leave = leave
        self._said_full_at = -math.inf

    def _on_full(self) -> None:
        """Say that connections are being cut, now and then."""
        now = time.monotonic()
        if now - self._said_full_at > SAY_EVERY_S:
            self._said_full_at = now
            self._log.warning("web_crowded", connections=len(self.server_state.connections))

    def serve_until_told(self) -> bool:
        """Serve; return whether the application could be started."""
        self.run(sockets=[self._listener])
        return self.started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening and say where."""
        await super().startup(sockets)
        if self.started:
            self._log.info("web_listening", url=url_of(self._listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what would never end, answer what is under way, and say when that is done."""
        self._leave()
        await super().shutdown(sockets)
        self._log.info("web_stopped")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, and end normally afterwards instead of by the signal."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take no more requests; at the second signal, leave those under way."""
        self.force_exit = self.should_exit
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Open the socket; port 0 lets the system choose.

    Raises:
        OSError: The address is not ours or in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named; without it every answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(_BACKLOG)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return where a socket listens, as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

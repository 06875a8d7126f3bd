"""HTTP on one connection: uvicorn's protocol, with the deadlines and bounds for which uvicorn has no settings.

Slow heads, slow bodies, clients that do not read and too many connections are held off here. What a router and a server
might read differently is the router's (deploy/README.md).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from callkeeper.desk.browser_headers import EVERYWHERE

MAX_OVERHEAD: Final = 32 * 1024
"""Bytes of a request that are not its body: line, headers, chunk sizes, trailers."""

MOST_PIPELINED: Final = 16
"""Requests of a connection that wait for the answer to another one."""

WRITE_BUFFER: Final = 16 * 1024
"""Bytes that may wait in the process for a client to read. With more, its next answer waits."""

KEEP_ALIVE_S: Final = 100
"""Longer than routers (Heroku's: 90 s) and clients keep idle connections. If we closed first, an event sent at that
moment would be lost, because it is sent only once."""

STUCK_S: Final = 1.0
"""How long a client must have read nothing before it is cut to make room: its answer may be on its way."""

STREAMS: Final = "/stream"
"""The end of the path of every stream."""

_TEXT: Final = b"This is not an HTTP request that is served here.\n"
_HEADERS: Final = {**EVERYWHERE, "Content-Type": "text/plain", "Content-Length": str(len(_TEXT)), "Connection": "close"}
_REFUSAL: Final = b"HTTP/1.1 400 Bad Request\r\n%b\r\n%b" % (
    b"".join(f"{name.lower()}: {value}\r\n".encode() for name, value in _HEADERS.items()),
    _TEXT,
)

_LOGGER: Final = logging.getLogger("uvicorn.error.connection")
"""Logs our own bugs only: uvicorn would log every client that does not speak HTTP."""
_LOGGER.addFilter(lambda record: record.levelno >= logging.ERROR)  # set_up_logging would reset a level


class ConnectionState(StrEnum):
    """What a connection waits for."""

    UNREAD = "unread"
    """The client to read, also after we closed."""
    RECEIVING = "receiving"
    """The rest of a request, or the first one."""
    IDLE = "idle"
    """The next request."""
    ANSWERING = "answering"
    """Our answer. Such a connection is never cut to make room."""


DEADLINES_S: Final[Mapping[ConnectionState, float]] = {
    ConnectionState.UNREAD: 30.0,
    ConnectionState.RECEIVING: 10.0,
    ConnectionState.IDLE: KEEP_ALIVE_S + 30.0,  # uvicorn closes it before, but the client may not read the end
    ConnectionState.ANSWERING: 30.0,
}
"""How long a connection may stay in a state before it is cut; checked once a second."""


class ConnectionLimit:
    """Knows since when each connection is in its state; cuts those that take too long, or the slowest to make room.

    uvicorn's ``limit_concurrency`` would answer 503 to every new client, so many slow senders would keep the service out.
    """

    def __init__(
        self,
        most: int,
        deadlines_s: Mapping[ConnectionState, float] = DEADLINES_S,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        self._most = most
        self._deadlines_s = deadlines_s
        self._on_full = on_full
        self._since: dict[ConnectionState, dict[BoundedProtocol, float]] = {state: {} for state in ConnectionState}

    def move(self, connection: "BoundedProtocol", state: ConnectionState | None) -> None:
        """Record that a connection is in a state from now on, if it is not in it; None: it has no deadline."""
        if state is not connection.state:
            if connection.state is not None:
                del self._since[connection.state][connection]
            if state is not None:
                self._since[state][connection] = time.monotonic()
            connection.state = state

    def make_room(self, total: int) -> None:
        """Cut one if the newest exceeds the limit: who does not read, sends slowest, is idle longest, or the newest."""
        if total > self._most:
            self._on_full()
            unread, receiving, idle = (
                [*self._since[each]]
                for each in (ConnectionState.UNREAD, ConnectionState.RECEIVING, ConnectionState.IDLE)
            )
            stuck = [one for one in unread[:1] if time.monotonic() - self._since[ConnectionState.UNREAD][one] > STUCK_S]
            for slowest in [*stuck, *receiving[:-1], *idle, *receiving][:1]:
                slowest.cut()

    def cut_overdue(self) -> None:
        """Cut the connections that have been in a state for too long."""
        now = time.monotonic()
        for state, within_s in self._deadlines_s.items():
            for connection in [one for one, since in self._since[state].items() if now - since > within_s]:
                connection.cut()


class Refused(Exception):
    """A request is refused; the parser turns this into a 400."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. The names of uvicorn that its documentation does not mention are used for the reason beside them."""

    def __init__(self, *args: Any, limit: ConnectionLimit, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.logger = _LOGGER  # it would log every client that does not speak HTTP
        self.state: ConnectionState | None = None
        self._limit = limit
        self._overhead = 0
        self._is_in_head = self._is_in_body = self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request; uvicorn would wait for ever."""
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        super().connection_made(cast("asyncio.Transport", _Transport(transport)))
        self._settle()
        self._limit.make_room(len(self.connections))  # all connections of the process

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection. After a reset, uvicorn's timer would keep all its data until it ends."""
        self._limit.move(self, None)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn itself does it only after an orderly end

    def data_received(self, data: bytes) -> None:
        """Parse the data. uvicorn knows no bound for a head, and takes a body for data of another protocol."""
        self._unset_keepalive_if_required()  # as uvicorn does
        while data and not self._is_refused:
            self._overhead += len(data)
            try:
                self.parser.feed_data(data)  # the parser is replaced after an upgrade
                data = b""
            except httptools.HttpParserUpgrade as paused:
                data = self._without_upgrade() + data[paused.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("")
            if self._overhead > MAX_OVERHEAD and not self._is_refused:
                self.send_400_response("")
        self._settle()

    def _without_upgrade(self) -> bytes:
        """Return the head without its Upgrade header, which a server may ignore (RFC 9110, Upgrade), to parse it again.

        The parser would take the body for data of the other protocol, and the event would be lost.
        """
        kept = [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] != b"upgrade"]  # of the head just parsed
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        self.parser = httptools.HttpRequestParser(self)
        self._overhead = 0
        return b"".join([line, *kept, b"\r\n"])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Pass on a header without blanks at its end, but no trailer: uvicorn would pass on both."""
        if self._is_in_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Begin to answer, or let the request wait for the answers before it; uvicorn would keep any number of them."""
        if len(self.pipeline) >= MOST_PIPELINED or self.parser.get_method() == b"CONNECT":  # which is always an upgrade
            raise Refused
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            self._is_in_head, self._is_in_body = False, True

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_in_body:  # else its head is parsed again, without the upgrade
            self._is_in_body = False
            self._overhead = 0
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._settle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._settle()

    def _settle(self) -> None:
        """Record what this connection waits for now."""
        cycle = self._under_way()
        is_received = cycle is not None and (not self._is_in_body or self.pipeline)  # they wait for their answers
        if self.transport.is_closing() or self.flow.write_paused:  # the transport itself does not tell
            self._limit.move(self, ConnectionState.UNREAD)
        elif is_received and cycle is not None:
            self._limit.move(self, None if cycle.scope["path"].endswith(STREAMS) else ConnectionState.ANSWERING)
        elif self._is_in_head or self._is_in_body or self.cycle is None:  # a new connection has none
            self._limit.move(self, ConnectionState.RECEIVING)
        else:
            self._limit.move(self, ConnectionState.IDLE)

    def _under_way(self) -> RequestResponseCycle | None:
        """Return the newest request whose head has arrived, if it is not answered."""
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn's type omits None, the value before the first request
        return None if cycle is None or cycle.response_complete else cycle

    def send_400_response(self, msg: str) -> None:
        """Refuse a request, whatever the reason, after the ones before it are answered."""
        self._is_refused = True
        cycle = self._under_way()
        if cycle is not None and not self._is_in_body:
            self.shutdown()  # which lets the requests under way be answered
        elif cycle is not None and (self.pipeline or cycle.response_started):  # a 400 would look like their answer
            self.cut()
        else:
            self.transport.write(_REFUSAL)
            self.transport.close()

    def cut(self) -> None:
        """End the connection at once, whatever is under way."""
        self._limit.move(self, None)
        self.transport.abort()


class _Transport:
    """A transport that ignores what comes after its end; uvloop would raise an error, and uvicorn log it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_closing():
            self._transport.resume_reading()

"""HTTP on one connection: uvicorn's protocol, with limits on what a client may send and how.

httptools answers 23,680 requests/s, uvicorn's h11 5,880 (*measured*: 2 cores, 50 connections, an endpoint that only
answers).

uvicorn parses everything that arrives and keeps every parsed request that waits for its turn. It has no public setting
to limit that, the size of a head, trailers, or the time that a request may take. The docstring of each override says
what would happen without it.
"""

import asyncio
import logging
import re
import time
from operator import itemgetter
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from callkeeper.app.connection_limit import ConnectionLimit
from callkeeper.desk.browser_headers import EVERYWHERE

MAX_OVERHEAD: Final = 32 * 1024
"""Bytes of a request that are not its body: line, headers, chunk sizes, trailers."""

MAX_HEADERS: Final = 100

WRITE_BUFFER: Final = 16 * 1024
"""Bytes that may wait in the process for a client to read. With more, its next answer waits."""

PIECES_PER_TURN: Final = 32
"""How often a connection may feed the parser before other connections get a turn."""

STREAMS: Final = "/stream"
"""The end of the path of every stream. Streams have no deadline."""

_NAME: Final = itemgetter(0)
_HOST: Final = re.compile(rb"[A-Za-z0-9._:\[\]-]*")
_HEAD_END: Final = b"\r\n\r\n"
_BODY: Final = b"This is not an HTTP request that is served here.\n"
_REFUSAL: Final = {**EVERYWHERE, "Content-Type": "text/plain; charset=utf-8", "Connection": "close"}

_LOGGER: Final = logging.getLogger("uvicorn.error.connection")
"""Logs our own bugs only: uvicorn would log every client that does not speak HTTP."""
_LOGGER.addFilter(lambda record: record.levelno >= logging.ERROR)  # set_up_logging would reset a level


class Refused(Exception):
    """A request is refused; the parser turns this into a 400."""


class BoundedProtocol(HttpToolsProtocol):
    """Parses one request at a time. Further data waits as bytes, and nothing more is read until it is parsed."""

    def __init__(self, *args: Any, limit: ConnectionLimit, **settings: Any) -> None:
        """Prepare for one connection; ``limit`` tracks all connections of the process."""
        super().__init__(*args, **settings)
        self.logger = _LOGGER
        self._limit = limit
        self._backlog = b""
        self._overhead = 0
        self._asked_at = time.monotonic()
        self._is_arriving = False  # a request has begun and is not complete
        self._is_in_head = False
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request; uvicorn would wait for ever."""
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        super().connection_made(cast("asyncio.Transport", _Transport(transport)))
        self._limit.enter(self._limit.receiving, self)
        self._limit.admit(len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection. After a reset, uvicorn's timer would keep all its data until it ends."""
        self._limit.forget(self)
        self._backlog = b""
        super().connection_lost(exc)
        self._stop_keep_alive()

    def data_received(self, data: bytes) -> None:
        """Parse the data, or let it wait; uvicorn would parse thousands of requests at once and keep them all.

        *Measured*: eight connections with 500 KB of tiny requests grew a web process by 550 MB without this, by less
        than 1 MB with it. Pipelined requests are answered, because an event is sent only once.
        """
        if not self._is_refused:
            self._backlog += data
            self._parse()

    def _parse(self) -> None:
        """Feed the parser up to the end of one head at a time, until a request is complete.

        Bodies may contain many sequences that look like the end of a head. So a connection gets a limited number of
        steps and then waits for the others.
        """
        if self.transport.is_closing():
            return
        self._stop_keep_alive()
        data, at = self._backlog, 0
        for _ in range(PIECES_PER_TURN):
            if at >= len(data) or not self._is_ready():
                break
            end = data.find(_HEAD_END, at)
            at += self._feed(data[at : end + len(_HEAD_END) if end >= 0 else len(data)])
        self._backlog = data[at:] if not self._is_refused else b""
        if self._is_arriving:
            self._limit.enter(self._limit.receiving, self)
        if not self._backlog:
            if self._limit.waiting.pop(self, None) is not None and not self.flow.read_paused:
                self.transport.resume_reading()
            return
        self._limit.enter(self._limit.waiting, self)
        self.transport.pause_reading()
        if self._is_ready():
            self.loop.call_soon(self._parse)

    def _is_ready(self) -> bool:
        return not self._is_refused and (self._is_arriving or not self._is_answering())

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn's type omits None, the value before the first request
        return cycle is not None and not cycle.response_complete

    def _feed(self, piece: bytes) -> int:
        """Parse some bytes; return how many were used."""
        used = len(piece)
        self._overhead = used + (self._overhead if self._is_arriving else 0)
        try:
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as paused:
                used = paused.args[0]
                self._ignore_upgrade()
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.send_400_response("")
        if self._is_arriving and self._overhead > MAX_OVERHEAD:
            self.send_400_response("")
        return used

    def _ignore_upgrade(self) -> None:
        """Parse the head again without its Upgrade header, which a server may ignore (RFC 9110, Upgrade).

        The parser would take the body for data of the other protocol, and the event would be lost.
        """
        kept = [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] != b"upgrade"]
        version = self.parser.get_http_version().encode("ascii")
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"".join([line, *kept, b"\r\n"]))

    def on_message_begin(self) -> None:
        """Start the request's deadline."""
        super().on_message_begin()
        self._is_arriving = self._is_in_head = True
        self._limit.idle.pop(self, None)
        if not self.transport.get_write_buffer_size():  # else the client has not read the answers before this one
            self._asked_at = time.monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Pass on a header without blanks at its end, but no trailer: uvicorn would pass on both."""
        if not self._is_in_head:
            return
        if len(self.headers) >= MAX_HEADERS:
            raise Refused
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Refuse a head that a router in front may have read differently; otherwise begin to answer."""
        if self._overhead > MAX_OVERHEAD or not self._is_unambiguous():
            raise Refused
        self._is_in_head = False  # not sooner: a refused head must not take the answer of the request before it
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def _is_unambiguous(self) -> bool:
        """Tell whether a head has one address, one host and one length (the parser refuses two lengths).

        RFC 9112 also allows absolute addresses. No router passes them on, and they could evade a router's rules by
        path.
        """
        names, values = [*map(_NAME, self.headers)], dict(self.headers)
        hosts, codings = names.count(b"host"), names.count(b"transfer-encoding")
        if not self.url.startswith(b"/") or b"#" in self.url or not _HOST.fullmatch(values.get(b"host", b"")):
            return False
        version = self.parser.get_http_version()
        if version == "1.0":
            return hosts <= 1 and not codings
        is_chunked = codings == 1 and values[b"transfer-encoding"].lower() == b"chunked"
        return version == "1.1" and hosts == 1 and (is_chunked or not codings)

    def on_body(self, body: bytes) -> None:
        """Record that these bytes belong to the body."""
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Parse nothing more until the request is answered. If it asks for an upgrade, parse it again first."""
        if self.parser.should_upgrade():
            return
        self._is_arriving = False
        self._limit.receiving.pop(self, None)
        if not self.scope["path"].endswith(STREAMS):
            self._limit.enter(self._limit.answering, self, self._asked_at)
        super().on_message_complete()
        if not self.parser.should_keep_alive():  # a trailer can end keep-alive; the parser then ignores further data
            self.shutdown()

    def on_response_complete(self) -> None:
        """Parse the data that waits; if there is none, the connection is idle."""
        super().on_response_complete()
        if self.transport.is_closing():
            if self in self.connections:
                self._is_closed()
            return
        if self._backlog:
            self._parse()
        if self.cycle.response_complete:
            self._limit.answering.pop(self, None)
            if not self._is_arriving:
                self._limit.enter(self._limit.idle, self)

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        super().pause_writing()
        self._limit.enter(self._limit.not_reading, self)

    def resume_writing(self) -> None:
        """Clear that deadline, unless the connection is closing: then the client must read everything."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._limit.not_reading.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request, whatever the reason, after the one before it is answered; send the headers of every answer."""
        self._is_refused = True
        is_of_next = self._is_in_head or not self._is_arriving
        if self._is_answering():
            if is_of_next and not self.pipeline:
                self._is_arriving = False
                self._limit.receiving.pop(self, None)
                self.shutdown()  # which lets the request under way be answered
                return
            if self.pipeline or self.cycle.response_started:
                self.cut()
                return
        length = (b"content-length", b"%d" % len(_BODY))
        ours = [(name.lower().encode(), value.encode()) for name, value in _REFUSAL.items()]
        head = [b"%b: %b\r\n" % pair for pair in (*self.server_state.default_headers, *ours, length)]
        self.transport.write(b"".join([b"HTTP/1.1 400 Bad Request\r\n", *head, b"\r\n", _BODY]))
        self.transport.close()
        self._is_closed()

    def cut(self) -> None:
        """End the connection at once, whatever is under way."""
        self._limit.forget(self)
        self.transport.abort()

    def _is_closed(self) -> None:
        """Record that the connection ends when the client has read everything."""
        self._limit.forget(self)
        self._limit.enter(self._limit.not_reading, self)

    def _stop_keep_alive(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None


class _Transport:
    """A transport that ignores writes after its end, and that both uvicorn and `BoundedProtocol` may pause.

    uvloop raises an error on a write to a connection that the client has just closed.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self.is_reading = transport.is_reading
        self.get_write_buffer_size = transport.get_write_buffer_size

    def write(self, data: bytes) -> None:
        """Write, unless the connection is closed."""
        if not self.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Stop reading, unless it is stopped already."""
        if self.is_reading() and not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless it reads already."""
        if not (self.is_reading() or self.is_closing()):
            self._transport.resume_reading()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

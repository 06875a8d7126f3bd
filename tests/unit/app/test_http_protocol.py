"""Answers of a connection do not depend on how the network splits the data: the real parser, no sockets."""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from callkeeper.app.http_protocol import MAX_OVERHEAD, MOST_PIPELINED, BoundedProtocol, ConnectionLimit
from callkeeper.desk.browser_headers import EVERYWHERE
from tests.conftest import examples

HOST = b"Host: a\r\n"
INNER = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
N = len(INNER)
LENGTH = b"Content-Length: %d\r\n" % N
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n" % (N, INNER)
UPGRADE = b"Connection: upgrade\r\nUpgrade: h2c\r\n"
POST = b"POST /p HTTP/1.1\r\n" + HOST
GET = b"GET /get HTTP/1.1\r\n" + HOST + b"\r\n"

ANSWERED: dict[str, tuple[bytes, str]] = {
    "get": (GET, "GET /get 0"),
    "head": (b"HEAD /head HTTP/1.1\r\n" + HOST + b"\r\n", "HEAD"),
    "options with a body": (b"OPTIONS /o HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + INNER, f"OPTIONS /o {N}"),
    "get with a body": (b"GET /body HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + INNER, f"GET /body {N}"),
    "body of line breaks": (POST + b"Content-Length: 40000\r\n\r\n" + b"\r\n\r\n" * 10_000, "POST /p 40000"),
    "chunks with a trailer": (POST + CHUNKED + b"\r\n" + CHUNKS + b"X-Key: trailer\r\n\r\n", f"POST /p {N}"),
    "chunk extension": (POST + CHUNKED + b"\r\n" + CHUNKS.replace(b"0\r\n", b"0;x=y\r\n") + b"\r\n", f"POST /p {N}"),
    "upgrade": (b"GET /u HTTP/1.1\r\n" + HOST + UPGRADE + b"\r\n", "GET /u 0"),
    "upgrade with a body": (POST + UPGRADE + LENGTH + b"\r\n" + INNER, f"POST /p {N}"),
    "upgrade with chunks": (POST + UPGRADE + CHUNKED + b"\r\n" + CHUNKS + b"\r\n", f"POST /p {N}"),
    "body that nobody reads": (POST.replace(b"/p", b"/unread") + LENGTH + b"\r\n" + INNER, "POST /unread 0"),
    "no host": (b"GET /n HTTP/1.1\r\n\r\n", "GET /n 0"),
    "two hosts": (b"GET /n HTTP/1.1\r\n" + HOST + HOST + b"\r\n", "GET /n 0"),
    "absolute address": (b"GET http://b/n HTTP/1.1\r\n" + HOST + b"\r\n", "GET /n 0"),
    "fragment": (b"GET /n#x HTTP/1.1\r\n" + HOST + b"\r\n", "GET /n 0"),
    "many headers": (b"GET /n HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 200 + b"\r\n", "GET /n 0"),
}
"""Requests, and what is answered: method, path and length of the body that the application has read."""

LAST: dict[str, tuple[bytes, list[str]]] = {
    "nothing": (b"", []),
    "close": (GET.replace(HOST, HOST + b"Connection: close\r\n") + INNER, ["GET /get 0"]),
    "HTTP/1.0": (GET.replace(b"/1.1", b"/1.0"), ["GET /get 0"]),
    "length and chunks": (POST + LENGTH + CHUNKED + b"\r\n0\r\n\r\n" + INNER, ["400"]),
    "two lengths": (POST + LENGTH + b"Content-Length: 4\r\n\r\n" + INNER, ["400"]),
    "negative length": (POST + b"Content-Length: -1\r\n\r\n" + INNER, ["400"]),
    "another coding last": (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS + INNER, ["400"]),
    "HTTP/0.9": (b"GET /get\r\n\r\n" + INNER, ["GET /get 0"]),
    "HTTP/9": (b"GET / HTTP/9\r\n\r\n" + INNER, ["400"]),
    "CONNECT": (b"CONNECT a:443 HTTP/1.1\r\n" + HOST + b"\r\n" + INNER, ["400"]),
    "garbage": (b"\x00\r\n\r\n" + INNER, ["400"]),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", ["400"]),
}
"""What ends a connection: nothing behind it is answered."""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what was asked, and how long its body was; read no body under /unread."""
    length, more = 0, scope["path"] != "/unread"
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    assert not [name for name, _ in scope["headers"] if name == b"x-key"]
    said = f"<{scope['method']} {scope['path']} {length}>".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


class Wire:
    """A transport that delivers nothing while reading is paused, and keeps what was written."""

    def __init__(self) -> None:
        self.written = b""
        self._is_closing = self._is_paused = False

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_options: None

    def is_closing(self) -> bool:
        """Tell whether the connection ends."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Tell whether more may be delivered."""
        return not (self._is_paused or self._is_closing)

    def pause_reading(self) -> None:
        """Deliver nothing for now."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Deliver again."""
        self._is_paused = False

    def write(self, data: bytes) -> None:
        """Keep what was answered."""
        self.written += data

    def close(self) -> None:
        """End."""
        self._is_closing = True

    abort = close


async def sent(pieces: Sequence[bytes], turns: int = 1) -> bytes:
    """Send pieces, the event loop turning so often between them; return what was written."""
    config = Config(echo, lifespan="off", ws="none", log_config=None, access_log=False)
    config.load()
    wire, state = Wire(), ServerState()
    protocol = BoundedProtocol(config, state, {}, limit=ConnectionLimit(10))
    protocol.connection_made(cast("asyncio.Transport", wire))
    arriving = deque(pieces)
    while (arriving or state.tasks) and not wire.is_closing():
        if arriving and wire.is_reading():
            protocol.data_received(arriving.popleft())
        for _ in range(turns if arriving and wire.is_reading() else 1):
            await asyncio.sleep(0)
    protocol.connection_lost(None)
    return wire.written


async def answers(pieces: Sequence[bytes], turns: int = 1) -> list[str]:
    """Send pieces; return what was answered, in order."""
    found = re.findall(rb"HTTP/1\.1 (\d+) .*?\r\n\r\n(?:<(.*?)>)?", await sent(pieces, turns), re.DOTALL)
    return [said.decode() if said else "HEAD" if status == b"200" else status.decode() for status, said in found]


@examples(60)
@given(
    requests=st.lists(st.sampled_from(sorted(ANSWERED)), max_size=6),
    last=st.sampled_from(sorted(LAST)),
    cuts=st.lists(st.integers(0, 1000) | st.integers(0, 60_000), max_size=12),
    turns=st.integers(0, 6),
)
async def test_answers_do_not_depend_on_how_bytes_are_cut(
    requests: list[str], last: str, cuts: list[int], turns: int
) -> None:
    """For all splits: each request is answered once and in order, and no body is parsed as a request."""
    end, answered = LAST[last]
    whole = b"".join([*(ANSWERED[each][0] for each in requests), end])
    at = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[a:b] for a, b in pairwise(at)]
    expected = [ANSWERED[each][1] for each in requests]
    # Behind a request that is still being answered, what is refused has no answer of its own.
    assert await answers(pieces, turns) in ([*expected, *answered], expected if answered == ["400"] else None)


@pytest.mark.parametrize(("request_", "answer"), ANSWERED.values(), ids=ANSWERED.keys())
async def test_next_request_is_answered_behind(request_: bytes, answer: str) -> None:
    """Each request gets one answer; the next is neither lost nor answered twice."""
    assert await answers([request_, GET]) == [answer, "GET /get 0"]
    assert await answers([request_ + GET]) == [answer, "GET /get 0"]


@pytest.mark.parametrize(("request_", "answered"), LAST.values(), ids=LAST.keys())
async def test_refused_request_is_answered_once(request_: bytes, answered: list[str]) -> None:
    """What ends a connection gets one answer, and what stands behind it none."""
    assert await answers([request_]) == answered
    assert await answers([GET, request_, GET], turns=6) == ["GET /get 0", *(answered or ["GET /get 0"])]


@pytest.mark.parametrize(
    "beginning",
    [POST + b"X-Long: ", POST + CHUNKED + b"\r\n1\r\n{\r\n0\r\nX-Trailer: ", POST + CHUNKED + b"\r\n1;x="],
    ids=["header", "trailer", "chunk extension"],
)
async def test_endless_head_is_refused(beginning: bytes) -> None:
    """A6: a header, trailer or chunk extension without an end is refused at the limit; no deadline has to help."""
    assert await answers([beginning, *[b"x" * 1024] * (MAX_OVERHEAD // 1024)]) == ["400"]


async def test_pipelined_requests_have_a_bound() -> None:
    """Requests that are sent without waiting are answered up to a bound, and then the connection ends."""
    assert await answers([GET * (MOST_PIPELINED + 1)]) == ["GET /get 0"] * (MOST_PIPELINED + 1)
    assert await answers([GET * 1000]) == ["GET /get 0"] * (MOST_PIPELINED + 1)


async def test_refusal_has_the_headers_of_every_answer() -> None:
    """The answer to invalid HTTP has the security headers of every answer, each once."""
    head = (await sent([b"GET / HTTP/9\r\n\r\n"])).partition(b"\r\n\r\n")[0]
    names = [each.partition(b":")[0].decode() for each in head.split(b"\r\n")[1:]]
    assert {name.lower() for name in EVERYWHERE} < set(names)
    assert len(names) == len(set(names))

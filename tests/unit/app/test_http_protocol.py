"""Answers of a connection do not depend on how the network splits the data: the real parser, no sockets."""

import ast
import asyncio
import inspect
import re
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from callkeeper.app.connection_limit import ConnectionLimit
from callkeeper.app.http_protocol import BoundedProtocol
from tests.conftest import examples

HOST = b"Host: a\r\n"
INNER = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
SENT: dict[bytes, str] = {
    b"GET /get HTTP/1.1\r\n" + HOST + b"\r\n": "GET /get 0",
    b"HEAD /head HTTP/1.1\r\n" + HOST + b"\r\n": "HEAD",
    b"OPTIONS /o HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (HOST, len(INNER), INNER): f"OPTIONS /o {len(INNER)}",
    b"GET /body HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (HOST, len(INNER), INNER): f"GET /body {len(INNER)}",
    b"POST /post HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\n\r\n\r\n": "POST /post 4",
    b"POST /long HTTP/1.1\r\n" + HOST + b"Content-Length: 40000\r\n\r\n" + b"\r\n\r\n" * 10_000: "POST /long 40000",
    b"POST /chunks HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nX-Key: trailer\r\n\r\n"
    % (HOST, len(INNER), INNER): f"POST /chunks {len(INNER)}",
    b"POST /upgrade HTTP/1.1\r\n%bConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n%b"
    % (HOST, len(INNER), INNER): f"POST /upgrade {len(INNER)}",
    b"POST /unread HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (HOST, len(INNER), INNER): "POST /unread 0",
}
"""Requests, and what is answered: method, path and length of the body that the application has read."""

LAST: dict[bytes, list[str]] = {
    b"": [],
    b"GET /end HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n" + INNER: ["GET /end 0"],
    b"GET / HTTP/1.1\r\n\r\n" + INNER: ["400"],
    b"POST /push HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER: [
        "400"
    ],
    b"GET http://b/ HTTP/1.1\r\n" + HOST + b"\r\n" + INNER: ["400"],
    b"\x00\r\n\r\n" + INNER: ["400"],
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

    def get_write_buffer_size(self) -> int:
        """Return 0: the client reads everything at once."""
        return 0

    def write(self, data: bytes) -> None:
        """Keep what was answered."""
        self.written += data

    def close(self) -> None:
        """End."""
        self._is_closing = True


async def answers(pieces: Sequence[bytes], turns: int) -> list[str]:
    """Send pieces, the event loop turning so often between them; return what was answered, in order."""
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
    found = re.findall(rb"HTTP/1\.1 (\d+) .*?\r\n\r\n(?:<(.*?)>)?", wire.written, re.DOTALL)
    return [said.decode() if said else "HEAD" if status == b"200" else status.decode() for status, said in found]


@examples(60)
@given(
    requests=st.lists(st.sampled_from(sorted(SENT)), max_size=6),
    last=st.sampled_from(sorted(LAST)),
    cuts=st.lists(st.integers(0, 1000) | st.integers(0, 60_000), max_size=12),
    turns=st.integers(0, 6),
)
async def test_answers_do_not_depend_on_how_bytes_are_cut(
    requests: list[bytes], last: bytes, cuts: list[int], turns: int
) -> None:
    """For all splits: each request is answered once and in order, and no body is parsed as a request."""
    whole = b"".join([*requests, last])
    at = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[a:b] for a, b in pairwise(at)]
    expected = [SENT[each] for each in requests]
    # Behind a request that is still being answered, what is refused has no answer of its own.
    assert await answers(pieces, turns) in ([*expected, *LAST[last]], expected if LAST[last] == ["400"] else None)


OWN = {"_limit", "_backlog", "_overhead", "_asked_at", "_is_arriving", "_is_in_head", "_is_refused"}
"""What a connection of ours remembers besides."""


async def test_names_of_uvicorns_protocol_that_are_used_exist() -> None:
    """Most are private, so any release of uvicorn may rename them: this says which one is gone."""
    config = Config(echo, lifespan="off", ws="none", log_config=None)
    config.load()
    plain = HttpToolsProtocol(config, ServerState(), {})
    plain.on_message_begin()
    theirs = dir(plain)
    (ours,) = [node for node in ast.parse(inspect.getsource(BoundedProtocol)).body if isinstance(node, ast.ClassDef)]
    used = {
        node.attr
        for node in ast.walk(ours)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    inherited = used - vars(BoundedProtocol).keys() - OWN
    assert sorted(inherited - set(theirs)) == []
    assert len(inherited) > 10

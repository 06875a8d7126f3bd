"""Limits on clients' connections, over real sockets."""

import asyncio
import functools
import gc
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import metadata

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from callkeeper.app.http_protocol import DEADLINES_S, BoundedProtocol, ConnectionState
from callkeeper.app.serving import WebServer, every_address, listen, url_of
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import Intake
from callkeeper.service.push_event import parse_header_settings
from receiver.authentication import PushAuthentication
from receiver.push import PushEndpoint
from tests.waiting import until_async

SECRET = "the-configured-push-secret"
BODY = b'{"Type":"CallStart","VoiceId":"voice-1","InstitutionKey":"cu-1"}'
HEAD = f"POST /push HTTP/1.1\r\nHost: a\r\nX-Push-Key: {SECRET}\r\n".encode()
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY

Dial = Callable[[], Awaitable["Line"]]


IMPATIENT = {**DEADLINES_S, ConnectionState.RECEIVING: 0.3}
"""A deadline that a test can wait for."""

PATIENT = {**DEADLINES_S, ConnectionState.RECEIVING: 3600.0, ConnectionState.UNREAD: 0.3}
"""Deadlines that no test reaches, except for a client that does not read."""


class Line:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        """Send some bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def status(self) -> int:
        """Read one answer and return its status."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self.reader.readexactly(length)
        return int(head.split(b" ", 2)[1])

    async def rest(self) -> bytes:
        """Read until the server ends the connection."""
        with suppress(ConnectionError):
            return await self.reader.read()
        return b""


@pytest.fixture
def app(redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger) -> Starlette:
    """Return an application with the push endpoint."""
    authentication = PushAuthentication(parse_header_settings(f"X-Push-Key: {SECRET}"))
    endpoint = PushEndpoint(authentication, Intake(redis), Waker(blocking_redis), log)
    return Starlette(routes=[Route("/push", endpoint, methods=["POST"])])


@asynccontextmanager
async def serving(
    app: Starlette,
    log: FilteringBoundLogger,
    deadlines_s: Mapping[ConnectionState, float] = IMPATIENT,
    room: int | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[int]:
    """Serve an application on a free port until the block ends."""
    with listen(host, 0) as listener:
        server = WebServer(app, listener, log, deadlines_s=deadlines_s, room=room)
        port = listener.getsockname()[1]
        task = asyncio.create_task(server.serve([listener]))
        await until_async(lambda: server.started)
        try:
            yield port
        finally:
            server.should_exit = True
            await task


@pytest.fixture
async def dial(app: Starlette, log: FilteringBoundLogger) -> AsyncIterator[Dial]:
    """Return a function that connects to the server under test."""
    lines: list[Line] = []
    async with serving(app, log) as port:

        async def connect() -> Line:
            line = Line(*await asyncio.open_connection("127.0.0.1", port))
            lines.append(line)
            return line

        yield connect
        for line in lines:
            line.writer.close()
            with suppress(ConnectionError):
                await line.writer.wait_closed()


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"POST /push HT",
        HEAD,
        HEAD + b"Content-Length: 999\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
    ],
    ids=["nothing", "line", "headers", "body", "chunk"],
)
async def test_serving_cuts_a_slow_request(beginning: bytes, dial: Dial) -> None:
    """A7: a request that does not arrive in time is cut wherever it stopped, and nothing is answered."""
    line = await dial()
    await line.say(beginning)
    assert await line.rest() == b""


async def test_serving_answers_others_beside_500_slow_ones(dial: Dial) -> None:
    """A7: five hundred slow connections do not delay others, and all are cut at the deadline."""
    slow = [await dial() for _ in range(500)]
    for line in slow:
        await line.say(HEAD)
    quick = await dial()
    await quick.say(WHOLE)
    assert await quick.status() == 202
    assert set(await asyncio.gather(*(line.rest() for line in slow))) == {b""}


async def test_serving_keeps_idle_connections(dial: Dial) -> None:
    """The deadline is for requests: a connection that waits between two of them stays, or events would be lost."""
    idle = await dial()
    await idle.say(WHOLE)
    assert await idle.status() == 202
    assert await (await dial()).rest() == b""  # a later connection without a request has reached the deadline
    await idle.say(WHOLE)
    assert await idle.status() == 202


async def test_serving_makes_room_at_the_cost_of_the_slowest(
    app: Starlette, log: FilteringBoundLogger, logged: LogCapture
) -> None:
    """A7: beyond the cap the connection awaited longest is cut; who sends in time is answered; idle ones are last."""
    async with serving(app, log, PATIENT, room=20) as port:
        connect = functools.partial(asyncio.open_connection, "127.0.0.1", port)
        idle = Line(*await connect())
        await idle.say(WHOLE)
        assert await idle.status() == 202
        slow = [Line(*await connect()) for _ in range(19)]
        for line in slow:
            await line.say(HEAD)
        quick = [Line(*await connect()) for _ in range(5)]
        for line in quick:
            await line.say(WHOLE)
            assert await line.status() == 202
        assert [await line.rest() for line in slow[:5]] == [b""] * 5, "the first that came, the first that went"
        for line in (idle, *quick):
            await line.say(WHOLE)
            assert await line.status() == 202
        assert [entry["event"] for entry in logged.entries].count("connection_limit_reached") == 1
        for line in (idle, *slow, *quick):
            line.writer.close()


async def test_serving_cuts_an_idle_connection_when_all_are(app: Starlette, log: FilteringBoundLogger) -> None:
    """A7: connections that were answered once and kept cannot take all the room either."""
    async with serving(app, log, PATIENT, room=5) as port:
        lines = [Line(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(5)]
        for line in lines:
            await line.say(WHOLE)
            assert await line.status() == 202
        late = Line(*await asyncio.open_connection("127.0.0.1", port))
        await late.say(WHOLE)
        assert await late.status() == 202
        assert await lines[0].rest() == b""
        for line in (*lines, late):
            line.writer.close()


async def test_serving_cuts_who_does_not_read(log: FilteringBoundLogger) -> None:
    """A client that asks for a stream and does not read it is cut: neither our memory nor its place is held for ever."""
    ended: list[bool] = []

    async def words() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)

    class Endless:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await StreamingResponse(words())(scope, receive, send)
            ended.append(True)

    async with serving(Starlette(routes=[Route("/stream", Endless())]), log, PATIENT) as port:
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.send(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
            await until_async(lambda: ended)


async def test_serving_cuts_an_answer_that_takes_too_long(log: FilteringBoundLogger) -> None:
    """Every answer has a deadline as a whole, except streams: they go on."""
    over = asyncio.Event()

    async def wait(_request: Request) -> Response:
        await over.wait()
        return Response()

    async def stream(_request: Request) -> Response:
        async def ticks() -> AsyncIterator[bytes]:
            while True:
                yield b"tick"
                await asyncio.sleep(0.1)

        return StreamingResponse(ticks())

    app = Starlette(routes=[Route("/wait", wait), Route("/stream", stream)])
    async with serving(app, log, {**DEADLINES_S, ConnectionState.ANSWERING: 0.3}) as port:
        waiting, streaming = [Line(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(2)]
        await streaming.say(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        await waiting.say(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await waiting.rest() == b""
        for _ in range(20):
            await asyncio.wait_for(streaming.reader.readuntil(b"tick"), 1)
        over.set()
        for line in (waiting, streaming):
            line.writer.close()


async def test_serving_forgets_connections_that_were_reset(dial: Dial) -> None:
    """A client that resets its connection leaves nothing behind: a thousand a second would fill the memory."""
    gc.freeze()  # what is there already is not looked at again and again
    for _ in range(20):
        line = await dial()
        await line.say(WHOLE)
        assert await line.status() == 202
        line.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.writer.transport.abort()

    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, BoundedProtocol) for each in gc.get_objects())

    try:
        await until_async(lambda: kept() == 0)
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /push HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n", 401),
        (HEAD + b"Content-Length: 900000\r\n\r\n", 413),
        (HEAD + b"Content-Type: text/plain\r\nContent-Length: 900\r\n\r\n", 415),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n4400\r\n" + b"x" * 0x4400, 413),
    ],
    ids=["401", "413-declared", "415", "413-chunked"],
)
async def test_serving_ends_the_connection_of_a_refused_request(request_: bytes, status: int, dial: Dial) -> None:
    """A request that is refused before its body has arrived is answered, and its connection ends."""
    line = await dial()
    await line.say(request_)
    assert await line.status() == status
    assert await line.rest() == b""


@pytest.mark.parametrize("more", [b"", b"Content-Type: text/plain\r\n"], ids=["401", "415"])
async def test_serving_lets_a_refused_sender_see_why(more: bytes, dial: Dial) -> None:
    """Many clients send the body after the head. If the connection were closed meanwhile, they would see a reset."""
    head = HEAD + more if more else b"POST /push HTTP/1.1\r\nHost: a\r\n"
    line = await dial()
    await line.say(head + b"Content-Length: %d\r\n\r\n" % len(BODY))
    for byte in BODY:
        await asyncio.sleep(0)
        await line.say(bytes([byte]))
    assert await line.status() in {401, 415}
    assert await line.rest() == b""


async def test_serving_records_nothing_of_a_client_that_left(
    dial: Dial, redis: Redis, logged: LogCapture, caplog: pytest.LogCaptureFixture
) -> None:
    """A8: a client that leaves mid-body leaves no event, no 500 and no error in the log."""
    line = await dial()
    await line.say(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:-5])
    line.writer.close()
    await until_async(lambda: "client_left" in [entry.get("reason") for entry in logged.entries])
    assert await redis.zcard(Keys().events) == 0
    assert [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}] == []


async def test_serving_leaves_nothing_to_the_garbage_collector(dial: Dial) -> None:
    """An event leaves no reference cycles, so garbage collection does not pause the process."""
    line = await dial()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for _ in range(50):
            await line.say(WHOLE)
            assert await line.status() == 202
        assert sum(isinstance(each, RequestResponseCycle) for each in gc.get_objects()) < 10
    finally:
        gc.enable()
        gc.unfreeze()


async def test_serving_says_where_and_when(app: Starlette, log: FilteringBoundLogger, logged: LogCapture) -> None:
    """The real port, also of any free one, and the release are logged once requests are taken; so is the end."""
    async with serving(app, log) as port:
        [entry] = logged.entries
        assert (entry["event"], entry["url"]) == ("web_listening", f"http://127.0.0.1:{port}")
        assert entry["release"] == metadata.version("callkeeper")
    assert logged.entries[-1]["event"] == "web_stopped"


def test_serving_writes_ipv6_addresses_as_urls() -> None:
    """An IPv6 address stands in brackets."""
    with listen("::1", 0) as listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


async def test_serving_every_address_takes_ipv4_and_ipv6(app: Starlette, log: FilteringBoundLogger) -> None:
    """Where a platform sets the port, its router may connect by either."""
    async with serving(app, log, host=every_address()) as port:
        for host in ("127.0.0.1", "::1"):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            await writer.wait_closed()

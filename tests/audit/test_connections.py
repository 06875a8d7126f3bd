"""Attacks on the connections of a running web process, during which events must still be accepted."""

import json
import re
import socket
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from redis import Redis

from callkeeper.app.http_protocol import MAX_HEADERS, MAX_OVERHEAD
from callkeeper.calls.store.attempt_limiter import ALLOWED
from callkeeper.desk.browser_headers import EVERYWHERE
from callkeeper_sandbox.demo.embedded_redis import EmbeddedRedis
from tests.audit.conftest import Target, web_process
from tests.audit.raw_requests import PUSH_KEY, TOKEN
from tests.people.providers import ProviderProcess, settings
from tests.waiting import until

FILES = 160
"""Leaves 32 connections to a web process: 24 may serve other things than events, and 12 one token's streams."""

ROOM = 32
BODY = b'{"Type":"CallStart","VoiceId":"voice-1","InstitutionKey":"cu-1"}'
AUTHENTIC = b"POST /push HTTP/1.1\r\nHost: a\r\nX-Push-Key: %b\r\n" % PUSH_KEY.encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
PUSH = AUTHENTIC + LENGTH + b"\r\n" + BODY
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
NOTHING = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
UPGRADE = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
FLOOD = 5_000_000
"""How many bytes of requests a connection sends without waiting for answers."""


@pytest.fixture(scope="module")
def _shared(
    redis_server: EmbeddedRedis, flushing_redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    flushing_redis.flushall()
    with web_process(redis_server.url, tmp_path_factory.mktemp("shared")) as target:
        yield target


@pytest.fixture
def shared(_shared: Target, redis_url: str) -> Target:
    """Return a web process for tests that look neither at its memory or log nor at what it counts. Redis is empty."""
    return _shared


@contextmanager
def line(target: Target, buffer: int | None = None) -> Iterator[socket.socket]:
    """Connect to a web process. ``buffer``: size of the receive buffer in bytes."""
    with socket.socket() as connection:
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", target.port))
        yield connection


def statuses(target: Target, request: bytes, answers: int = 1) -> list[int]:
    """Send bytes over a new connection; return the statuses of up to ``answers`` answers."""
    return [int(head[9:12]) for head in _heads(target, request, answers)]


def _heads(target: Target, request: bytes, answers: int) -> list[bytes]:
    received = b""
    with line(target) as connection, suppress(ConnectionError):
        sender = Thread(target=_send, args=(connection, request))
        sender.start()
        while len(found := re.findall(rb"HTTP/1\.1 \d\d\d .*?\r\n\r\n", received, re.DOTALL)) < answers:
            more = connection.recv(1 << 20)
            if not more:
                break
            received += more
        sender.join()
    return found


def _send(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


def flood(connection: socket.socket) -> None:
    """Send as many requests as the connection accepts, and read nothing."""
    connection.setblocking(False)
    with suppress(BlockingIOError, ConnectionError):
        connection.send(NOTHING * (FLOOD // len(NOTHING)))


ANSWERED_WITHIN_S = 5.0
"""The sandbox's deadline for the answer to an event. A benchmark measures how fast events are on an idle machine."""


def pushed_within_s(target: Target, times: int = 20) -> list[float]:
    """Send events over a new connection each; return how long each took until it was accepted, shortest first."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        assert statuses(target, PUSH) == [202]
        took.append(time.monotonic() - began)
    return sorted(took)


def resident_mb(target: Target) -> float:
    """Return how much memory a web process uses."""
    return int(Path(f"/proc/{target.pid}/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.parametrize(
    ("reads", "request_"),
    [(False, NOTHING), (True, NOTHING), (True, PUSH)],
    ids=["not reading", "reading", "events"],
)
def test_pipelining_costs_no_memory_and_delays_no_event(reads: bool, request_: bytes, target: Target) -> None:
    """Twelve connections with thousands of pipelined requests each cost under 20 MB and delay no event."""
    pushed_within_s(target)  # warm up
    before_mb = resident_mb(target)
    with ExitStack() as stack:
        for _ in range(12):
            connection = stack.enter_context(line(target, None if reads else 4096))
            if reads:
                Thread(target=_send, args=(connection, request_ * (FLOOD // len(request_))), daemon=True).start()
                Thread(target=_read, args=(connection,), daemon=True).start()
            else:
                flood(connection)
        took_s = pushed_within_s(target)
        grown_mb = resident_mb(target) - before_mb
    print(f"grew by {grown_mb:.1f} MB, events took {took_s[10] * 1e3:.0f} ms, at most {took_s[-1] * 1e3:.0f} ms")  # noqa: T201
    assert grown_mb < 20
    assert took_s[-1] < ANSWERED_WITHIN_S


def test_bodies_of_what_looks_like_heads_delay_no_event(shared: Target) -> None:
    """Fifty connections whose bodies consist of line breaks do not delay events."""
    body = b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + b"\r\n\r\n" * 1_000_000
    pushed_within_s(shared)
    with ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(line(shared))
            Thread(target=_send, args=(connection, body), daemon=True).start()
        took_s = pushed_within_s(shared, 5)
    print(f"events took {took_s[2] * 1e3:.0f} ms, at most {took_s[-1] * 1e3:.0f} ms")  # noqa: T201
    assert took_s[-1] < ANSWERED_WITHIN_S


def _read(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass


def test_pipelined_requests_are_all_answered(shared: Target) -> None:
    """Pipelined requests are all answered, in their order."""
    assert statuses(shared, (PUSH + NOTHING) * 200, 400) == [202, 404] * 200


def test_pipelined_upgrades_are_ignored(target: Target) -> None:
    """A thousand pipelined requests for an upgrade are answered normally, without a line in the log."""
    assert statuses(target, UPGRADE * 1000, 1000) == [200] * 1000
    assert [entry["event"] for entry in target.events("info", "warning", "error")] == ["web_listening"]


def test_clients_that_pipeline_make_room(redis_url: str, tmp_path: Path) -> None:
    """If clients that pipeline hold all connections, some of them are closed so that events are accepted."""
    with web_process(redis_url, tmp_path, files=FILES) as target, ExitStack() as stack:
        for _ in range(ROOM):
            connection = stack.enter_context(line(target))
            Thread(target=_send, args=(connection, NOTHING * (FLOOD // len(NOTHING))), daemon=True).start()
            Thread(target=_read, args=(connection,), daemon=True).start()
        assert pushed_within_s(target)[-1] < ANSWERED_WITHIN_S


def test_streams_of_a_token_have_a_cap(redis_url: str, tmp_path: Path) -> None:
    """A token may open a limited number of streams; further ones get 429 until one has ended."""
    with web_process(redis_url, tmp_path, files=FILES) as target, ExitStack() as stack:
        assert Counter(_open_streams(target, stack, 14, TOKEN)) == {200: 12, 429: 2}
        assert pushed_within_s(target)[-1] < ANSWERED_WITHIN_S
        stack.close()
        until(lambda: _open_streams(target, stack, 1, TOKEN) == [200], 20, "a place that a stream has left")


def test_room_is_kept_for_events(redis_url: str, tmp_path: Path) -> None:
    """Streams of many tokens leave connections for events and health checks; further streams get 503."""
    tokens = tuple(f"{n}aQ7zk29mLp0XwEr4-bQ7zk29mLp0XwEr4" for n in "abc")
    setting = ", ".join(f"t{n}:{token}" for n, token in enumerate(tokens))
    with web_process(redis_url, tmp_path, files=FILES, CALLKEEPER_DESK_TOKENS=setting) as target, ExitStack() as stack:
        found = Counter(status for token in tokens for status in _open_streams(target, stack, 12, token))
        assert found == {200: 24, 503: 12}
        assert statuses(target, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") == [200]
        assert pushed_within_s(target)[-1] < ANSWERED_WITHIN_S


def test_half_sent_requests_take_no_room(redis_url: str, tmp_path: Path) -> None:
    """Requests whose body is missing keep nobody out, whoever sends them: others are still answered."""
    half = b"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1234"
    people = settings(ProviderProcess(1, "http://127.0.0.1:1", ""), "https://desk")
    with web_process(redis_url, tmp_path, files=FILES, **people) as target, ExitStack() as stack:
        for _ in range(ROOM - 4):
            stack.enter_context(line(target)).sendall(half)
        assert statuses(target, half + b"56789") == [401]
        assert statuses(target, b"GET /desk/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n") == [200]
        assert pushed_within_s(target)[-1] < ANSWERED_WITHIN_S


def _open_streams(target: Target, stack: ExitStack, times: int, token: str) -> list[int]:
    request = b"GET /desk/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %b\r\n\r\n" % token.encode()
    found = []
    for _ in range(times):
        connection = stack.enter_context(line(target))
        connection.sendall(request)
        found.append(int(connection.recv(1 << 16)[9:12]))
    return found


def test_push_headers_in_a_trailer_do_not_count(shared: Target) -> None:
    """A push header in a trailer does not authenticate a request, and other trailers are ignored."""
    head = b"POST /push HTTP/1.1\r\nHost: a\r\n"
    trailer = b"X-Push-Key: %b\r\n\r\n" % PUSH_KEY.encode()
    assert statuses(shared, head + CHUNKED + trailer) == [401]
    assert statuses(shared, AUTHENTIC + CHUNKED + b"X-Trailer: ignored\r\n\r\n") == [202]


def test_forwarded_address_in_a_trailer_does_not_count(target: Target) -> None:
    """A trailer does not replace the address that the router reported, so a client's guesses are counted together."""
    found = []
    for n in range(ALLOWED + 5):
        trailer = b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Forwarded-For: 198.51.100.%d\r\n\r\n" % n
        found += statuses(target, _guess(n, b"203.0.113.7") + trailer)
    assert found == [401] * ALLOWED + [429] * 5


def test_forwarded_addresses_with_ports_are_told_apart(target: Target) -> None:
    """If a router also reports ports, guesses are counted by address without the port."""
    found = [statuses(target, _guess(n, b"198.51.100.%d:4711" % n) + b"\r\n") for n in range(ALLOWED + 5)]
    assert found == [[401]] * (ALLOWED + 5)
    found = [statuses(target, _guess(n, b"203.0.113.7:%d" % (5000 + n)) + b"\r\n") for n in range(ALLOWED + 5)]
    assert found == [[401]] * ALLOWED + [[429]] * 5


def _guess(n: int, address: bytes) -> bytes:
    login = b64encode(b"ops:guess-%d" % n)
    return b"GET /board HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: %b\r\nAuthorization: Basic %b\r\n" % (address, login)


REFUSED = {
    "no host": PUSH.replace(b"Host: a\r\n", b""),
    "two hosts": PUSH.replace(b"Host: a\r\n", b"Host: a\r\nHost: b\r\n"),
    "odd host": PUSH.replace(b"Host: a", b"Host: a/b@c"),
    "absolute address": PUSH.replace(b"POST /push", b"POST http://a/push"),
    "fragment": PUSH.replace(b"POST /push", b"POST /push#x"),
    "HTTP/2.0": PUSH.replace(b"HTTP/1.1", b"HTTP/2.0"),
    "chunked HTTP/1.0": (AUTHENTIC + CHUNKED + b"\r\n").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "another coding": (AUTHENTIC + CHUNKED + b"\r\n").replace(b"chunked", b"gzip, chunked"),
    "HTTP/0.9": b"GET /push\r\n\r\n",
    "too many headers": AUTHENTIC + LENGTH + b"X: y\r\n" * MAX_HEADERS + b"\r\n" + BODY,
    "too long a header": NOTHING.replace(b"Host", b"X: " + b"y" * MAX_OVERHEAD + b"\r\nHost"),
    "length and chunks": AUTHENTIC + LENGTH + CHUNKED + b"\r\n",
}
"""Requests that a router may read differently than we do, or whose headers are too long."""


def test_requests_that_servers_read_differently_are_refused(shared: Target) -> None:
    """Each of these requests is answered with 400, and its connection ends."""
    found = {name: _heads(shared, request, 2) for name, request in REFUSED.items()}
    assert {name: [head[9:12] for head in heads] for name, heads in found.items()} == {
        name: [b"400"] for name in REFUSED
    }
    assert [name for name, [head] in found.items() if b"connection: close" not in head] == []


def test_refusals_of_the_parser_carry_the_headers_of_every_answer(shared: Target) -> None:
    """The answer to invalid HTTP has the security headers of every answer, each once."""
    [head] = _heads(shared, b"GET / HTTP/9\r\n\r\n", 1)
    names = [each.partition(b":")[0].decode() for each in head.split(b"\r\n")[1:-2]]
    assert {name.lower() for name in EVERYWHERE} < set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "behind", [b"\x00 no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"], ids=["garbage", "refused head"]
)
def test_garbage_behind_an_event_does_not_take_its_answer(behind: bytes, shared: Target) -> None:
    """An event that is followed by an invalid request is answered before the connection ends."""
    assert statuses(shared, PUSH + behind, 2) == [202]


def test_no_refusal_is_logged_as_an_error(target: Target) -> None:
    """Refused requests leave no error of a library in the log."""
    for request in (
        b"GET / HTTP/9\r\n\r\n",
        PUSH + b"\x00\r\n\r\n",
        UPGRADE,
        b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    ):
        statuses(target, request)
    lines = [json.loads(each) for each in target.log.read_text().splitlines()]
    assert {each["event"] for each in lines} <= {"web_listening", "push_accepted"}

"""Attacks on the connections of a running web process, during which events must still be accepted."""

import socket
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis

from callkeeper.calls.store.attempt_limiter import ALLOWED
from tests.audit.conftest import Target, web_process
from tests.audit.raw_requests import PUSH_KEY, TOKEN
from tests.harness.desk_tokens import give_token
from tests.people.providers import ProviderProcess, settings
from tests.waiting import until

FILES = 160
"""Leaves 32 connections to a web process: 24 may serve other things than events, and 12 one token's streams."""

ROOM = 32
BODY = b'{"Type":"CallStart","VoiceId":"voice-1","InstitutionKey":"cu-1"}'
HEAD = b"POST /push HTTP/1.1\r\nHost: a\r\nX-Push-Key: %b\r\n" % PUSH_KEY.encode()
PUSH = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


@contextmanager
def line(target: Target) -> Iterator[socket.socket]:
    """Connect to a web process."""
    with socket.create_connection(("127.0.0.1", target.port), 10) as connection:
        yield connection


def statuses(target: Target, request: bytes) -> list[int]:
    """Send a request over a new connection; return the status of its answer."""
    with line(target) as connection:
        connection.sendall(request)
        return [int(connection.recv(1 << 16)[9:12])]


def test_streams_of_a_token_have_a_cap(redis_url: str, tmp_path: Path) -> None:
    """A token may open a limited number of streams; further ones get 429 until one has ended."""
    with web_process(redis_url, tmp_path, files=FILES) as target, ExitStack() as stack:
        assert Counter(_open_streams(target, stack, 14, TOKEN)) == {200: 12, 429: 2}
        assert statuses(target, PUSH) == [202]
        stack.close()
        until(lambda: _open_streams(target, stack, 1, TOKEN) == [200], 20, "a place that a stream has left")


def test_room_is_kept_for_events(redis_url: str, tmp_path: Path) -> None:
    """Streams of many tokens leave connections for events and health checks; further streams get 503."""
    tokens = tuple(f"ckt_{n}aQ7zk29mLp0XwEr4-bQ7zk29mLp0XwEr4" for n in "abc")
    with Redis.from_url(redis_url) as redis:
        for token in tokens:
            give_token(redis, f"t-{token[4]}", token)
    with web_process(redis_url, tmp_path, files=FILES) as target, ExitStack() as stack:
        found = Counter(status for token in tokens for status in _open_streams(target, stack, 12, token))
        assert found == {200: 24, 503: 12}
        assert statuses(target, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") == [200]
        assert statuses(target, PUSH) == [202]


def test_half_sent_requests_take_no_room(redis_url: str, tmp_path: Path) -> None:
    """Requests whose body is missing keep nobody out, whoever sends them: others are still answered."""
    half = b"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1234"
    people = settings(ProviderProcess(1, "http://127.0.0.1:1", ""), "https://desk")
    with web_process(redis_url, tmp_path, files=FILES, **people) as target, ExitStack() as stack:
        for _ in range(ROOM - 4):
            stack.enter_context(line(target)).sendall(half)
        assert statuses(target, half + b"56789") == [401]
        assert statuses(target, b"GET /desk/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n") == [200]
        assert statuses(target, PUSH) == [202]


def _open_streams(target: Target, stack: ExitStack, times: int, token: str) -> list[int]:
    request = b"GET /desk/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %b\r\n\r\n" % token.encode()
    found = []
    for _ in range(times):
        connection = stack.enter_context(line(target))
        connection.sendall(request)
        found.append(int(connection.recv(1 << 16)[9:12]))
    return found


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

"""What people read when `REDIS_URL` leads to no Redis that can be used: the doctor and every command say it alike."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from callkeeper.app.cli import main
from callkeeper.app.connections import worker_redis
from callkeeper.app.doctor.redis_server import store_findings
from callkeeper.app.redis_location import parse_location


class Closing(BaseRequestHandler):
    """Closes a connection without an answer."""


class Http(BaseRequestHandler):
    """Answers as a web server does that does not understand the request."""

    def handle(self) -> None:
        """Answer, and wait until the client leaves."""
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        with suppress(OSError):
            while self.request.recv(1024):
                pass


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    """Run servers that are no Redis; return their addresses."""
    with ThreadingTCPServer(("127.0.0.1", 0), Closing) as closing, ThreadingTCPServer(("127.0.0.1", 0), Http) as http:
        for server in (closing, http):
            Thread(target=server.serve_forever, daemon=True).start()
        yield {"closing": f"127.0.0.1:{closing.server_address[1]}", "http": f"127.0.0.1:{http.server_address[1]}"}
        for server in (closing, http):
            server.shutdown()


@pytest.mark.parametrize(
    ("url", "what", "advice"),
    [
        ("redis://no-such-host.invalid/0", "does not answer: name not found", "Correct the host in REDIS_URL."),
        ("redis://127.0.0.1:1/0", "does not answer: connection refused", "Start it, or correct host and port"),
        ("redis://{closing}/0", "does not answer: connection broken", "redis:// is for a port without TLS"),
        pytest.param(
            "rediss://{redis}/0",
            "does not answer: timed out",
            "rediss:// is for a port with TLS",
            marks=pytest.mark.night,  # it waits for twelve seconds
        ),
        ("rediss://{http}/0", "does not answer: no TLS on this port", "rediss:// is for a port with TLS"),
        ("redis://{http}/0", "is no Redis: something else answers", "Correct host and port in REDIS_URL."),
        ("redis://{redis}/99", "has no such database", "Correct the number at the end of REDIS_URL."),
        ("redis://canary:canary-word@{redis}/0", "refuses the login", "Correct user and password in REDIS_URL."),
        ("unix:///no/such.sock", "does not answer: no such file", "Start it, or correct the path"),
        ("redis+sentinel://{redis}/calls/0", "is no sentinel", "a server itself is redis://"),
    ],
)
async def test_redis_that_cannot_be_used_is_named_by_cause(
    redis_url: str, places: dict[str, str], url: str, what: str, advice: str
) -> None:
    """The cause and what to do about it, without the name of a class and without a password."""
    text = url.format(redis=urlsplit(redis_url).netloc, **places)
    place = parse_location(text)
    async with worker_redis(place) as redis:
        [finding] = await store_findings(redis, place)
    assert finding.detail == f"{place.address} {what}"
    assert advice in finding.remedy
    command = await asyncio.to_thread(CliRunner(env={"REDIS_URL": text}).invoke, main, ["pauses"])
    assert f"Redis at {place.address} {what}. {finding.remedy}\n" in command.output
    assert "canary-word" not in f"{finding.detail} {command.output}"

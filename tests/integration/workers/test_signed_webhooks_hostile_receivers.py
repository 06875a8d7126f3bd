"""A receiver of outcomes that does what it can to a worker: nothing of it costs more than a moment."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from callkeeper.calls.outcome_messages import TestMessage
from callkeeper.service import Secret
from tests.harness.courier import SECRET
from workers.signed_webhooks import Answer, Posted, WebhookClient

Behave = Callable[[asyncio.StreamWriter], Awaitable[None]]
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@asynccontextmanager
async def receiver(behave: Behave) -> AsyncIterator[str]:
    """Run a receiver that reads a post and then behaves so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await behave(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def post(behave: Behave) -> Posted:
    """Post one message to such a receiver, with a deadline of a second."""
    async with receiver(behave) as url:
        client = replace(WebhookClient.open(url, [Secret(SECRET)]), deadline_s=1.0)
        try:
            return await client.post("callkeeper.test.1", TestMessage(timestamp=NOW))
        finally:
            await client.aclose()


def endless(head: bytes, more: bytes) -> Behave:
    """Return a behaviour: a beginning, then the same for ever."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(more)
            await writer.drain()

    return behave


def once(answer: bytes) -> Behave:
    """Return a behaviour: one answer."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return behave


def most_kib(*, is_anew: bool = False) -> int:
    """Return how much memory this process has taken at most: ever, or since it was last asked anew."""
    if is_anew:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


async def silence(_writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.sleep(30)


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send a header by the byte."""
    for byte in b"HTTP/1.1 204 No Content\r\nX-Slow: " + b"x" * 1000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


HUGE = b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"


@pytest.mark.parametrize(
    ("behave", "answer", "status"),
    [
        (endless(HUGE, b"x" * 2**20), Answer.TAKEN, 200),
        (endless(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", b"\x1f\x8bgarbage" * 999), Answer.TAKEN, 200),
        (endless(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 999 + b"\r\n"), Answer.AWAY, None),
        (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), Answer.AWAY, None),
        (endless(b"", b"\x00\xff" * 4096), Answer.AWAY, None),
        (once(b"HTTP/1.1 abc def\r\n\r\n"), Answer.AWAY, None),
        (once(b""), Answer.AWAY, None),
        (once(b"HTTP/1.1 200 Re\xe7u\r\nContent-Length: 0\r\n\r\n"), Answer.TAKEN, 200),
        (once(b"HTTP/1.1 429 x\r\nRetry-After: \xc2\xb9e9\r\nContent-Length: 0\r\n\r\n"), Answer.AWAY, 429),
        (once(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"), Answer.AWAY, 410),
        (silence, Answer.AWAY, None),
        (drip, Answer.AWAY, None),
    ],
    ids=["1 GB", "gzip", "headers", "100", "noise", "status", "closed", "reason", "retry", "gone", "silent", "drip"],
)
async def test_receiver_cannot_hold_a_worker_up(behave: Behave, answer: Answer, status: int | None) -> None:
    """Every answer is judged by its status alone, within the deadline, without its body."""
    before_kib, began_s = most_kib(is_anew=True), time.monotonic()
    posted = await post(behave)
    assert (posted.answer, posted.status) == (answer, status)
    assert (posted.error is None) is (status is not None)
    assert posted.retry_after_s == 0
    assert time.monotonic() - began_s < 10
    assert most_kib() - before_kib < 64 * 1024


@pytest.mark.parametrize(
    ("asked", "wait_s"),
    [
        (b"Retry-After: 90", 90),
        (b"Retry-After: 999999", 3600),
        (b"Date: Sat, 21 Nov 2026 12:00:00 GMT\r\nRetry-After: Sat, 21 Nov 2026 12:05:00 GMT", 300),
    ],
    ids=["seconds", "too long", "date"],
)
async def test_receiver_may_ask_for_a_wait(asked: bytes, wait_s: float) -> None:
    """In seconds or until a date by its own clock, for an hour at most."""
    posted = await post(once(b"HTTP/1.1 503 x\r\n%b\r\nContent-Length: 0\r\n\r\n" % asked))
    assert (posted.answer, posted.retry_after_s) == (Answer.AWAY, wait_s)


async def test_receiver_cannot_stop_later_posts_by_a_cookie() -> None:
    """No cookie is kept: one that is not ASCII could not be sent, and each later post would fail before it leaves."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        cookies = b"Set-Cookie: one=1\r\nSet-Cookie: two=\xff\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n%b\r\n" % cookies)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        client = WebhookClient.open(url, [Secret(SECRET)])
        posted = [await client.post(f"callkeeper.test.{n}", TestMessage(timestamp=NOW)) for n in range(2)]
        await client.aclose()
    assert [each.answer for each in posted] == [Answer.TAKEN] * 2
    assert len(heads) == 2
    assert not any(b"cookie" in head.lower() for head in heads)


async def test_answer_that_a_library_cannot_bear_is_no_answer() -> None:
    """Whatever it raises: an error that passed would leave the message to be posted every few seconds, and unlogged."""

    def fail(_request: httpx.Request) -> httpx.Response:
        raise UnicodeEncodeError("ascii", "\xff", 0, 1, "ordinal not in range(128)")

    client = replace(
        WebhookClient.open("https://core.example/", [Secret(SECRET)]),
        client=httpx.AsyncClient(transport=httpx.MockTransport(fail)),
    )
    posted = await client.post("callkeeper.test.1", TestMessage(timestamp=NOW))
    await client.aclose()
    assert (posted.answer, posted.status, posted.error) == (Answer.AWAY, None, "connection broken")

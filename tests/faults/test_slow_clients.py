"""Five hundred connections that send one byte a second are cut and do not slow down others."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest

from callkeeper_sandbox.demo.fleet import Fleet
from tests.harness.processes import PUSH_KEY, start_web, web_url

SLOW = 500
ROUNDS = 5
PUSHES = 400
AT_ONCE = 4
SLICES = 40
"""The slow connections send in slices over a second, because one burst would load the test process too."""

NOT_HELD_UP_MS = 100.0
"""Below this, pushes wait for other processes of a busy machine, not for slow clients, which take a second for a byte."""

BODY = b'{"Type":"CallStart","VoiceId":"voice-1","InstitutionKey":"cu-1"}'
HEAD = b"POST /push HTTP/1.1\r\nHost: a\r\nX-Push-Key: %b\r\nContent-Length: %d\r\n" % (PUSH_KEY.encode(), len(BODY))
WHOLE = HEAD + b"\r\n" + BODY
BEGINNINGS = (
    b"",  # the request line is slow
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ",  # the headers
    HEAD + b"\r\n",  # the body
    HEAD.replace(b"Content-Length: %d\r\n" % len(BODY), b"Transfer-Encoding: chunked\r\n\r\nff\r\n"),  # a chunk
)
TRICKLE = b"x" * 60


@pytest.fixture
def port(redis_url: str, tmp_path: Path) -> Iterator[int]:
    """Run ``callkeeper web`` and return its port."""
    with Fleet(tmp_path) as fleet:
        yield int(web_url(start_web(fleet, redis_url)).rpartition(":")[2])


class Slow:
    """Connections that send one byte a second each."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.began = 0.0

    async def open(self) -> None:
        """Open all connections, and send the beginning of each request."""
        self.began = time.monotonic()
        for _, beginning in zip(range(SLOW), cycle(BEGINNINGS), strict=False):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(beginning)
            self.lines.append((reader, writer))

    async def trickle(self) -> None:
        """Send one byte a second on each connection, a slice of the connections at a time."""
        for byte in TRICKLE:
            for n in range(SLICES):
                for _, writer in self.lines[n::SLICES]:
                    if not writer.is_closing():
                        writer.write(bytes([byte]))
                await asyncio.sleep(1 / SLICES)

    async def ends(self) -> list[float]:
        """Wait until every connection was closed, and return after how many seconds each was."""
        return list(await asyncio.gather(*(self._end(reader) for reader, _ in self.lines)))

    async def _end(self, reader: asyncio.StreamReader) -> float:
        with suppress(ConnectionError):
            await reader.read()
        return time.monotonic() - self.began

    def close(self) -> None:
        """Close all connections."""
        for _, writer in self.lines:
            writer.transport.abort()


async def p99_ms(port: int) -> float:
    """Send pushes over a few connections; return the 99th percentile of their times."""
    took = await asyncio.gather(*(_pushes(port, PUSHES // AT_ONCE) for _ in range(AT_ONCE)))
    return sorted(ms for times in took for ms in times)[PUSHES * 99 // 100 - 1]


async def _pushes(port: int, times: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took = []
    for _ in range(times):
        began = time.perf_counter()
        writer.write(WHOLE)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 202 "), head
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        took.append((time.perf_counter() - began) * 1000)
    writer.close()
    return took


async def test_slow_clients_hold_up_nobody_and_are_cut(port: int) -> None:
    """A7: 500 slow connections at most double the p99 of other pushes, and all of them are closed."""
    await p99_ms(port)  # warm up
    quiet, beside = [], []
    for n in range(ROUNDS):
        quiet.append(await p99_ms(port))
        slow = Slow(port)
        await slow.open()
        trickling = asyncio.create_task(slow.trickle())
        beside.append(await p99_ms(port))
        ends = await slow.ends() if n == ROUNDS - 1 else []
        trickling.cancel()
        slow.close()
    ratio = statistics.median(beside) / statistics.median(quiet)
    print(f"p99 {statistics.median(quiet):.1f} ms undisturbed, {statistics.median(beside):.1f} ms beside: {ratio:.2f}x")  # noqa: T201
    assert len(ends) == SLOW
    is_held_up = ratio > 2 and statistics.median(beside) >= NOT_HELD_UP_MS
    assert not is_held_up, f"{quiet} ms undisturbed, {beside} ms beside {SLOW} slow connections"

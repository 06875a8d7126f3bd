"""Five hundred connections that send a byte a second: others do not notice, and all of them are cut."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle

import pytest

KEY = "canary-push-1f8b32d9"
SLOW = 500
ROUNDS = 5
PUSHES = 400
AT_ONCE = 4
SLICES = 40
"""The slow ones do not all send in the same moment: that would be a burst, and ours to send as well."""

BODY = b'{"Type":"CallStart","VoiceId":"voice-1","InstitutionKey":"cu-1"}'
HEAD = b"POST /push HTTP/1.1\r\nHost: a\r\nX-Push-Key: %b\r\nContent-Length: %d\r\n" % (KEY.encode(), len(BODY))
WHOLE = HEAD + b"\r\n" + BODY
BEGINNINGS = (
    b"",  # trickles its request line
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ",  # its headers
    HEAD + b"\r\n",  # its body
    HEAD.replace(b"Content-Length: %d\r\n" % len(BODY), b"Transfer-Encoding: chunked\r\n\r\nff\r\n"),  # a chunk
)
TRICKLE = b"x" * 60


@pytest.fixture
def port(redis_url: str) -> Iterator[int]:
    """Run ``callkeeper web`` and return where."""
    environ = {"PATH": os.environ["PATH"], "REDIS_URL": redis_url, "CALLKEEPER_PUSH_HEADERS": f"X-Push-Key: {KEY}"}
    command = [sys.executable, "-m", "callkeeper", "web", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  (ours)
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)  # noqa: S607
        try:
            yield int(url.rpartition(":")[2])
        finally:
            process.terminate()
            process.wait(10)
            drain.wait(10)


class Slow:
    """Connections that send a byte a second each, from the moment they are open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.began = 0.0

    async def open(self) -> None:
        """Connect them all, and begin."""
        self.began = time.monotonic()
        for _, beginning in zip(range(SLOW), cycle(BEGINNINGS), strict=False):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(beginning)
            self.lines.append((reader, writer))

    async def trickle(self) -> None:
        """Send on, a slice of the connections at a time, each once a second."""
        for byte in TRICKLE:
            for n in range(SLICES):
                for _, writer in self.lines[n::SLICES]:
                    if not writer.is_closing():
                        writer.write(bytes([byte]))
                await asyncio.sleep(1 / SLICES)

    async def ends(self) -> list[float]:
        """Wait until every connection was ended, and return after how many seconds."""
        return list(await asyncio.gather(*(self._end(reader) for reader, _ in self.lines)))

    async def _end(self, reader: asyncio.StreamReader) -> float:
        with suppress(ConnectionError):
            await reader.read()
        return time.monotonic() - self.began

    def close(self) -> None:
        """Leave."""
        for _, writer in self.lines:
            writer.transport.abort()


async def p99_ms(port: int) -> float:
    """Push for a while over a few connections; return what one push in a hundred takes at least."""
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
    """A7: beside 500 connections at a byte a second the p99 of others stays within twice the undisturbed; all are cut."""
    await p99_ms(port)  # whatever is built at the first time
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
    assert ratio <= 2, f"{quiet} ms undisturbed, {beside} ms beside {SLOW} slow connections"

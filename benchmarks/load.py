"""Push events to a receiver and measure its answers: ``python -m benchmarks.load URL SECONDS RATE``.

With rate 0, every connection sends its next event as soon as the last one is answered (saturation). With a rate,
each event has a due time that does not depend on the answers. Latency counts from the due time, so it includes the
delay that a stalled receiver causes for later events. The program prints one line of JSON.
"""

import asyncio
import sys
import time
from collections import deque
from urllib.parse import urlsplit

import httptools
import msgspec
import uvloop

PUSH_KEY = "bench-push-key-0123456789abcdef"
CONNECTIONS = 50

_BODY = (
    b'{"Type":"CallStart","StartDateTime":"2026-11-21T12:00:00Z","VoiceId":"%b","AlternateVoiceId":"alternate-%b",'
    b'"PhoneNumber":"5551000010","DestinationPhoneNumber":"5550000000","IsTest":null,"InstitutionKey":"cu-1"}'
)
_HEAD = (
    b"POST %b HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nx-push-key: %b\r\ncontent-length: %d\r\n\r\n"
)


class Report(msgspec.Struct):
    """The events sent and the answers. Times are in milliseconds, sorted."""

    seconds: float
    accepted: int
    refused: int
    times_ms: list[float]


class Sender:
    """State that all connections share: the events to send, and the answers."""

    def __init__(self, path: str) -> None:
        self._path = path.encode()
        self._next = 0
        self.times_s: list[float] = []
        self.refused = 0
        self.idle: deque[Line] = deque()
        self.is_over = False

    def event(self) -> bytes:
        """Return the next event as a request."""
        self._next += 1
        voice_id = b"push-%09d" % self._next
        body = _BODY % (voice_id, voice_id)
        return _HEAD % (self._path, PUSH_KEY.encode(), len(body)) + body

    def answered(self, line: "Line", took_s: float, status: int) -> None:
        """Note an answer."""
        self.times_s.append(took_s)
        self.refused += status != 202


class Line(asyncio.Protocol):
    """One kept-alive connection: one event at a time."""

    def __init__(self, sender: Sender, *, goes_on: bool) -> None:
        self._sender = sender
        self._goes_on = goes_on
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.WriteTransport
        self._since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport  # type: ignore[assignment]  # of a stream
        if self._goes_on:
            self.send(time.perf_counter())
        else:
            self._sender.idle.append(self)

    def send(self, due_s: float) -> None:
        """Send the next event."""
        self._since_s = due_s
        self._transport.write(self._sender.event())

    def data_received(self, data: bytes) -> None:
        """Take an answer, or a part of it."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Record the answer, and continue."""
        self._sender.answered(self, time.perf_counter() - self._since_s, self._parser.get_status_code())
        if not self._goes_on:
            self._sender.idle.append(self)
        elif not self._sender.is_over:
            self.send(time.perf_counter())


async def _run(url: str, seconds: float, rate: float) -> Report:
    place, loop = urlsplit(url), asyncio.get_running_loop()
    sender = Sender(place.path)
    begin_s = time.perf_counter()
    for _ in range(CONNECTIONS):
        await loop.create_connection(lambda: Line(sender, goes_on=not rate), str(place.hostname), int(place.port or 0))
    if not rate:
        await asyncio.sleep(seconds)
    else:
        await _by_the_clock(sender, int(seconds * rate), 1 / rate)
    sender.is_over = True
    took_s = time.perf_counter() - begin_s
    times_ms = sorted(took * 1000 for took in sender.times_s)
    return Report(took_s, len(times_ms) - sender.refused, sender.refused, times_ms)


async def _by_the_clock(sender: Sender, count: int, gap_s: float) -> None:
    """Send each event when it is due, or as soon as a connection is free."""
    begin_s, sent = time.perf_counter(), 0
    while len(sender.times_s) < count:
        due = min(count, int((time.perf_counter() - begin_s) / gap_s) + 1)
        while sent < due and sender.idle:
            sender.idle.popleft().send(begin_s + sent * gap_s)
            sent += 1
        # uvloop rounds a shorter sleep to none, and the sender would take a whole core from what is measured.
        await asyncio.sleep(0.001)


if __name__ == "__main__":
    report = uvloop.run(_run(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")

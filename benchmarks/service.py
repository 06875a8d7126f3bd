"""A fast stand-in that is not the bottleneck: it sends answers of ``sandbox`` from templates, over a bare protocol.

    python -m benchmarks.service --latency-ms 50 --limit 15

It does not limit the checks of a call or verify tokens. With a limit, it answers 429 to requests beyond that number
within any second; logins and the list of institutions do not count. ``GET /bench`` returns the counts of requests.
``POST /bench/calls?count=10&assigned=yes`` begins calls; ``POST /bench/start`` begins calls and pushes each. It treats
an unknown id as an assigned call. With ``anew=yes`` all earlier calls end.
"""

import argparse
import asyncio
import sys
import time
from bisect import bisect_left
from collections import Counter, deque
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import httptools
import msgspec
import uvloop

from benchmarks.answers import Answers, Known
from benchmarks.starts import Starts, start_calls
from callkeeper_sandbox.service.server import address, bind

_HEAD = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class Service:
    """The stand-in's calls, and its counts of requests."""

    def __init__(self, latency_s: float, limit: int = 0) -> None:
        self.latency_s = latency_s
        self._limit = limit
        self._lately = deque[float]()
        self.answered_at: list[float] = []
        self.refused_at: list[float] = []
        self.answers = Answers.prepare()
        self.counts = Counter[str]()
        self.assigned_at: dict[str, float] = {}
        self.checked_at: list[tuple[str, float]] = []
        self._starts: Starts | None = None
        self._starting: asyncio.Task[None] | None = None
        self._calls: dict[bytes, Known] = {}
        self._begun: list[tuple[str, Known]] = []
        self._untold = msgspec.json.encode(datetime.now(UTC)).strip(b'"')

    def refuses(self, path: bytes) -> bool:
        """Return whether a request exceeds the limit. Without a limit nothing is counted."""
        if not self._limit or not path.startswith(b"/external/calls/"):
            return False
        now = time.time()
        while self._lately and self._lately[0] <= now - 1:
            self._lately.popleft()
        if len(self._lately) >= self._limit:
            self.refused_at.append(now)
            return True
        self._lately.append(now)
        self.answered_at.append(now)
        return False

    def answer(self, path: bytes, query: bytes, body: bytes) -> tuple[bytes, float]:
        """Return the answer to a request, and after how many seconds to send it."""
        if path.endswith(b"/details"):
            voice_id = path.rsplit(b"/", 2)[1]
            if query.endswith(b"true"):
                self.counts["check"] += 1
                self.checked_at.append((voice_id.decode(), time.time()))
            else:
                self.counts["read"] += 1
            call = self._calls.get(voice_id) or Known(voice_id, self._untold, is_assigned=True)
            return self.answers.details(call), self.latency_s
        match path:
            case b"/external/calls/assign":
                return self._assign(body), self.latency_s
            case b"/external/calls/queue":
                return self._queue(query), self.latency_s
            case b"/external/institutions":
                return self.answers.institutions, 0.0
            case b"/external/token/request":
                return self.answers.token, 0.0
            case b"/bench/calls":
                return self._begin(query), 0.0
            case b"/bench/start":
                return self._start(query), 0.0
            case b"/bench":
                return self._tell(), 0.0
        return self.answers.base, self.latency_s

    def _assign(self, body: bytes) -> bytes:
        self.counts["assign"] += 1
        voice_id: str = msgspec.json.decode(body)["voiceId"]
        self.assigned_at.setdefault(voice_id, time.time())
        call = self._calls.get(voice_id.encode())
        if call is not None:
            call.is_assigned = True
            call.entry = self.answers.listed(call)
        return msgspec.json.encode({"success": True, "voiceId": voice_id})

    def _queue(self, query: bytes) -> bytes:
        self.counts["queue"] += 1
        asked = parse_qs(query.decode())
        skip, size = int(asked["continueFrom"][0]), int(asked["pageSize"][0])
        first = bisect_left(self._begun, asked.get("startDate", [""])[0], key=lambda begun: begun[0])
        entries = (call.entry for _, call in self._begun[first + skip : first + skip + size])
        return b'{"success":true,"phoneCalls":[%b]}' % b",".join(entries)

    def _begin(self, query: bytes) -> bytes:
        """Begin calls now, and return their ids. With ``anew``, earlier calls end."""
        asked = parse_qs(query.decode())
        if "anew" in asked:
            self._calls.clear()
            self._begun.clear()
        is_assigned = "assigned" in asked
        return msgspec.json.encode([self._begin_one(is_assigned=is_assigned) for _ in range(int(asked["count"][0]))])

    def _begin_one(self, *, is_assigned: bool = False) -> str:
        voice_id = b"bench-%09d" % len(self._begun)
        started_at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        call = Known(voice_id, started_at.encode(), is_assigned)
        call.entry = self.answers.listed(call)
        self._calls[voice_id] = call
        self._begun.append((started_at, call))
        return voice_id.decode()

    def _start(self, query: bytes) -> bytes:
        """Start ``count`` calls, ``rate`` per second, and push each to the receiver at ``url``."""
        asked = parse_qs(query.decode())
        url = asked["url"][0]
        self._starts = Starts(urlsplit(url).path, self._begin_one)
        self.assigned_at.clear()
        work = start_calls(self._starts, url, int(asked["count"][0]), float(asked["rate"][0]))
        self._starting = asyncio.ensure_future(work)
        return b"{}"

    def _tell(self) -> bytes:
        told = {
            "counts": self.counts,
            "assigned_at": self.assigned_at,
            "pushed_at": self._starts.pushed_at if self._starts else {},
            "checked_at": self.checked_at,
            "answered_at": self.answered_at,
            "refused_at": self.refused_at,
        }
        return msgspec.json.encode(told)


class Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._url = self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to send answers with."""
        self._transport = transport  # type: ignore[assignment]  # of a stream server

    def data_received(self, data: bytes) -> None:
        """Parse the data; close the connection if it is not HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        """Append a piece of the address."""
        self._url += url

    def on_body(self, body: bytes) -> None:
        """Append a piece of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Answer now, or after the latency."""
        path, _, query = self._url.partition(b"?")
        if self._service.refuses(path):
            status, body, after_s = 429, b"", 0.0
        else:
            status, (body, after_s) = 200, self._service.answer(path, query, self._body)
        self._url = self._body = b""
        answer = _HEAD % (status, len(body)) + body
        if after_s:
            self._loop.call_later(after_s, self._transport.write, answer)
        else:
            self._transport.write(answer)


async def _serve(latency_s: float, limit: int) -> None:
    service = Service(latency_s, limit)
    sock = bind()
    server = await asyncio.get_running_loop().create_server(lambda: Line(service), sock=sock)
    sys.stdout.write(f"listening on {address(sock)}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="A stand-in for benchmarks.")
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--limit", type=int, default=0, help="requests within a second; 0: any number")
    asked = parser.parse_args()
    uvloop.run(_serve(asked.latency_ms / 1000, asked.limit))


if __name__ == "__main__":
    main()

"""A fast stand-in that is not the bottleneck: it fills ids into answers of ``sandbox``, over a bare protocol.

``python -m benchmarks.service LATENCY_MS``. It neither limits the checks of a call nor verifies tokens, and every call
is assigned. ``GET /bench`` returns what was asked; ``POST /bench/calls?count=10`` begins calls, and with ``anew=yes``
all earlier calls end.
"""

import asyncio
import sys
import time
from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import httptools
import msgspec
import uvloop

from callkeeper_sandbox.service import population, views
from callkeeper_sandbox.service.answers import Base, TokenAnswer
from callkeeper_sandbox.service.server import address, bind
from callkeeper_sandbox.service.state import PushSettings
from callkeeper_sandbox.service.world import World, utc_now

KEY = "cu-1"
"""The institution of every call."""

PERSON = "cu-1-m10"
"""The only candidate of every call, to whom it is assigned."""

STATUS = "CheckRiskAndAuthentication"
"""The service's answer about a call that is being watched."""

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_VOICE = "00000000-feed-4000-8000-000000000000"
_STARTED_AT = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
_TOKEN = "5eed5eed-0000-4000-8000-000000000000"  # noqa: S105  (of a stand-in)


class Service:
    """The stand-in's calls, and what was asked of it."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self.counts = Counter[str]()
        self._checked_at: list[tuple[str, float]] = []
        self._begun: list[tuple[str, bytes]] = []
        world = World(utc_now)
        population.settle(world, PushSettings())
        call = world.add_call(KEY, population.phone(KEY, 10), voice_id=_VOICE, started_at=_STARTED_AT)
        call.person_id, call.core_username, call.status = PERSON, "bench", STATUS
        record: dict[str, Any] = msgspec.to_builtins(views.phone_call(world, call))
        base = msgspec.to_builtins(Base())
        encode = msgspec.json.encode
        self._details = encode({**base, "phoneCall": record, **record})
        self._entry = encode(views.queue_entry(world, call))
        owned = [world.state.institutions[KEY].record]  # callkeeper acts for every listed institution
        self._institutions = encode({"success": True, "institutions": owned})
        self._token = encode(
            TokenAnswer(token=_TOKEN, expires_on=datetime(2100, 1, 1, tzinfo=UTC), institution_keys=[KEY])
        )
        self._base = encode(base)
        self._gap = encode(_STARTED_AT).strip(b'"')

    def answer(self, path: bytes, query: bytes) -> tuple[bytes, float]:
        """Return the answer to a request, and after how many seconds to send it."""
        if path.endswith(b"/details"):
            voice_id = path.rsplit(b"/", 2)[1]
            kind = "check" if query.endswith(b"true") else "read"
            self.counts[kind] += 1
            if kind == "check":
                self._checked_at.append((voice_id.decode(), time.time()))
            return self._details.replace(_VOICE.encode(), voice_id), self._latency_s
        match path:
            case b"/external/calls/queue":
                return self._queue(parse_qs(query.decode())), self._latency_s
            case b"/external/institutions":
                return self._institutions, 0.0
            case b"/external/token/request":
                return self._token, 0.0
            case b"/bench/calls":
                return self._begin(parse_qs(query.decode())), 0.0
            case b"/bench":
                return msgspec.json.encode({"counts": self.counts, "checked_at": self._checked_at}), 0.0
        return self._base, self._latency_s

    def _queue(self, asked: dict[str, list[str]]) -> bytes:
        self.counts["queue"] += 1
        skip, size = int(asked["continueFrom"][0]), int(asked["pageSize"][0])
        first = bisect_left(self._begun, asked.get("startDate", [""])[0], key=lambda begun: begun[0])
        entries = (entry for _, entry in self._begun[first + skip : first + skip + size])
        return b'{"success":true,"phoneCalls":[%b]}' % b",".join(entries)

    def _begin(self, asked: dict[str, list[str]]) -> bytes:
        if "anew" in asked:
            self._begun.clear()
        return msgspec.json.encode([self._begin_one() for _ in range(int(asked["count"][0]))])

    def _begin_one(self) -> str:
        voice_id = f"bench-{len(self._begun):09}"
        started_at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        entry = self._entry.replace(_VOICE.encode(), voice_id.encode()).replace(self._gap, started_at.encode())
        self._begun.append((started_at, entry))
        return voice_id


class Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url = b""

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

    def on_message_complete(self) -> None:
        """Answer now, or after the latency."""
        path, _, query = self._url.partition(b"?")
        self._url = b""
        body, after_s = self._service.answer(path, query)
        answer = _HEAD % len(body) + body
        if after_s:
            asyncio.get_running_loop().call_later(after_s, self._transport.write, answer)
        else:
            self._transport.write(answer)


async def _serve(latency_s: float) -> None:
    service = Service(latency_s)
    sock = bind()
    server = await asyncio.get_running_loop().create_server(lambda: Line(service), sock=sock)
    sys.stdout.write(f"listening on {address(sock)}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(float(sys.argv[1]) / 1000))

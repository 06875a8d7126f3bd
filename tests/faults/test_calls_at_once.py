"""Ten thousand calls become due at the same moment."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Listed
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import Asgi
from workers.shift import IN_FLIGHT

CALLS = 10_000
WARM = 2_000
"""After this many reads all caches are filled."""

GROWTH_MB = 24
PATIENCE_S = 200.0
"""The shift may last longer than usual, so that a busy machine does not fail the test."""


class BusyService(httpx.AsyncBaseTransport):
    """The sandbox, except that it answers reads of any call and counts concurrent ones."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.reads = self.at_once = self.most_at_once = 0
        self.warm_mb = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a read after other tasks have run; pass other requests on."""
        if not request.url.path.endswith("/details"):
            return await self._inner.handle_async_request(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(20):
            await asyncio.sleep(0)
        self.at_once -= 1
        self.reads += 1
        if self.reads == WARM:
            self.warm_mb = _resident_mb()
        voice_id = request.url.path.split("/")[-2]
        record = {"success": True, "phoneCall": {"phoneCallId": 1, "voiceId": voice_id, "status": "CallStarted"}}
        return httpx.Response(200, content=msgspec.json.encode(record))


@pytest.fixture
async def busy(sandbox_asgi: Asgi, redis_url: str) -> AsyncIterator[tuple[Rig, BusyService]]:
    """Return a rig on a real Redis, and its service."""
    service = BusyService(sandbox_asgi.transport)
    async with Redis.from_url(redis_url) as redis:
        yield Rig(sandbox_asgi, redis, transport=service), service


@pytest.mark.timeout(300)
async def test_shift_bounds_how_many_calls_it_moves_at_once(busy: tuple[Rig, BusyService]) -> None:
    """C13: 10,000 calls that are due at once are moved at most 256 at a time, and memory hardly grows."""
    rig, service = busy
    listed = Listed(listed_at=rig.clock.now, started_at=rig.clock.now)
    for start in range(0, CALLS, 1000):
        ids = [CallId(KEY, f"call-{n}") for n in range(start, start + 1000)]
        await asyncio.gather(*(rig.store.note(call_id, listed) for call_id in ids))
    rig.shift.shift_s = rig.shift.longest_s = PATIENCE_S
    await rig.redis.rpush(rig.store.keys.queue, "a job that waits ends an idle shift")
    await rig.shift.run()
    assert service.reads >= CALLS
    assert service.most_at_once <= IN_FLIGHT
    assert _resident_mb() - service.warm_mb < GROWTH_MB


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

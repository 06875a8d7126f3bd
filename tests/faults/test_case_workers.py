"""Workers cope with repeated shifts, steps that always fail, and nonsensical listings."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted, Verified
from callkeeper.calls.record import Reason
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import KEY, Asgi
from workers.retry_schedule import STEPS

END = Happening(Kind.END, 30)
SAID_AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
VERIFIED = Verified(person_id="p-1", validation_type="OneTimePasswordAuth", operator="ann", said_at=SAID_AT)


async def test_shifts_worked_again_repeat_no_effect(rig: Rig) -> None:
    """However often ``advance`` jobs are requeued, an enroll and a reject are sent once each (C9)."""
    call = await rig.begin_call(END, run_s=2, is_pushed=False)
    assert await rig.note(call, VERIFIED)
    for n in range(40):
        await asyncio.gather(*(rig.tick() for _ in range(5)))
        rig.stage.advance(1)
        if n == 10:
            assert await rig.note(call, Distrusted(operator="ann", said_at=SAID_AT))
    await rig.run(30)
    seen = rig.ledger(call)
    assert (seen[Operation.ENROLL], seen[Operation.REJECT_VOICE]) == (1, 1)
    assert (await rig.record(call)).life.reason is Reason.REJECTED


async def test_call_whose_step_always_raises_is_parked_and_harms_no_other(rig: Rig) -> None:
    """A call whose record cannot be read is parked after five failures; other calls are not affected (C17).

    News about a parked call (here: it is no longer listed) leads to one more attempt.
    """
    end = Happening(Kind.END, 60)
    broken, sound = rig.stage.call(end), rig.stage.call(end)
    await rig.run(2)
    member = CallId(KEY, broken.voice_id).member
    await rig.redis.hset(rig.store.keys.item(member), "rec", b'{"phase": "no phase of ours"}')
    await rig.redis.zadd(rig.store.keys.due, {member: rig.now_ms()})
    await rig.run(40)
    assert len(rig.shift.failures) == STEPS.most
    await rig.run(80)
    assert len(rig.shift.failures) <= (STEPS.most or 0) + 2
    assert (await rig.queries.attention())[member] == "parked"
    assert await rig.redis.zscore(rig.store.keys.due, member) is None
    assert (await rig.record(sound)).is_settled
    assert any(entry.what == "parked" for entry in await rig.trail(broken))
    assert [entry["event"] for entry in rig.log.entries].count("step_failed") == len(rig.shift.failures)


PAGE = 500

Pages = Callable[[int], Sequence[int]]
"""Returns the numbers of the calls that the queue shows from an offset."""


class OddQueue(httpx.AsyncBaseTransport):
    """The sandbox with a queue whose pages are odd."""

    def __init__(self, inner: httpx.AsyncBaseTransport, stage: Asgi, pages: Pages) -> None:
        self._inner = inner
        self._stage = stage
        self._pages = pages
        self.asked = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer listings, pass everything else on."""
        if not request.url.path.endswith("/queue"):
            return await self._inner.handle_async_request(request)
        self.asked += 1
        numbers = self._pages(int(request.url.params["continueFrom"]))
        return httpx.Response(200, json={"success": True, "phoneCalls": [self._entry(n) for n in numbers]})

    def _entry(self, n: int) -> dict[str, Any]:
        started_at = self._stage.clock.now.isoformat()
        return {"voiceId": f"v-{n}", "phoneNumber": "5550109999", "startDateTime": started_at, "persons": None}


@pytest.mark.parametrize(
    ("pages", "shown"),
    [
        pytest.param(lambda _: range(PAGE), PAGE, id="the same full page for ever"),
        pytest.param(lambda _: range(3), 3, id="the same short page for ever"),
        pytest.param(lambda start: range(start, min(start + PAGE, 1200)), 1200, id="full pages and a short one"),
        pytest.param(lambda start: range(max(0, start - 100), min(start + PAGE, 1200)), 1200, id="overlapping pages"),
        pytest.param(lambda start: range(start, min(start + 7, 40)), 40, id="short pages all the way"),
        pytest.param(lambda start: range(start, min(start + PAGE, 2 * PAGE)), 2 * PAGE, id="an empty last page"),
        pytest.param(lambda _: [], 0, id="nothing"),
    ],
)
async def test_full_listing_ends_and_finds_all(sandbox_asgi: Asgi, redis: Redis, pages: Pages, shown: int) -> None:
    """Whatever the pages are, a full listing ends, and every call on any page gets a note (D7)."""
    odd = OddQueue(sandbox_asgi.transport, sandbox_asgi, pages)
    rig = Rig(sandbox_asgi, redis, transport=odd)
    await rig.institutions.refresh()
    (held,) = await rig.store.claim(10)
    await rig.shift.handle(held)
    assert len(await rig.redis.keys(rig.store.keys.inbox(CallId(KEY, "v-*").member))) == shown
    assert odd.asked <= 2 + shown / min(7, max(1, shown))


async def test_call_that_moves_between_pages_is_found_by_the_next_listing(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A call that moves to a page that was read already, because another call ended, is found within a minute (D7)."""
    slipped = [False]

    def pages(start: int) -> Sequence[int]:
        numbers = list(range(PAGE + 5))
        if slipped[0]:
            numbers.remove(3)
        slipped[0] = True
        return numbers[start : start + PAGE]

    odd = OddQueue(sandbox_asgi.transport, sandbox_asgi, pages)
    rig = Rig(sandbox_asgi, redis, transport=odd)
    inbox = rig.store.keys.inbox(CallId(KEY, f"v-{PAGE}").member)
    await rig.institutions.refresh()
    (held,) = await rig.store.claim(1)
    await rig.shift.handle(held)
    assert not await rig.redis.exists(inbox), "the first listing missed it"
    for _ in range(8):
        rig.stage.advance(8)
        due = [held for held in await rig.store.claim(1000) if held.member.startswith("i:")]
        for held in due:
            await rig.shift.handle(held)
    assert await rig.redis.exists(inbox)

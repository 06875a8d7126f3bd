"""Failures of one call, one listing or one worker do not affect others."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisAway

from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.item_names import CallId, institution_member
from callkeeper.calls.record import Phase, Reason
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.last_listing import TO_THE_END_EVERY_S
from callkeeper.service import PhoneCall
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, Altered, Rig
from tests.sandbox_fixtures import Asgi
from workers.retry_schedule import STEPS
from workers.shift import Shift, StepsFailed

END = Happening(Kind.END, 60)
PERSON = [{"personId": "p-1", "name": "A"}]


class Broken(Altered):
    """A service whose answers about one call raise what nobody expects."""

    def __init__(self, rig: Rig, voice_id: str) -> None:
        super().__init__(rig)
        self._voice_id = voice_id

    async def details(self, institution_key: str, voice_id: str, **asked: Any) -> PhoneCall:
        """Read, or raise."""
        if voice_id == self._voice_id:
            raise ZeroDivisionError("a value that is nobody's business")
        return await super().details(institution_key, voice_id, **asked)


def item(call: Call) -> str:
    """Return the key of a call's stored state."""
    return f"ck:2:item:{CallId(call.institution_key, call.voice_id).member}"


async def test_call_whose_step_always_raises_is_parked(rig: Rig) -> None:
    """After five failures in a row a call waits for a person; the others are settled as ever (C17)."""
    broken, *others = [rig.stage.call(END) for _ in range(4)]
    rig.tools = replace(rig.tools, service=Broken(rig, broken.voice_id))
    rig.shift.tools = rig.tools
    await rig.run(55)
    assert len(rig.shift.failures) == STEPS.most
    assert await rig.queries.attention() == {CallId(KEY, broken.voice_id).member: "parked"}
    await rig.run(15)
    assert [(await rig.record(call)).life.reason for call in others] == [Reason.UNDECIDED] * 3
    assert "parked" in await rig.whats(broken)
    assert "nobody's business" not in "".join(rig.shift.failures) + str(rig.log.entries)


async def test_parked_call_goes_on_when_the_cause_is_gone(rig: Rig) -> None:
    """A note tries a parked call again; a step that succeeds takes it off the list."""
    call = rig.stage.call(END)
    tools = rig.tools
    rig.shift.tools = replace(tools, service=Broken(rig, call.voice_id))
    await rig.run(70)
    assert await rig.queries.attention()
    rig.shift.tools = tools
    await rig.push(call)
    await rig.run(20)
    assert await rig.queries.attention() == {}
    assert (await rig.record(call)).life.phase is Phase.SETTLED


@pytest.mark.parametrize("stored", [b"{}", b"\x80\x04", b'{"institution_key":1}'], ids=["empty", "pickle", "typed"])
async def test_corrupt_record_is_parked_and_harms_no_other(rig: Rig, stored: bytes) -> None:
    """An unreadable record needs a person; nothing is sent for it, and other calls continue."""
    corrupt, other = rig.stage.call(END), rig.stage.call(END)
    await rig.run(5)
    sent = rig.ledger(corrupt)
    await rig.redis.hset(item(corrupt), "rec", stored)
    await rig.run(125)
    assert rig.ledger(corrupt) == sent
    assert list((await rig.queries.attention()).values()) == ["parked"]
    assert (await rig.record(other)).life.phase is Phase.SETTLED


async def test_corrupt_note_is_parked_and_harms_no_other(rig: Rig) -> None:
    """A note that cannot be read parks its call only."""
    corrupt, other = rig.stage.call(END), rig.stage.call(END)
    await rig.run(5)
    await rig.redis.hset(f"ck:2:inbox:{CallId(KEY, corrupt.voice_id).member}", "odd", b"{}")
    await rig.run(125)
    assert list((await rig.queries.attention()).values()) == ["parked"]
    assert (await rig.record(other)).life.phase is Phase.SETTLED


async def test_foreign_name_in_the_due_set_is_removed(rig: Rig) -> None:
    """A name that we never write, with a record behind it, is forgotten and fails nothing."""
    await rig.redis.hset("ck:2:item:zz", "rec", b"?")
    await rig.redis.zadd("ck:2:due", {"zz": 0})
    await rig.run(1)
    assert await rig.redis.zscore("ck:2:due", "zz") is None
    assert rig.shift.failures == []


async def test_service_that_is_down_stops_nothing_for_good(rig: Rig) -> None:
    """After an outage of 30 s, calls are found, assigned and settled."""
    rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=503))
    call = await rig.begin_call(Happening(Kind.END, 130), run_s=30)
    rig.stage.sandbox.faults.clear()
    await rig.run(60)
    assert rig.ledger(call)["assign"] == 1
    await rig.run(80)
    assert (await rig.record(call)).life.phase is Phase.SETTLED
    assert rig.shift.failures == []


async def test_redis_clock_set_back_stops_nothing(rig: Rig) -> None:
    """If Redis's clock is set back by an hour during a call, the call continues, and its end is found (C19)."""
    behind = [0]
    rig.store._now_ms = lambda: rig.now_ms() - behind[0]
    for part in (rig.store, rig.intake):
        part._scripts._now_ms = rig.store._now_ms
    call = await rig.begin_call(Happening(Kind.GREEN, 40), Happening(Kind.END, 100), run_s=20, is_pushed=False)
    behind[0] = 3_600_000
    await rig.run(60)
    assert (await rig.record(call)).seen.authenticated
    late = await rig.begin_call(Happening(Kind.END, 500), run_s=50, is_pushed=False)
    assert rig.ledger(late)["assign"] == 1
    assert (await rig.record(call)).life.phase is Phase.SETTLED
    rig.stage.world.state.institutions[KEY].ignored.append(late.phone_number)
    await rig.run(2 * TO_THE_END_EVERY_S)
    assert "unlisted" in await rig.whats(late), "full listings go on too"


class Paged(httpx.AsyncBaseTransport):
    """Stands before the service and rewrites what is asked of the queue."""

    def __init__(self, inner: httpx.AsyncBaseTransport, rewrite: Callable[[dict[str, str]], None]) -> None:
        self.inner = inner
        self.rewrite = rewrite
        self.full_pages = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if request.url.path.endswith("/calls/queue"):
            query = {name: values[0] for name, values in parse_qs(request.url.query.decode()).items()}
            self.full_pages += "startDate" not in query
            self.rewrite(query)
            request.url = request.url.copy_with(query=urlencode(query).encode())
        return await self.inner.handle_async_request(request)


PAGES: dict[str, Callable[[dict[str, str]], None]] = {
    "small": lambda query: query.update(pageSize="3"),
    "overlapping": lambda query: query.update(pageSize="4", continueFrom=str(max(0, int(query["continueFrom"]) - 2))),
    "repeating": lambda query: query.update(continueFrom="0"),
}


@pytest.mark.parametrize("rewrite", PAGES.values(), ids=PAGES)
async def test_listing_finds_every_call_whatever_the_pages(
    sandbox_asgi: Asgi, redis: Redis, rewrite: Callable[[dict[str, str]], None]
) -> None:
    """Pages that are smaller than asked for, overlap or repeat themselves hide no call and never end in a loop (D7)."""
    pages = Paged(sandbox_asgi.transport, rewrite)
    rig = Rig(sandbox_asgi, redis, transport=pages)
    calls = [rig.stage.call(END, persons=[]) for _ in range(11)]
    await rig.run(1)
    assert [call for call in calls if await rig.find(call.voice_id) is None] == []
    assert pages.full_pages <= 8


async def test_listing_pages_on_where_entries_are_many(rig: Rig) -> None:
    """More calls than a page holds are all found, by one listing."""
    calls = [rig.stage.call(persons=[]) for _ in range(530)]
    await rig.institutions.refresh()
    [held] = await rig.store.claim(1)
    await rig.shift.handle(held)
    assert await rig.redis.hlen(rig.store.keys.opened(KEY)) == len(calls)


class Holed(httpx.AsyncBaseTransport):
    """Answers the queue with one entry that cannot be read in front of each page."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        response = await self.inner.handle_async_request(request)
        if not request.url.path.endswith("/calls/queue"):
            return response
        answer = json.loads(await response.aread())
        answer["phoneCalls"] = [{"voiceId": None}, *answer["phoneCalls"][:2]]
        return httpx.Response(response.status_code, json=answer)


async def test_listing_goes_on_after_an_unreadable_entry(sandbox_asgi: Asgi, redis: Redis) -> None:
    """An entry that names no call hides no other call."""
    rig = Rig(sandbox_asgi, redis, transport=Holed(sandbox_asgi.transport))
    calls = [rig.stage.call(END, persons=[]) for _ in range(7)]
    await rig.run(1)
    assert [call for call in calls if await rig.find(call.voice_id) is None] == []


async def test_listing_that_fails_is_tried_again_soon(rig: Rig) -> None:
    """One failed look delays the finding of a call by little."""
    await rig.run(20)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=500, times=1))
    call = await rig.begin_call(END, run_s=10, is_pushed=False)
    assert rig.ledger(call)["assign"] == 1


async def test_call_that_is_not_listed_any_more_is_read_not_ended(rig: Rig) -> None:
    """Absence from a full listing is no proof: the stored details are read, and the live call goes on."""
    call = await rig.begin_call(Happening(Kind.END, 500), run_s=10, is_pushed=False)
    rig.stage.world.state.institutions[KEY].ignored.append(call.phone_number)
    await rig.run(TO_THE_END_EVERY_S + 10)
    assert "unlisted" in await rig.whats(call)
    assert (await rig.record(call)).life.phase is Phase.LIVE


async def test_killed_workers_call_goes_on_after_the_lease(rig: Rig) -> None:
    """What a dead worker had claimed is moved on by another when the lease is over, and is listed as live (promise 4)."""
    call = rig.stage.call(END)
    await rig.institutions.refresh()
    [held] = await rig.store.claim(10)
    await rig.shift.handle(held)
    abandoned = await rig.store.claim(10)
    assert [one.member for one in abandoned] == [CallId(KEY, call.voice_id).member]
    await rig.run(LEASE.seconds + 1)
    assert rig.ledger(call)["assign"] == 1
    assert [live.voice_id async for live in rig.queries.live()] == [call.voice_id]


class Dying(Store):
    """A store whose worker dies right after its first write."""

    async def keep(self, *args: Any, **more: Any) -> None:
        """Write, and die."""
        await super().keep(*args, **more)
        raise RedisAway("the worker is gone")


async def test_call_of_a_worker_that_died_over_its_first_write_is_listed(rig: Rig) -> None:
    """Whatever the first mover of a call got to, the board shows the call once another moves it."""
    call = rig.stage.call(END)
    rig.shift.tools = replace(rig.tools, store=Dying(rig.redis, now_ms=rig.now_ms, lease=rig.store.lease))
    await rig.run(2)
    assert [live async for live in rig.queries.live()] == []
    rig.shift.tools = rig.tools
    await rig.run(15)
    assert [live.voice_id async for live in rig.queries.live()] == [call.voice_id]


async def test_two_workers_on_one_call_are_one_mover(rig: Rig) -> None:
    """Several workers at once make every effect and every check once (C8)."""
    numbers = [f"555010020{n}" for n in range(5)]
    for number in numbers:
        rig.stage.world.add_member(KEY, f"p-{number}", [number])
    calls = [rig.stage.call(Happening(Kind.MFA_VALIDATED, 12), END, phone_number=number) for number in numbers]
    others = [replace(rig.tools, store=Store(rig.redis, now_ms=rig.now_ms, lease=rig.store.lease)) for _ in range(3)]
    shifts = [Shift(tools, rig.institutions, rig.shift.listing, rig.tools.log) for tools in others]
    for _ in range(140):
        await rig.institutions.refresh()
        claims = await asyncio.gather(*(shift.tools.store.claim(3) for shift in shifts))
        await asyncio.gather(
            *(shift.handle(held) for shift, claimed in zip(shifts, claims, strict=True) for held in claimed)
        )
        rig.stage.advance(0.5)
    assert [(rig.ledger(call)["assign"], rig.ledger(call)["enroll"]) for call in calls] == [(1, 1)] * 5
    for call in calls:
        assert rig.ledger(call)["check"] <= (await rig.record(call)).plan.checks_used


class Away(Store):
    """A store that Redis does not answer any more."""

    async def save(self, *args: Any, **more: Any) -> None:
        """Fail."""
        raise RedisAway("gone")


async def test_redis_that_fails_a_move_is_no_failure_of_the_call(rig: Rig) -> None:
    """If Redis fails while a call is handled, the lease expires and another worker continues."""
    call = rig.stage.call(END)
    rig.shift.tools = replace(rig.tools, store=Away(rig.redis, now_ms=rig.now_ms, lease=rig.store.lease))
    await rig.run(5)
    assert rig.shift.failures == []
    rig.shift.tools = rig.tools
    await rig.run(20)
    assert rig.ledger(call)["assign"] == 1


async def test_shift_works_until_nothing_is_due(rig: Rig) -> None:
    """A shift claims, moves calls on and ends by itself; what it did is counted."""
    call = rig.stage.call(END)
    shift = replace(rig.shift, shift_s=0.05)
    tally = await shift.run()
    assert tally.counts["assigned"] == 1
    assert rig.ledger(call)["assign"] == 1
    assert await rig.redis.zscore("ck:2:due", institution_member(KEY)) > rig.now_ms()


async def test_shift_that_was_told_to_stop_claims_nothing(rig: Rig) -> None:
    """After the signal nothing new is begun."""
    rig.stage.call(END)
    shift = replace(rig.shift)
    shift.stop()
    tally = await shift.run()
    assert tally.counts == {}


async def test_shift_reports_bugs_at_its_end_without_values(rig: Rig) -> None:
    """What nobody expected is raised once, for all calls, with places and kinds only."""
    call = rig.stage.call(END)
    shift = replace(rig.shift, tools=replace(rig.tools, service=Broken(rig, call.voice_id)), shift_s=0.05)
    with pytest.raises(StepsFailed, match=r"ZeroDivisionError at Broken\.details") as raised:
        await shift.run()
    assert "nobody's business" not in str(raised.value)


class Hanging(Altered):
    """A service that never answers."""

    async def details(self, *args: Any, **more: Any) -> PhoneCall:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError


async def outlived(shift: Shift) -> set[str]:
    """Run a shift and return what it left in the loop."""
    await shift.run()
    return {task.get_name() for task in asyncio.all_tasks() if "Shift.handle" in repr(task.get_coro())}


async def test_shift_ends_in_time_whatever_hangs(rig: Rig) -> None:
    """A task that never ends is cancelled and gathered: nothing outlives a shift."""
    rig.stage.call(END)
    hanging = replace(rig.tools, service=Hanging(rig))
    assert await outlived(replace(rig.shift, tools=hanging, longest_s=0.2, finish_s=0.1)) == set()
    assert "shift_cut_short" in {entry["event"] for entry in rig.log.entries}


async def test_shift_that_was_told_to_stop_waits_less_for_what_hangs(rig: Rig) -> None:
    """A stop is obeyed within its own bound, whatever is in flight. What is abandoned is due at once for other workers."""
    call = await rig.begin_call(END, run_s=8)
    rig.stage.advance(10)
    hanging = replace(rig.tools, service=Hanging(rig))
    shift = replace(rig.shift, tools=hanging, finish_s=1000.0, leave_s=0.1)
    asyncio.get_running_loop().call_later(0.2, shift.stop)
    assert await outlived(shift) == set()
    assert rig.call_id(call) in {item.owner for item in await rig.store.claim(10)}

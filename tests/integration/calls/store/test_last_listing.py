"""Listings of a queue: how far back each goes."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from callkeeper.calls.store.last_listing import LOOK_BACKS_A_MINUTE, MOST_UNLISTED, OVERLAP
from callkeeper.service import QueueEntry
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Altered, Rig

END = Happening(Kind.END, 300)


class Asked(Altered):
    """A service that remembers from when on the queue was asked for; None for all of it."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.since: list[datetime | None] = []

    async def queue(self, *args: Any, **more: Any) -> tuple[QueueEntry, ...]:
        """Remember, and ask."""
        self.since.append(more["start_at"])
        return await super().queue(*args, **more)


class Hidden(Altered):
    """Leaves a call out of the queue."""

    def __init__(self, rig: Rig, voice_id: str) -> None:
        super().__init__(rig)
        self.voice_id = voice_id

    async def queue(self, *args: Any, **more: Any) -> tuple[QueueEntry, ...]:
        """Ask, and leave it out."""
        return tuple(entry for entry in await super().queue(*args, **more) if entry.voice_id != self.voice_id)


async def test_look_after_a_push_goes_back_to_the_newest_call_that_is_known(rig: Rig) -> None:
    """However many calls started lately, a push costs the reading of its own; regular looks list the whole queue."""
    first = await rig.begin_call(END, run_s=10, is_pushed=False)
    service = Asked(rig)
    rig.shift.listing = replace(rig.shift.listing, tools=replace(rig.tools, service=service))
    second = await rig.begin_call(END, run_s=0.2)
    assert service.since == [first.started_at - OVERLAP]
    assert (await rig.record(second)).seen.person_id is not None
    service.since.clear()
    await rig.run(6)
    assert service.since == [None]


async def test_long_queue_is_listed_whole_less_often(rig: Rig) -> None:
    """With three pages every other regular look lists the last minutes only."""
    for _ in range(25):
        rig.stage.call(END)
    rig.shift.listing = replace(rig.shift.listing, page_size=10)
    await rig.run(10)
    service = Asked(rig)
    rig.shift.listing = replace(rig.shift.listing, tools=replace(rig.tools, service=service))
    await rig.run(40)
    whole, wide = service.since.count(None), [since for since in service.since if since is not None]
    assert 3 * 3 <= whole <= 5 * 3
    assert len(wide) >= 3
    assert all(timedelta(seconds=100) < rig.clock.now - since for since in wide)


async def test_end_that_nobody_pushed_is_noticed_by_the_queue(rig: Rig) -> None:
    """A call that the queue does not list any longer is read at once: 6 s after its end, however rarely it is read."""
    calls = [rig.stage.call(Happening(Kind.END, 40 + n / 7)) for n in range(50)]
    await rig.run(60)
    for call in calls:
        record = await rig.record(call)
        assert record.life.ended_at is not None
        assert call.ended_at is not None
        assert record.life.ended_at - call.ended_at < timedelta(seconds=6)


async def test_call_that_is_listed_again_is_told_so(rig: Rig) -> None:
    """It counts as unlisted while the queue leaves it out, is told so once, and is listed again with the same entry."""
    call = await rig.begin_call(END, run_s=10, is_pushed=False)
    hidden = Hidden(rig, call.voice_id)
    rig.shift.listing = replace(rig.shift.listing, tools=replace(rig.tools, service=hidden))
    await rig.run(20)
    assert (await rig.record(call)).life.is_unlisted
    assert (await rig.whats(call)).count("unlisted") == 1
    hidden.voice_id = ""
    await rig.run(10)
    assert not (await rig.record(call)).life.is_unlisted


async def test_own_assign_is_no_news(rig: Rig) -> None:
    """The queue shows our own assign without a note; a claim by somebody else gives one."""
    ours, others = rig.stage.call(END), rig.stage.call(END, Happening(Kind.CLAIMED, 20))
    await rig.run(15)
    assert (await rig.record(ours)).ledger.assigned_person_id is not None
    assert (await rig.whats(ours)).count("listed") == 1
    await rig.run(15)
    assert (await rig.whats(ours)).count("listed") == 1
    assert (await rig.whats(others)).count("listed") == 2


async def test_look_backs_beyond_the_limit_get_the_turns_that_follow(rig: Rig) -> None:
    """In the order in which they asked, until too many calls wait to be listed."""
    allowance, now = rig.store.look_backs, rig.stage.clock.now
    waits = [await allowance.turn_in_s(now) for _ in range(LOOK_BACKS_A_MINUTE + 2)]
    assert waits[: LOOK_BACKS_A_MINUTE + 1] == [0.0] * LOOK_BACKS_A_MINUTE + [60.2]
    assert waits[-1] == 60.4
    unlisted = {f"cu-1/v-{n}": 0 for n in range(MOST_UNLISTED + 1)}
    await rig.redis.zadd(rig.store.keys.due, unlisted)
    assert await allowance.turn_in_s(now) is None
    await rig.redis.zadd(rig.store.keys.live, dict(list(unlisted.items())[:1000]))
    assert await allowance.turn_in_s(now) is not None, "live calls do not count"

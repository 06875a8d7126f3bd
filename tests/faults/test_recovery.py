"""After any outage new calls are assigned within ten seconds, and no hint was dropped meanwhile."""

import asyncio
import datetime as dt
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institutions import InstitutionStatus
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.conftest import IS_NIGHT
from tests.harness.redis_in_step import virtually
from tests.harness.virtual_time import KEY, Rig
from tests.harness.virtual_worker import working
from tests.recovery import OUTAGES, UNTOLD, outage

RECOVERS_S = 10.0
LENGTHS_S = (3.3, 21.7, 95.0, 400.0) if IS_NIGHT else (21.7,)
LONG_MIN = (3, 20, 40) if IS_NIGHT else (3,)
"""Minutes of the outages in one run at two calls a second: 90 minutes at night, fewer for every change."""


@pytest.mark.parametrize("lasts_s", LENGTHS_S)
@pytest.mark.parametrize("name", OUTAGES)
def test_first_new_call_is_assigned_within_ten_seconds(name: str, lasts_s: float) -> None:
    """After any outage a new call is assigned in time, pushed or not, and every call that is still live is found."""
    seen = virtually(outage(name, lasts_s))
    assert seen.first_s <= RECOVERS_S
    assert seen.first_pushless_s <= RECOVERS_S
    assert seen.live_unfound == 0
    assert seen.log["hint_dropped"] == 0
    assert seen.log["redis_failed"] == 0


def test_calls_that_came_and_went_in_an_outage_get_a_record() -> None:
    """More than a hundred are due at once when the service is back: each is read, and none is dropped."""
    seen = virtually(outage("503", 250.0))
    assert seen.first_s <= RECOVERS_S
    assert seen.log["call_settled"] >= 120
    assert seen.log["hint_dropped"] + seen.log["redis_failed"] == 0


def test_refused_login_is_tried_again_without_being_told() -> None:
    """Credentials that the service accepts again, unchanged, are found so after 30 s: nobody has to do anything."""
    seen = virtually(outage(UNTOLD, 21.7))
    assert seen.first_s <= 30.0
    assert seen.live_unfound == 0


def test_probe_does_not_wait_behind_one_that_hangs() -> None:
    """Probes of a queue and of a call go out every three to five seconds, even if each hangs for six."""

    async def law() -> None:
        async with working() as works:
            await works.call()
            await asyncio.sleep(5)
            works.between.is_hanging = True
            await asyncio.sleep(30)
            begun = works.between.begun
            await asyncio.sleep(60)
            assert 2 * 60 / 5 < works.between.begun - begun <= 2 * 60 / 3 + 2

    virtually(law())


def test_outage_is_logged_in_two_lines_each_way() -> None:
    """However long an outage lasts, service, institution and queues log its begin once and its end once."""

    async def law() -> None:
        async with working() as works:
            await works.call(lasts_s=900)
            await asyncio.sleep(5)
            works.between.is_refusing = True
            await asyncio.sleep(600)
            works.between.is_refusing = False
            await asyncio.sleep(10)
            log = works.events()
            assert log["service_away"] == log["service_back"] == 1
            assert log["institution_away"] == log["institution_back"] == 1
            assert log["queue_away"] == log["queue_back"] == 2, "of the institution, and of all"
            assert sum(log.values()) <= 20

    virtually(law())


class Traffic:
    """Two calls a second of twenty seconds each, with both pushes, and a worker that claims four times a second."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.calls: list[Call] = []

    async def minutes(self, minutes: float) -> None:
        """Let time pass."""
        for _ in range(int(minutes * 120)):
            self.calls.append(self.rig.stage.call(Happening(Kind.END, 20)))
            await self.rig.push(self.calls[-1])
            if len(self.calls) > 40:
                await self.rig.push(self.calls[-41], "CallEnd")
            await self.half_second()

    async def half_second(self) -> None:
        """Let the worker claim and move up to a few hundred calls."""
        for _ in range(2):
            await self.rig.institutions.refresh()
            await asyncio.gather(*await self.rig.probing.start_due())
            for _ in range(3):
                claimed = await self.rig.store.claim(100)
                await asyncio.gather(*(self.rig.shift.handle(held) for held in claimed))
            self.rig.stage.advance(0.25)

    def assigned_s(self, call: Call) -> float:
        """Return how many seconds after its start a call was assigned; 99 if it was not."""
        arrivals = self.rig.stage.sandbox.ledger.arrivals(call.voice_id)
        at = [arrival.at for arrival in arrivals if arrival.operation == "assign"]
        return (min(at, default=call.started_at + dt.timedelta(seconds=99)) - call.started_at).total_seconds()


async def recovered(traffic: Traffic, began: int) -> Sequence[float]:
    """Return after how many seconds each of 60 calls was assigned, from number ``began`` on."""
    await traffic.minutes(1)
    return [traffic.assigned_s(call) for call in traffic.calls[began : began + 60]]


@pytest.mark.timeout(1800 if IS_NIGHT else 120)
async def test_backlog_of_a_long_outage_does_not_delay_new_calls(rig: Rig) -> None:
    """Hints that piled up in an outage do not delay new calls: those are assigned within ten seconds."""
    traffic = Traffic(rig)
    for minutes in LONG_MIN:
        await traffic.minutes(9 if IS_NIGHT else 0.5)
        rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=500))
        await traffic.minutes(minutes)
        rig.stage.sandbox.faults.clear()
        began = len(traffic.calls)
        waited = await recovered(traffic, began)
        assert waited[0] <= RECOVERS_S
        assert max(waited) <= RECOVERS_S
        live = traffic.calls[began - 30 : began]
        assert all([await rig.find(call.voice_id) for call in live]), "a call that was live then was not found"


async def test_hint_is_not_dropped_while_the_queue_cannot_be_listed(rig: Rig) -> None:
    """A hint is kept while listings fail, and its call is assigned within ten seconds of the first that succeeds."""
    await rig.run(10)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.REFUSED))
    call = await rig.begin_call(Happening(Kind.END, 600), run_s=180)
    assert await rig.find(call.voice_id) is not None
    assert "hint_dropped" not in {entry["event"] for entry in rig.log.entries}
    rig.stage.sandbox.faults.clear()
    back_at = rig.clock.now
    await rig.run(RECOVERS_S)
    assigns = [each for each in rig.stage.sandbox.ledger.arrivals(call.voice_id) if each.operation == "assign"]
    assert assigns[0].at - back_at <= dt.timedelta(seconds=RECOVERS_S)


async def test_hint_of_an_inactive_institution_is_not_dropped_unlisted(rig: Rig) -> None:
    """A hint is kept while listings fail, also if nothing may be asked about its call."""
    await rig.run(10)
    child = rig.stage.world.state.institutions[KEY]
    child.record = replace(child.record, status=InstitutionStatus.REVIEW)
    await rig.run(120)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.REFUSED))
    call = await rig.begin_call(Happening(Kind.END, 600), run_s=60)
    record = await rig.record(call)
    assert (record.last_claim.standing, rig.ledger(call)) == ("not_active", {})


async def test_hint_is_dropped_after_a_complete_look(rig: Rig) -> None:
    """A hint is dropped after a complete listing without its call, also if listings failed until then."""
    await rig.run(10)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.REFUSED))
    event = replace(rig.event(rig.stage.call(Happening(Kind.END, 1)), "CallStart"), voice_id="invented")
    await rig.intake.record(event, event_id="ev-x")
    await rig.run(55)
    assert await rig.find(event.voice_id or "") is not None
    rig.stage.sandbox.faults.clear()
    await rig.run(30)
    assert await rig.find(event.voice_id or "") is None
    assert KEY in {entry.get("institution") for entry in rig.log.entries if entry["event"] == "hint_dropped"}


def test_many_refused_institutions_do_not_stop_the_others() -> None:
    """The account loses its access to twenty of thirty at one moment: calls of the others are found, pushed or not.

    A login follows that does not help. Until another institution is listed, its token seems to be refused everywhere.
    """

    async def law() -> None:
        async with working(institutions=30) as works:
            await asyncio.sleep(20)
            for number in range(10, 30):
                works.stage.sandbox.faults.add(
                    Fault(target="queue", institution_key=f"cu-{number}", action=Action.ANSWER, status=401)
                )
            await asyncio.sleep(15)
            calls = [await works.call("cu-2"), await works.call("cu-3", pushed=False)]
            await asyncio.sleep(RECOVERS_S)
            assert [call for call in calls if works.assigned_s(call) is None] == []

    virtually(law())


def test_calls_whose_reads_always_fail_do_not_stop_the_others_of_their_institution() -> None:
    """They are more than a probe chooses from, and stand first wherever it looks."""

    async def law() -> None:
        async with working(institutions=2) as works:
            await asyncio.sleep(20)
            for _ in range(24):
                call = await works.call("cu-2")
                works.stage.sandbox.faults.add(
                    Fault(target="details", voice_id=call.voice_id, action=Action.ANSWER, status=500)
                )
            await asyncio.sleep(30)
            assert works.events()["institution_away"]
            calls = [await works.call("cu-2") for _ in range(24)]
            await asyncio.sleep(60)
            assert [call for call in calls if works.assigned_s(call) is None] == []

    virtually(law())

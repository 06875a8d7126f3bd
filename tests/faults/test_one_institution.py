"""Trouble of one institution (429, 401, 5xx, slow or no answers, a refused queue) does not affect the others."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.store.breakers import service_away
from callkeeper.calls.store.sso_token import barred_scopes
from callkeeper.service.config import LoginPolicy
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.redis_in_step import virtually
from tests.harness.virtual_time import Rig
from tests.harness.virtual_worker import working
from tests.recovery import TROUBLES, notice, trouble

END = Happening(Kind.END, 600)
OTHER = "cu-2"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """Return a rig with a second institution."""
    rig.stage.world.add_institution(OTHER, "Second")
    rig.stage.world.add_member(OTHER, "p-1", ["5550100001"])
    return rig


def refuse(rig: Rig) -> None:
    """Answer every request that names the second institution with 401."""
    rig.stage.sandbox.faults.add(Fault(target="*", action=Action.UNAUTHORIZED, institution_key=OTHER))


def checks(rig: Rig, call: Call) -> list[float]:
    """Return when a call was checked, in seconds after its start."""
    arrivals = rig.stage.sandbox.ledger.arrivals(call.voice_id)
    return [(a.at - call.started_at).total_seconds() for a in arrivals if a.operation == "check"]


def reads(rig: Rig, calls: list[Call]) -> int:
    """Return how many reads of stored details arrived."""
    arrivals = [arrival for call in calls for arrival in rig.stage.sandbox.ledger.arrivals(call.voice_id)]
    return sum(arrival.operation == "read" for arrival in arrivals)


def events(rig: Rig) -> Counter[str]:
    """Return how often each event was logged."""
    return Counter(entry["event"] for entry in rig.log.entries)


async def lives(rig: Rig, *, refused: bool) -> list[list[float]]:
    """Run five calls of the first institution beside one of the second; return when the five were checked."""
    other = await rig.begin_call(END, key=OTHER, run_s=10, is_pushed=False)
    if refused:
        refuse(rig)
    calls = [rig.stage.call(END, voice_id=f"v-{n}") for n in range(5)]
    await rig.run(150)
    assert other.voice_id
    return [checks(rig, call) for call in calls]


async def test_refused_institution_delays_no_check_of_another(rig: Rig) -> None:
    """The other institution's checks are at most a second off their plan, and only one more login is made."""
    at = await lives(rig, refused=True)
    assert events(rig)["login_made"] == 2
    of_others = {entry["event"] for entry in rig.log.entries if entry.get("institution") == "cu-1"}
    assert of_others == {"effect_answered"}
    for n, made in enumerate(at):
        planned = rig.book.schedule.paced(f"v-{n}").at_s
        began_s = made[0] - planned[0]
        assert began_s < 10, "a call without a push is found within 10 s"
        assert len(made) >= 15
        assert all(abs(second - began_s - due) <= 1 for second, due in zip(made, planned, strict=False))


async def test_refused_institution_is_left_alone_and_shown(rig: Rig) -> None:
    """A refused institution gets few requests and at most two checks; log, metric, trail and breakers show it."""
    call = await rig.begin_call(END, key=OTHER, run_s=10, is_pushed=False)
    refuse(rig)
    before = len(rig.stage.sandbox.ledger.arrivals(call.voice_id))
    booked = len(checks(rig, call))
    await rig.run(120)
    assert len(rig.stage.sandbox.ledger.arrivals(call.voice_id)) - before <= 2 * 120 / 3 + 4
    assert len(checks(rig, call)) - booked <= 2
    assert events(rig)["access_refused"] <= 3
    assert {barred.institution_key for barred in await barred_scopes(rig.redis)} == {OTHER}
    assert (await rig.counted()).count(figure.ACCESS_REFUSED) > 0
    assert [entry.because for entry in await rig.trail(call) if entry.what == "held_back"] == [
        "the service refuses the institution"
    ]


async def test_refused_institution_is_tried_by_one_request_at_a_time(rig: Rig) -> None:
    """Of a refused operation one request in three seconds reaches the service, however many calls wait for it."""
    calls = [rig.stage.call(END, key=OTHER) for _ in range(6)]
    await rig.run(10)
    refuse(rig)
    await rig.run(20)
    before = reads(rig, calls)
    await rig.run(80)
    assert 1 <= reads(rig, calls) - before <= 80 / 3 + 1


async def test_refused_institution_recovers_by_itself(rig: Rig) -> None:
    """Within ten seconds of the end of the refusal new calls are assigned; then all calls are checked again."""
    old = await rig.begin_call(END, key=OTHER, run_s=10, is_pushed=False)
    refuse(rig)
    await rig.run(120)
    rig.stage.sandbox.faults.clear()
    new = await rig.begin_call(END, key=OTHER, run_s=10, is_pushed=False)
    assert rig.ledger(new).get("assign") == 1
    await rig.run(60)
    assert checks(rig, new)
    assert checks(rig, old)
    assert await barred_scopes(rig.redis) == []
    assert events(rig)["access_restored"] == events(rig)["access_refused"]


async def test_second_worker_knows_of_a_refused_institution(rig: Rig) -> None:
    """A second worker makes no login for an institution that the first worker found refused."""
    await rig.begin_call(END, key=OTHER, run_s=10, is_pushed=False)
    refuse(rig)
    await rig.run(20)
    second = Rig(rig.stage, rig.redis)
    await second.run(60)
    assert events(second)["login_made"] == 0
    assert events(second)["access_refused"] == 0


@pytest.fixture(scope="module")
def quiet() -> list[tuple[float, list[float]]]:
    """Return when calls of an institution are assigned and checked while no institution is in trouble."""
    return virtually(trouble(TROUBLES["none"]))


@pytest.mark.parametrize("name", [name for name in TROUBLES if name != "none"])
def test_trouble_of_one_institution_delays_another_by_a_second_at_most(
    quiet: list[tuple[float, list[float]]], name: str
) -> None:
    """Whatever the trouble, assigns and checks of the other institution are at most a second late."""
    seen = notice(quiet, virtually(trouble(TROUBLES[name])))
    assert seen.assigned_s <= 1
    assert seen.check_s <= 1


async def test_pause_for_one_institution_stops_it_and_no_other(rig: Rig) -> None:
    """After 429 with Retry-After nothing is sent for that institution until the time is over; others go on (e10)."""
    mine, other = rig.stage.call(END), rig.stage.call(END, key=OTHER)
    await rig.run(10)
    busy = Fault(target="*", action=Action.ANSWER, status=429, headers={"Retry-After": "30"}, institution_key=OTHER)
    rig.stage.sandbox.faults.add(busy)
    await rig.run(5)
    rig.stage.sandbox.faults.clear()
    before = len(rig.stage.sandbox.ledger.arrivals(other.voice_id)), len(checks(rig, mine))
    await rig.run(20)
    assert len(rig.stage.sandbox.ledger.arrivals(other.voice_id)) == before[0]
    assert len(checks(rig, mine)) >= before[1] + 3
    await rig.run(25)
    assert len(rig.stage.sandbox.ledger.arrivals(other.voice_id)) > before[0]


@pytest.mark.parametrize(
    "answer",
    [
        {"action": Action.ANSWER, "status": 429, "headers": {"Retry-After": "60"}},
        {"action": Action.UNAUTHORIZED},
    ],
    ids=["429", "401"],
)
async def test_institution_that_cannot_be_read_by_its_key_stops_no_other(rig: Rig, answer: dict[str, Any]) -> None:
    """If the list fails and institutions are read by key, an error for one of them affects only that one.

    The interval between logins is set to 0, because it is real time and the test runs in virtual time.
    """
    rig = Rig(rig.stage, rig.redis, login=LoginPolicy(min_interval_s=0.0))
    rig.stage.sandbox.faults.add(Fault(target="institutions", action=Action.REFUSED))
    rig.stage.sandbox.faults.add(Fault(target="institution", institution_key=OTHER, **answer))
    mine = await rig.begin_call(END, run_s=10, is_pushed=False)
    assert mine.person_id == "p-1"
    assert await service_away(rig.redis, rig.store.keys) is None


def test_institutions_that_fail_at_random_do_not_stop_the_others() -> None:
    """Half of the institutions fail at seven of ten requests: calls of the others are assigned within a second."""

    async def law() -> None:
        async with working(institutions=60) as works:
            await asyncio.sleep(10)
            for number in range(31, 61):
                works.stage.sandbox.faults.add(
                    Fault(target="*", institution_key=f"cu-{number}", action=Action.ANSWER, status=500, share=0.7)
                )
            calls = []
            for n in range(60):
                calls.append(await works.call(f"cu-{2 + n % 29}", lasts_s=30))
                await asyncio.sleep(0.5)
                await works.call(f"cu-{31 + n % 30}", lasts_s=30)
                await asyncio.sleep(0.5)
            assert works.events()["institution_away"], "calls of the others fail in a row"
            assert works.events()["queue_away"], "and so do their queues"
            assert [call for call in calls if (works.assigned_s(call) or 99) > 1] == []

    virtually(law())

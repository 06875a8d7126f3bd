"""Laws of the schedule in a running callkeeper: real store and moves against the stand-in, in virtual time."""

import pytest
from redis.asyncio import Redis

from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.plan import Schedule
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

SCHEDULE = Schedule((10.0, 20.0, 30.0, 40.0, 50.0, 60.0))


@pytest.fixture
def rig(sandbox_asgi: Asgi, redis: Redis) -> Rig:
    """Return a callkeeper that checks every ten seconds, six times."""
    return Rig(sandbox_asgi, redis, load_rules(None).with_schedule(SCHEDULE))


async def check_times(rig: Rig, call: Call) -> list[float]:
    """Return when checks were made, answered or not, in seconds after the call began."""
    entries = [entry for entry in await rig.trail(call) if entry.what in {"checked", "check_failed"}]
    return [(entry.at - call.started_at).total_seconds() for entry in entries]


def arrived(rig: Rig, call: Call) -> int:
    """Return how many checks the stand-in received."""
    return rig.stage.sandbox.ledger.tally(call.voice_id).arrived.get("check", 0)


async def test_checks_follow_the_schedule_at_the_calls_own_pace(rig: Rig) -> None:
    """Checks are made at the paced slots after the assignment, and not once more when the budget is spent."""
    call = await rig.begin_call(run_s=120)
    record = await rig.record(call)
    assert record.plan.watch_from is not None
    offset = (record.plan.watch_from - call.started_at).total_seconds()
    slots = [t + offset for t in SCHEDULE.paced(call.voice_id).at_s]
    made = await check_times(rig, call)
    assert made[:6] == pytest.approx(slots, abs=0.3)
    assert len(made) <= SCHEDULE.automatic_limit


async def test_failed_check_is_made_up_for_before_the_next_slot(rig: Rig) -> None:
    """A check that failed is followed by another well before the next slot, and the slots after it are kept."""
    call = rig.stage.call(Happening(Kind.GREEN, 15))
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.ANSWER, status=500, skip=1, times=1))
    await rig.push(call)
    await rig.run(60)
    made = await check_times(rig, call)
    assert len(made) == arrived(rig, call) == 3
    assert 0.9 <= made[2] - made[1] <= 2.0
    assert (await rig.whats(call)).count("check_failed") == 1


async def test_lost_answer_of_a_check_is_read_for_free(rig: Rig) -> None:
    """The service made the check and its answer was lost: stored details show the result, no further check is spent."""
    call = rig.stage.call(Happening(Kind.GREEN, 5))
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.ANSWER, status=500, applied=True, times=1))
    await rig.push(call)
    await rig.run(60)
    assert arrived(rig, call) == 1
    assert (await rig.record(call)).seen.authenticated


async def test_outage_costs_reads_not_checks(rig: Rig) -> None:
    """While the service answers nobody, one check is spent; the next follows the first read that is answered."""
    call = await rig.begin_call(Happening(Kind.GREEN, 15), run_s=15)
    for target in ("check", "read", "queue"):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.ANSWER, status=503))
    await rig.run(60)
    spent = (await rig.record(call)).plan.checks_used
    assert spent <= 3
    rig.stage.sandbox.faults.clear()
    await rig.run(45)
    assert (await rig.record(call)).seen.authenticated
    assert (await rig.record(call)).plan.checks_used == spent + 1

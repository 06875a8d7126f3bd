"""The 20 checks of a call: they are never exceeded, and some are reserved for people."""

from dataclasses import replace

import pytest

from callkeeper.calls.notes import CheckWish
from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.schedule.plan import Schedule
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig

LONG = Happening(Kind.END, 900)
QUICK = Schedule(tuple(float(n) for n in range(1, 19)))


def use_schedule(rig: Rig, schedule: Schedule) -> None:
    """Let the rig's moves follow another schedule."""
    rig.tools = replace(rig.tools, book=rig.book.with_schedule(schedule))
    rig.shift.tools = rig.tools


async def ask(rig: Rig, call: Call) -> None:
    """Let the desk ask for a check now."""
    await rig.note(call, CheckWish(operator="ann", said_at=rig.clock.now))
    await rig.run(1)


def arrived(rig: Rig, call: Call) -> int:
    """Return how many checks reached the service."""
    return rig.stage.sandbox.ledger.tally(call.voice_id).arrived.get("check", 0)


async def test_budget_leaves_two_checks_to_the_desk(rig: Rig) -> None:
    """18 checks are made automatically, two when the desk asks, and then none, whoever asks."""
    use_schedule(rig, QUICK)
    call = await rig.begin_call(LONG, run_s=40, is_pushed=False)
    assert arrived(rig, call) == 18
    for made in (19, 20, 20):
        await ask(rig, call)
        assert arrived(rig, call) == made
    by = [a.requested_by for a in rig.stage.sandbox.ledger.arrivals(call.voice_id) if a.operation == "check"]
    assert by == ["bot"] * 18 + ["ann"] * 2


async def test_budget_is_not_exceeded_when_the_last_answer_is_lost(rig: Rig) -> None:
    """Check 20's answer is lost: it was booked, and there is no 21st (E4)."""
    use_schedule(rig, Schedule(tuple(float(n) for n in range(1, 21)), reserve=0))
    call = rig.stage.call(LONG)
    lost = Fault(target="check", action=Action.RESET, applied=True, skip=CHECK_LIMIT - 1, times=1)
    rig.stage.sandbox.faults.add(lost)
    await rig.run(60)
    await ask(rig, call)
    assert lost.met == 1
    assert arrived(rig, call) == CHECK_LIMIT == (await rig.record(call)).plan.checks_used


async def test_budget_counts_a_check_without_an_answer(rig: Rig) -> None:
    """A booked check is never refunded: bookings are at least what arrived, whatever was lost."""
    use_schedule(rig, QUICK)
    call = rig.stage.call(LONG)
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.RESET, share=0.5, seed=3))
    await rig.run(90)
    record = await rig.record(call)
    assert arrived(rig, call) <= record.plan.checks_used <= 18
    assert "check_failed" in await rig.whats(call)


async def test_check_after_a_401_is_booked_again_and_made_once_more(rig: Rig) -> None:
    """A lapsed token costs a booking, not the check: log in, book anew, ask once more."""
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.UNAUTHORIZED, times=1))
    call = await rig.begin_call(LONG, run_s=11.5, is_pushed=False)
    tally = rig.stage.sandbox.ledger.tally(call.voice_id)
    assert (tally.arrived["check"], tally.authenticated["check"]) == (2, 1)
    assert (await rig.record(call)).plan.checks_used == 2


async def test_check_after_a_failure_and_a_401_is_made(rig: Rig) -> None:
    """A check answered with 401 was not made: the read since the last failure is enough to make it anew."""
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.ANSWER, status=500, times=1))
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.UNAUTHORIZED, times=1))
    call = await rig.begin_call(LONG, run_s=16, is_pushed=False)
    assert not rig.shift.failures
    assert rig.stage.sandbox.ledger.tally(call.voice_id).arrived["check"] >= 3


async def test_people_spend_the_reserve_and_nothing_else(rig: Rig) -> None:
    """However early and often people ask, they get the two reserved checks, and the schedule keeps its 18."""
    use_schedule(rig, QUICK)
    call = await rig.begin_call(LONG, run_s=2, is_pushed=False)
    for _ in range(4):
        await ask(rig, call)
    await rig.run(40)
    by = [a.requested_by for a in rig.stage.sandbox.ledger.arrivals(call.voice_id) if a.operation == "check"]
    assert (by.count("bot"), by.count("ann")) == (18, 2)


async def test_check_of_the_desk_after_a_401_is_the_desks(rig: Rig) -> None:
    """The last check asked for at the desk is made for the desk, also when the token had lapsed."""
    use_schedule(rig, QUICK)
    call = await rig.begin_call(LONG, run_s=40, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.UNAUTHORIZED, times=1))
    await ask(rig, call)
    checks = [a for a in rig.stage.sandbox.ledger.arrivals(call.voice_id) if a.operation == "check"]
    assert [(a.requested_by, a.authenticated) for a in checks[18:]] == [("ann", False), ("ann", True)]


STOPS = {
    "green": Happening(Kind.GREEN, 15),
    "red": Happening(Kind.RED, 15),
    "rejected": Happening(Kind.REJECTED, 15),
    "rejected by a rule": Happening(Kind.REJECTED_BY_RULE, 15),
    "enrolled elsewhere": Happening(Kind.ENROLLED, 15),
    "ended": Happening(Kind.END, 15),
}


@pytest.mark.parametrize("happening", STOPS.values(), ids=STOPS)
async def test_checks_end_with_each_stop_condition(rig: Rig, happening: Happening) -> None:
    """Once the call is decided or over no further check is made (E5)."""
    call = await rig.begin_call(happening, *([] if happening.kind is Kind.END else [LONG]), run_s=30, is_pushed=False)
    made = arrived(rig, call)
    await rig.run(45)
    assert 1 <= made == arrived(rig, call)


async def test_checks_before_a_person_is_known_are_as_many_as_the_rules_allow(rig: Rig) -> None:
    """``[checks] unassigned`` is the number of checks for a call without a person; by default none."""
    rig.tools = replace(rig.tools, book=replace(rig.book, checks_unassigned=3))
    rig.shift.tools = rig.tools
    call = await rig.begin_call(LONG, persons=[], run_s=60, is_pushed=False)
    assert arrived(rig, call) == 3

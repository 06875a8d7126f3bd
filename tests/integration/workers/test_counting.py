"""The figures of calls agree with the sandbox's counts."""

from datetime import timedelta

import pytest
import structlog

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.hourly import HourlySums, Slot, Sums
from callkeeper.calls.metrics.snapshot import read_present
from callkeeper.service import NotSent, ResellerError, ServiceUnavailable, Unsendable
from callkeeper.service.endpoints import ENROLL
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from workers.service_gate import ServiceGate

END = Happening(Kind.END, 60)


async def test_counted_call_that_was_pushed(rig: Rig) -> None:
    """A pushed call is found by its push, and settled with no push missing."""
    call = await rig.begin_call(Happening(Kind.GREEN, 20), END, run_s=62)
    await rig.push(call, "CallEnd")
    await rig.run(20)
    totals = await rig.counted()
    assert totals.by(figure.CALLS_FOUND, "by", institution=KEY) == {"push": 1}
    assert totals.by(figure.CALLS_SETTLED, "reason") == {"authenticated": 1}
    assert totals.count(figure.PUSHES_LOST) == 0


async def test_counted_call_that_nobody_pushed(rig: Rig) -> None:
    """A call that only the queue showed is found by it, and both its pushes count as lost when it is settled."""
    await rig.begin_call(END, run_s=90, is_pushed=False)
    totals = await rig.counted()
    assert totals.by(figure.CALLS_FOUND, "by") == {"queue": 1}
    assert totals.by(figure.PUSHES_LOST, "type") == {"CallStart": 1, "CallEnd": 1}


async def test_push_that_an_emptied_redis_has_lost_is_not_missed(rig: Rig) -> None:
    """A call that Redis knew before it was emptied was pushed, perhaps. One that comes minutes later was not."""
    for known in (rig.stage.call(), rig.stage.call(), rig.stage.call()):
        await rig.push(known)
    await rig.run(10)
    await rig.redis.flushall()
    await rig.run(150)
    totals = await rig.counted()
    assert totals.by(figure.CALLS_FOUND, "by") == {"push": 3, "queue": 3}
    assert totals.by(figure.CALLS_PUSHED, "result") == {"came": 3}
    await rig.begin_call(run_s=10, is_pushed=False)
    assert (await rig.counted()).by(figure.CALLS_PUSHED, "result") == {"came": 3, "missing": 1}


async def test_push_of_a_call_in_the_first_look_is_not_missed(rig: Rig) -> None:
    """It began before its queue was looked at for the first time, perhaps before its pushes were sent here."""
    await rig.begin_call(run_s=15, is_pushed=False)
    await rig.begin_call(run_s=15, is_pushed=False)
    totals = await rig.counted()
    assert totals.by(figure.CALLS_FOUND, "by") == {"queue": 2}
    assert totals.by(figure.CALLS_PUSHED, "result") == {"missing": 1}


async def test_counted_call_whose_start_was_lost(rig: Rig) -> None:
    """If only the end was pushed, only the start counts as lost."""
    call = await rig.begin_call(END, run_s=62, is_pushed=False)
    await rig.push(call, "CallEnd")
    await rig.run(20)
    assert (await rig.counted()).by(figure.PUSHES_LOST, "type") == {"CallStart": 1}


async def test_counted_call_that_is_never_listed(rig: Rig) -> None:
    """A call that the queue leaves out counts once, when its start is given up: not again when its end is pushed."""
    call = rig.stage.call(END)
    rig.stage.world.state.institutions[KEY].ignored.append(call.phone_number)
    await rig.push(call)
    await rig.run(62)
    await rig.push(call, "CallEnd")
    await rig.run(60)
    assert (await rig.counted()).by(figure.PUSHED_CALLS, "result") == {"unlisted": 1}


@pytest.mark.parametrize("away_s", [40, 400], ids=["for a moment", "for minutes"])
async def test_call_that_came_and_went_while_workers_were_away_does_not_count_as_unlisted(
    rig: Rig, away_s: int
) -> None:
    """No look at the queue could have shown it, so it says nothing of the queue."""
    await rig.run(10)
    call = rig.stage.call(Happening(Kind.END, 30))
    await rig.push(call)
    rig.stage.advance(away_s)
    await rig.push(call, "CallEnd")
    await rig.run(60)
    assert (await rig.counted()).count(figure.PUSHED_CALLS) == 0


async def test_call_that_came_and_went_in_an_outage_does_not_count_as_unlisted(rig: Rig) -> None:
    """Its queue could not be listed meanwhile, and the service does not show it afterwards."""
    await rig.run(10)
    faults = rig.stage.sandbox.faults
    outage = faults.add(Fault(target="*", action=Action.ANSWER, status=503))
    call = await rig.begin_call(Happening(Kind.END, 30), run_s=100)
    faults.add(Fault(target="read", action=Action.ANSWER, status=404))
    faults.clear(outage.id)
    await rig.run(200)
    assert await rig.find(call.voice_id) is None
    assert (await rig.counted()).count(figure.PUSHED_CALLS) == 0


async def test_counted_checks_are_those_the_service_saw(rig: Rig) -> None:
    """Every check is counted once, with what came back; late ones are measured."""
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.ANSWER, status=500, skip=2, times=1))
    call = await rig.begin_call(Happening(Kind.GREEN, 40), END, run_s=90)
    totals = await rig.counted()
    assert totals.by(figure.CHECKS, "outcome")["ServiceUnavailable"] == 1
    assert totals.count(figure.CHECKS) == rig.ledger(call)["check"] == (await rig.record(call)).plan.checks_used
    assert totals.spread(figure.CHECKS_SPENT).total == totals.count(figure.CHECKS)
    assert totals.spread(figure.CHECK_LATE).n == totals.count(figure.CHECKS)
    assert (totals.spread(figure.CHECK_LATE).quantile(1.0) or 0) <= 0.25, "the rig moves the clock by that"


async def test_counted_detection_lag_is_no_shorter_than_the_true_one(rig: Rig) -> None:
    """The measured delay, the gap between two checks, is never shorter than the true one."""
    call = await rig.begin_call(Happening(Kind.GREEN, 30.5), END, run_s=58, is_pushed=False)
    spread = (await rig.counted()).spread(figure.DETECTION_LAG)
    assert spread.n == 1
    shown = next(entry for entry in await rig.trail(call) if entry.what == "checked" and entry.policies)
    lag = (shown.at - call.started_at).total_seconds() - 30.5
    assert lag <= spread.total <= lag + 10


async def test_counted_decisions_and_effects(rig: Rig) -> None:
    """Verdicts are counted by rule, stage and outcome; each effect by every state that its ledger came to."""
    await rig.begin_call(Happening(Kind.MFA_VALIDATED, 12), END, run_s=80)
    totals = await rig.counted()
    assert totals.count(figure.DECISIONS, rule="passcode validated", stage="live", outcome="enroll") == 1
    for kind in ("assign", "enroll"):
        assert totals.by(figure.EFFECTS, "state", kind=kind) == {"intended": 1, "sent": 1, "applied": 1}


async def test_counted_requests_are_those_the_service_saw(rig: Rig) -> None:
    """Requests are counted by endpoint and outcome, logins too; each has its duration."""
    rig.stage.sandbox.faults.add(Fault(target="read", action=Action.ANSWER, status=500, times=3))
    call = await rig.begin_call(END, run_s=62)
    totals = await rig.counted()
    ledger = rig.ledger(call)
    assert totals.by(figure.SERVICE_REQUESTS, "outcome", endpoint="details")["ServiceUnavailable"] == 3
    assert totals.count(figure.SERVICE_REQUESTS, endpoint="details") == ledger["read"] + ledger.get("check", 0)
    assert totals.count(figure.SERVICE_REQUESTS, endpoint="assign") == 1
    assert totals.by(figure.LOGINS, "outcome") == {"answered": 1}
    assert totals.spread(figure.SERVICE_SECONDS, endpoint="details").n == ledger["read"] + ledger.get("check", 0)


async def test_present_tells_calls_by_phase(rig: Rig) -> None:
    """Each call is counted as unconfirmed, live or settled, and lateness is reported."""
    await rig.begin_call(Happening(Kind.END, 5), run_s=30)
    live = await rig.begin_call(END, run_s=5)
    await rig.push(live, voice_id="nobody-knows-this-one")
    await rig.run(1)
    present = await read_present(rig.redis, now_ms=rig.now_ms())
    assert (present.hinted, present.live, present.settled) == (1, 1, 1)
    assert (present.overdue, present.late_s) == (0, 0.0)
    rig.clock.advance(60)
    late = await read_present(rig.redis, now_ms=rig.now_ms())
    assert late.overdue >= 2
    assert 50 < late.late_s <= 60


@pytest.mark.parametrize(
    ("error", "cause", "disturbed"),
    [
        (NotSent("enroll", "the guard stopped it"), RuntimeError("frozen too long"), 0),
        (Unsendable("enroll", "a line break"), None, 0),
        (NotSent("enroll", "no connection"), None, 1),
        (NotSent("enroll", "status 503"), ServiceUnavailable("details", "status 503", 503), 1),
    ],
    ids=["our guard", "not sendable", "no connection", "the read before it"],
)
async def test_counted_failure_is_the_service_s(
    rig: Rig, error: ResellerError, cause: Exception | None, disturbed: int
) -> None:
    """A request that we stop ourselves says nothing about the service, so it does not count as failing."""
    gate = ServiceGate(rig.store, structlog.wrap_logger(None, processors=[rig.log]), rig.figures)
    error.__cause__ = cause
    await gate.report(ENROLL, KEY, None, 0.1)
    await gate.report(ENROLL, KEY, error, 0.1)
    assert (await rig.counted()).count(figure.REQUESTS_DISTURBED, endpoint="enroll") == disturbed


async def test_counted_by_the_hour_are_the_same_calls(rig: Rig) -> None:
    """The sums of an hour say of an institution what the figures say: starts, results, delays, provider errors."""
    rig.stage.call(Happening(Kind.GREEN, 20), END)
    await rig.begin_call(Happening(Kind.ERROR, 5), END, run_s=90, is_pushed=False)
    totals, now = await rig.counted(), rig.clock()
    hours = await HourlySums(rig.redis).between(now - timedelta(days=1), now, [KEY])
    sums = Sums()
    for hour in hours.by_hour.values():
        sums.add(hour)
    assert sums[Slot.STARTED] == totals.count(figure.CALLS_FOUND, institution=KEY) == 2
    assert sums[Slot.AUTHENTICATED] == 1
    assert sums.settled == totals.count(figure.CALLS_SETTLED, institution=KEY) == 2
    assert sum(sums.delays) == totals.spread(figure.DETECTION_LAG).n == 1
    assert sums[Slot.PROVIDER_ERRORS] > 0

"""Trouble of one endpoint (the queue, checks) does not stop the others."""

import pytest
from msgspec.structs import replace

from callkeeper.calls.notes import Distrusted
from callkeeper.calls.record import Phase, Reason
from callkeeper.calls.store.breakers import service_away
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import EAGER, KEY, Rig

REFUSED = '{"success": false, "error": "not allowed"}'
IDLE = [f"cu-{n}" for n in range(2, 10)]


@pytest.mark.parametrize("idle", [IDLE, []], ids=["eight idle institutions", "one institution"])
async def test_queue_that_fails_stops_no_check_and_no_effect(rig: Rig, idle: list[str]) -> None:
    """Only the queue answers 500, for everybody: verified callers are enrolled, distrusted ones rejected, all checked."""
    rig = Rig(rig.stage, rig.redis, EAGER)
    for key in idle:
        rig.stage.world.add_institution(key, key)
    script = (Happening(Kind.MFA_VALIDATED, 120), Happening(Kind.END, 295))
    numbers = [f"555010099{n}" for n in (6, 7, 8, 9)]
    for number in numbers:
        rig.stage.world.add_member(KEY, f"p-{number}", [number])
    verified = [rig.stage.call(*script, phone_number=number) for number in numbers[:3]]
    distrusted = await rig.begin_call(Happening(Kind.END, 295), phone_number="5550100999", run_s=15, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=500))
    await rig.run(60)
    assert await service_away(rig.redis) is None
    await rig.note(distrusted, Distrusted(operator="ann", said_at=rig.clock.now, token="t", wish="d" * 32))
    await rig.run(240)
    assert [rig.ledger(call).get("enroll") for call in verified] == [1, 1, 1]
    assert rig.ledger(distrusted)["reject_voice"] == 1
    assert all(rig.ledger(call)["check"] > 10 for call in verified)
    assert "service_away" not in {entry["event"] for entry in rig.log.entries}


QUEUE_FAULTS = {
    "401": Fault(target="queue", action=Action.UNAUTHORIZED, institution_key=KEY),
    "403": Fault(target="queue", action=Action.ANSWER, status=403, body=REFUSED, institution_key=KEY),
    "500": Fault(target="queue", action=Action.ANSWER, status=500, institution_key=KEY),
}


@pytest.mark.parametrize("fault", QUEUE_FAULTS.values(), ids=QUEUE_FAULTS)
async def test_pushed_call_is_handled_while_its_queue_is_not_listed(rig: Rig, fault: Fault) -> None:
    """While the queue is refused or fails, a pushed call is read by the id of its push, checked and settled (c12)."""
    rig.stage.world.add_institution("cu-2", "Second")
    await rig.begin_call(Happening(Kind.END, 600), key="cu-2", run_s=20, is_pushed=False)
    rig.stage.sandbox.faults.add(fault)
    await rig.run(20)
    call = rig.stage.call(Happening(Kind.GREEN, 60), Happening(Kind.END, 200))
    call.person_id = "p-1"  # somebody else has assigned it: candidates come with the queue only
    await rig.push(call)
    await rig.run(10)
    assert rig.ledger(call).get("read", 0) >= 1
    await rig.run(190)
    await rig.push(call, "CallEnd")
    await rig.run(30)
    record = await rig.record(call)
    assert (record.life.phase, record.life.reason) == (Phase.SETTLED, Reason.AUTHENTICATED)


async def test_invented_call_is_dropped_while_its_queue_is_not_listed(rig: Rig) -> None:
    """While the queue fails, a pushed id that the service does not know is read a few times, and dropped in two minutes."""
    await rig.run(20)
    rig.stage.sandbox.faults.add(QUEUE_FAULTS["500"])
    await rig.run(20)
    event = rig.event(rig.stage.call(Happening(Kind.END, 600)), "CallStart")
    await rig.intake.record(replace(event, voice_id="invented", alternate_voice_id=None), event_id="ev-x")
    await rig.run(120)
    assert await rig.find("invented") is None
    assert rig.stage.sandbox.ledger.entries.by_call["invented"].arrived["read"] <= 12


REFUSED_CHECK = '{"success": false, "error": "The voice provider is not available."}'
CHECK_FAULTS = {
    "refused": Fault(target="check", action=Action.ANSWER, status=200, body=REFUSED_CHECK),
    "503": Fault(target="check", action=Action.ANSWER, status=503),
}


@pytest.mark.parametrize("fault", CHECK_FAULTS.values(), ids=CHECK_FAULTS)
async def test_checks_that_fail_are_spared_until_one_is_answered(rig: Rig, fault: Fault) -> None:
    """Checks of six calls fail for 100 s while reads work: few are spent; afterwards all are checked again (e07)."""
    rig.stage.sandbox.faults.add(fault)
    calls = [rig.stage.call(Happening(Kind.END, 400)) for _ in range(6)]
    await rig.run(100)
    spent = [(await rig.record(call)).plan.checks_used for call in calls]
    assert sum(spent) <= 3 * 3 + 100 / 8 + 6
    assert sum(rig.ledger(call)["read"] for call in calls) > 40
    rig.stage.sandbox.faults.clear()
    await rig.run(15)
    assert all([(await rig.record(call)).plan.checks_used > before for call, before in zip(calls, spent, strict=True)])
    assert {"checks_away", "checks_back"} <= {entry["event"] for entry in rig.log.entries}


async def test_provider_that_answers_with_errors_is_spared(rig: Rig) -> None:
    """Every check answers with a provider error: after three calls' one call at a time tries, until one is answered."""
    calls = [rig.stage.call(Happening(Kind.ERROR, 1, "Provider timeout"), Happening(Kind.END, 400)) for _ in range(6)]
    await rig.run(100)
    assert sum([(await rig.record(call)).plan.checks_used for call in calls]) <= 3 + 100 / 8 + 6
    well = await rig.begin_call(Happening(Kind.GREEN, 5), Happening(Kind.END, 400), run_s=60, is_pushed=False)
    assert (await rig.record(well)).seen.authenticated
    assert "checks_back" in {entry["event"] for entry in rig.log.entries}


async def test_provider_error_of_one_call_throttles_nobody(rig: Rig) -> None:
    """One call's own error, however often, leaves the checks of all calls where they were planned."""
    bad = rig.stage.call(Happening(Kind.ERROR, 1, "Provider timeout"), Happening(Kind.END, 400))
    others = [rig.stage.call(Happening(Kind.END, 400)) for _ in range(2)]
    await rig.run(150)
    assert all(rig.ledger(call)["check"] >= 15 for call in (bad, *others))
    assert "checks_away" not in {entry["event"] for entry in rig.log.entries}


async def test_checks_of_one_call_that_fail_leave_some(rig: Rig) -> None:
    """Checks of a single call fail for 100 s while reads work: at most two thirds of them are spent."""
    rig.stage.sandbox.faults.add(CHECK_FAULTS["503"])
    call = await rig.begin_call(Happening(Kind.GREEN, 30), Happening(Kind.END, 400), run_s=100, is_pushed=False)
    assert (await rig.record(call)).plan.checks_used <= 12
    rig.stage.sandbox.faults.clear()
    await rig.run(30)
    assert (await rig.record(call)).seen.authenticated

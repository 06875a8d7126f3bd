"""The service shows the only matched member as the call's person before anybody has assigned or claimed the call."""

from dataclasses import replace as changed

import pytest

from callkeeper.calls.action_status import ActionState, ActionStatus, line_of, status_of
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.notes import AssignWish
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.integration.whole_calls.test_outcomes_told import verified

END = Happening(Kind.END, 60)
WISH = "a" * 32


@pytest.fixture(autouse=True, params=["person-prefilled", "person-prefilled-in-queue"])
def prefilled(rig: Rig, request: pytest.FixtureRequest) -> str:
    """Let the service show the only matched member."""
    rig.stage.sandbox.choose([request.param])
    return str(request.param)


def by_hand(rig: Rig) -> None:
    """Let the rules assign nobody without a person's word."""
    rig.tools = changed(rig.tools, book=changed(rig.book, assign=changed(rig.book.assign, automatic=False)))
    rig.shift.tools = rig.tools
    rig.book = rig.tools.book


def wish(rig: Rig, person_id: str = "p-1") -> AssignWish:
    """Return what a person says now."""
    return AssignWish(operator="ann", said_at=rig.clock.now, wish=WISH, person_id=person_id)


async def answer(rig: Rig, call: Call) -> ActionStatus:
    """Return what the person is told."""
    trail = await rig.trail(call)
    line = line_of(trail, WISH)
    assert line is not None
    return status_of(await rig.record(call), trail, line)


async def test_only_candidate_who_stands_on_the_record_is_assigned_once(rig: Rig) -> None:
    """Only an assign correlates the account (Spec: Rules per operation 1), so the person on the record is assigned."""
    call = await rig.begin_call(Happening(Kind.GREEN, 8), END, run_s=70, is_pushed=False)
    assert rig.ledger(call)["assign"] == 1
    assert call.aliases == ["cu-1-p-1"]
    record = await rig.record(call)
    assert (record.ledger.assign.state, record.ledger.assigned_person_id, record.plan.checks_used) == (
        EffectState.APPLIED,
        "p-1",
        1,
    )


async def test_person_on_a_record_that_an_operator_has_claimed_is_not_assigned(rig: Rig) -> None:
    """Whoever has claimed the call has assigned its person, or will."""
    call = await rig.begin_call(Happening(Kind.CLAIMED, 0, "elsewhere", "p-1"), END, run_s=70, is_pushed=False)
    assert rig.ledger(call).get("assign", 0) == 0


async def test_person_on_the_record_is_not_replaced_by_another(rig: Rig) -> None:
    """The law still forbids to replace a person whom we did not assign."""
    by_hand(rig)
    call = await rig.begin_call(END, run_s=10, is_pushed=False)
    await rig.note(call, wish(rig, "p-2"))
    await rig.run(10)
    held = await answer(rig, call)
    assert (held.state, held.reasons) == (ActionState.HELD, ("somebody_assigned",))
    assert rig.ledger(call).get("assign", 0) == 0


@pytest.mark.parametrize("script", [(), (Happening(Kind.GREEN, 8),)], ids=["undecided", "green"])
async def test_desk_may_assign_the_person_who_stands_there(rig: Rig, script: tuple[Happening, ...]) -> None:
    """It is sent under the operator's name, once, and told as done only then."""
    by_hand(rig)
    call = await rig.begin_call(*script, END, run_s=20, is_pushed=False)
    assert rig.ledger(call).get("assign", 0) == 0
    await rig.note(call, wish(rig))
    await rig.run(20)
    assert (call.aliases, call.core_username) == (["cu-1-p-1"], "ann")
    assert await answer(rig, call) == ActionStatus(ActionState.DONE, operator="ann")
    await rig.run(30)
    assert rig.ledger(call)["assign"] == 1


async def test_desk_may_assign_the_person_of_a_call_that_an_operator_has_claimed(rig: Rig) -> None:
    """A claim may have correlated nothing. The person stays, so nobody is replaced; the details are read first."""
    call = await rig.begin_call(Happening(Kind.CLAIMED, 0, "elsewhere", "p-1"), END, run_s=10, is_pushed=False)
    await rig.note(call, wish(rig))
    await rig.run(10)
    assert rig.ledger(call)["assign"] == 1
    assert (await answer(rig, call)).state is ActionState.DONE


@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "answer lost"])
async def test_operators_person_is_not_replaced_in_two_steps(rig: Rig, is_lost: bool) -> None:
    """To assign the person who stands there makes the operator's claim not ours: the next person is refused as before."""
    rig.stage.world.add_member("cu-1", "p-2", ["5550100222"])
    call = await rig.begin_call(Happening(Kind.CLAIMED, 0, "elsewhere", "p-1"), END, run_s=10, is_pushed=False)
    if is_lost:
        rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.RESET, applied=True, times=1))
    for person_id in ("p-1", "p-2"):
        await rig.note(call, AssignWish(operator="ann", said_at=rig.clock.now, wish=person_id, person_id=person_id))
        await rig.run(10)
    assert (call.person_id, rig.ledger(call)["assign"]) == ("p-1", 1)


@pytest.mark.parametrize("applied", [True, False])
async def test_lost_answer_is_not_confirmed_by_the_person_who_stood_there(rig: Rig, applied: bool) -> None:
    """The person alone proves nothing: the core username on the record tells whether our assign was carried out."""
    call = rig.stage.call(Happening(Kind.END, 200))
    rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.RESET, applied=applied, times=1))
    await rig.run(60)
    assert call.aliases == ["cu-1-p-1"]
    assert (await rig.record(call)).ledger.assign.attempts == (1 if applied else 2)


async def test_person_who_is_only_filled_in_is_not_enrolled(rig: Rig, prefilled: str) -> None:
    """Without an assign the account is not correlated. If details name the person, the service says who is assigned."""
    by_hand(rig)
    call = await rig.begin_call(Happening(Kind.END, 200), run_s=10)
    await rig.note(call, verified(rig))
    await rig.run(100)
    assert rig.ledger(call).get("enroll", 0) == (prefilled == "person-prefilled")


async def test_refused_assign_of_the_person_who_stands_there_is_tried_again_and_then_shown(rig: Rig) -> None:
    """As any refused assign: a few more times while nothing shows it, then it needs a person."""
    call = rig.stage.call(Happening(Kind.END, 200))
    body = '{"success": false, "error": "Try later."}'
    rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.REFUSED, body=body))
    await rig.run(120)
    record = await rig.record(call)
    assert (record.ledger.assign.state, record.ledger.assign.attempts) == (EffectState.REFUSED, 3)
    attention = await rig.redis.hget(rig.store.keys.attention, rig.call_id(call).member)
    assert attention == b"assign refused by the service: Try later."


@pytest.mark.parametrize("wished_at_s", [None, 190], ids=["never", "at the end"])
async def test_member_whom_nobody_assigned_is_not_enrolled_without_a_person(rig: Rig, wished_at_s: int | None) -> None:
    """Without an assign the account is not correlated, so that no check has compared the voice with the member's."""
    by_hand(rig)
    script = (Happening(Kind.MFA_VALIDATED, 30), Happening(Kind.END, 200))
    call = await rig.begin_call(*script, run_s=wished_at_s or 300)
    if wished_at_s is not None:
        await rig.note(call, wish(rig))
        await rig.run(100)
    assert rig.ledger(call)["check"] > 2
    assert "enroll" not in rig.ledger(call), call.aliases
    assert rig.call_id(call).member in await rig.queries.attention()

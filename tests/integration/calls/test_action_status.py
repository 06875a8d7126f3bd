"""Actions of people that cannot succeed, or could not before."""

from callkeeper.calls.action_status import ActionState, ActionStatus, line_of, status_of
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.notes import AssignWish, CheckWish
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig

END = Happening(Kind.END, 90)


async def told_of(rig: Rig, call: Call, wish: str) -> ActionStatus:
    """Return what became of a wish."""
    trail = await rig.trail(call)
    line = line_of(trail, wish)
    assert line is not None
    return status_of(await rig.record(call), trail, line)


async def test_check_that_the_stop_rule_forbids_is_declined_and_forgotten(rig: Rig) -> None:
    """Asked for when the voice is green: declined with the reason, once, and nothing waits for a check any more (E5)."""
    call = await rig.begin_call(Happening(Kind.GREEN, 5), END, run_s=20, is_pushed=False)
    made = rig.ledger(call)["check"]
    await rig.note(call, CheckWish(operator="ann", said_at=rig.clock.now, wish="w-1"))
    await rig.run(10)
    assert (await rig.record(call)).statements.check_wish is None
    assert (await rig.whats(call)).count("withdrawn check") == 1
    told = await told_of(rig, call, "w-1")
    assert (told, told.may_change) == (ActionStatus(ActionState.HELD, ("already_decided",)), False), (
        "nobody needs to poll"
    )
    assert rig.ledger(call)["check"] == made


async def test_person_who_assigns_after_a_refusal_is_heard(rig: Rig) -> None:
    """After the service refused our automatic assign for good, a person's assign of the same caller is sent once more."""
    rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.REFUSED, times=3))
    call = await rig.begin_call(END, run_s=30, is_pushed=False)
    assert (await rig.record(call)).ledger.assign.state is EffectState.REFUSED
    wish = AssignWish(person_id="p-1", operator="ann", said_at=rig.clock.now, wish="w-1")
    await rig.note(call, wish)
    await rig.run(5)
    record = await rig.record(call)
    assert (record.ledger.assign.state, record.ledger.assign.operator, record.ledger.assign.attempts) == (
        EffectState.APPLIED,
        "ann",
        4,
    )
    assert await told_of(rig, call, "w-1") == ActionStatus(ActionState.DONE, operator="ann")


async def test_assign_that_is_refused_again_and_again_ends(rig: Rig) -> None:
    """Three attempts of ours, then one for each statement of a person, who is told that it was refused."""
    rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.REFUSED))
    call = await rig.begin_call(END, run_s=30, is_pushed=False)
    assert rig.ledger(call)["assign"] == 3
    for n in range(2):
        await rig.note(call, AssignWish(person_id="p-1", operator="ann", said_at=rig.clock.now, wish=f"w-{n}"))
        await rig.run(10)
        assert (await told_of(rig, call, f"w-{n}")).state is ActionState.REFUSED
    await rig.run(30)
    assert rig.ledger(call)["assign"] == 5

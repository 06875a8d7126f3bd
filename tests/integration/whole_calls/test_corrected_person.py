"""A person at the desk says that the caller is another member than the one on the record, and it cannot be assigned."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as struct_replace

from callkeeper.calls.effect_resolution import ENROLLED_AS_ANOTHER
from callkeeper.calls.notes import AssignWish, Resolved, Withdrawn
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.integration.whole_calls.test_pause import pause, resume

H = Happening
BY_PASSCODE = (H(Kind.MFA_VALIDATED, 30), H(Kind.END, 60))


async def corrected(rig: Rig, call: Call) -> None:
    """Let Ann say that the caller is p-2."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    word = AssignWish(person_id="p-2", operator="ann", said_at=rig.clock.now, wish="a1")
    assert await rig.note(call, word, even_settled=True)


async def test_member_whom_the_desk_corrected_at_the_end_is_not_enrolled(rig: Rig) -> None:
    """The husband answers the passcode on his wife's telephone. Ann notices, but the call ends before the assign."""
    call = await rig.begin_call(*BY_PASSCODE, run_s=59.5)
    rig.stage.advance(0.75)
    await corrected(rig, call)
    await rig.run(120)
    assert (call.person_id, rig.ledger(call).get("enroll", 0)) == ("p-1", 0)


@pytest.mark.parametrize("at_s", [20, 40], ids=["before the passcode", "after it"])
async def test_member_whom_an_operator_claimed_is_not_enrolled_against_the_desk(rig: Rig, at_s: float) -> None:
    """An operator's person is not replaced. The passcode does not show who of the two the caller is."""
    call = await rig.begin_call(H(Kind.CLAIMED, 0, "zed", "p-1"), *BY_PASSCODE, run_s=at_s)
    await corrected(rig, call)
    await rig.run(140)
    assert (call.person_id, rig.ledger(call).get("enroll", 0)) == ("p-1", 0)


async def test_correction_that_is_taken_back_forbids_nothing(rig: Rig) -> None:
    """Then the passcode counts again."""
    call = await rig.begin_call(H(Kind.CLAIMED, 0, "zed", "p-1"), *BY_PASSCODE, run_s=40)
    await corrected(rig, call)
    await rig.run(5)
    await rig.note(call, Withdrawn(operator="ann", said_at=rig.clock.now, wish="w1", what="assign"))
    await rig.run(120)
    assert rig.ledger(call)["enroll"] == 1


@pytest.mark.parametrize("is_verified_again", [False, True])
async def test_last_word_about_who_the_caller_is_counts(rig: Rig, is_verified_again: bool) -> None:
    """Ann verifies p-1 during a pause, and corrects herself after the end."""
    call = await rig.begin_call(H(Kind.END, 60), run_s=30)
    await pause(rig)
    await rig.note(call, verified(rig))
    await rig.run(40)
    await corrected(rig, call)
    await rig.run(10)
    if is_verified_again:
        await rig.note(call, verified(rig, "e2"), even_settled=True)
    await resume(rig)
    await rig.run(60)
    assert rig.ledger(call).get("enroll", 0) == is_verified_again


async def test_member_who_was_taken_off_the_call_is_not_enrolled(rig: Rig) -> None:
    """Somebody elsewhere saw that the caller is not p-1, and does not know yet who it is."""
    call = await rig.begin_call(*BY_PASSCODE, run_s=50)
    call.person_id = None
    await rig.run(100)
    assert "enroll" not in rig.ledger(call)


async def test_passcode_of_the_member_before_verifies_no_other(rig: Rig) -> None:
    """Both come between two reads, and an assign leaves the status: the passcode may be p-1's, who is not the caller."""
    rig.stage.world.options = replace(rig.stage.world.options, assign_writes_status=False)
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    claimed = H(Kind.CLAIMED, 43, "zed", "p-2")
    call = await rig.begin_call(H(Kind.MFA_VALIDATED, 42), claimed, H(Kind.END, 90), run_s=60)
    verified_as = (await rig.record(call)).statements.identity
    assert verified_as is not None
    assert verified_as.person_id in {"", "p-1"}  # the latter if a check falls between the two
    await rig.run(60)
    assert "enroll" not in rig.ledger(call)


@pytest.mark.parametrize("at_s", [20, 300], ids=["in the call", "after it was settled"])
@pytest.mark.parametrize("how", ["assign", "verified"])
async def test_correction_that_comes_after_the_enroll_is_put_before_a_person(rig: Rig, how: str, at_s: float) -> None:
    """Ann has mistaken p-2 for p-1. Neither can be undone here, and the voice of p-2 stands for p-1 now."""
    call = await rig.begin_call(H(Kind.END, 60), run_s=10)
    await rig.note(call, verified(rig))
    await rig.run(at_s)
    assert (call.manual_person_id, await rig.queries.attention()) == ("p-1", {})
    if how == "assign":
        await corrected(rig, call)
    else:
        await rig.note(call, struct_replace(verified(rig, "e2"), person_id="p-2"), even_settled=True)
    await rig.run(100)
    assert call.manual_person_id == "p-1"
    assert list((await rig.queries.attention()).values()) == [ENROLLED_AS_ANOTHER]
    await rig.note(call, verified(rig, "e3"), even_settled=True)
    withdrawn = Withdrawn(operator="ann", said_at=rig.clock.now, wish="w1", what="assign")
    await rig.note(call, withdrawn, even_settled=True)
    await rig.run(10)
    assert not await rig.queries.attention(), "she was right in the first place"


async def test_member_who_is_changed_after_the_enroll_is_told_whatever_the_desk_said_before(rig: Rig) -> None:
    """Ann has verified p-1 and asked to assign p-1. Neither answers Zed, who finds out later that it was p-2."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = await rig.begin_call(H(Kind.END, 100), run_s=5)
    await rig.note(call, verified(rig))
    await rig.note(call, AssignWish(person_id="p-1", operator="ann", said_at=rig.clock.now, wish="a1"))
    await rig.run(20)
    assert (call.manual_person_id, await rig.queries.attention()) == ("p-1", {})
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(200)
    assert list((await rig.queries.attention()).values()) == [ENROLLED_AS_ANOTHER]


async def test_another_change_after_the_enroll_is_a_new_question(rig: Rig) -> None:
    """Bob has seen that Ann mistyped the member. That Zed puts p-2 on the call later, he has not seen."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = await rig.begin_call(H(Kind.END, 200), run_s=10)
    await rig.note(call, verified(rig))
    await rig.run(20)
    await rig.note(call, struct_replace(verified(rig, "e2"), person_id="p-l"))
    await rig.run(10)
    assert list((await rig.queries.attention()).values()) == [ENROLLED_AS_ANOTHER]
    await rig.note(call, Resolved(operator="bob", said_at=rig.clock.now, wish="seen", applied=False))
    await rig.run(10)
    assert not await rig.queries.attention()
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(100)
    assert list((await rig.queries.attention()).values()) == [ENROLLED_AS_ANOTHER]

"""Assign returns another id than the queue listed, "to use afterwards" (Spec: Rules per operation 1)."""

from collections.abc import Sequence
from dataclasses import replace as changed
from datetime import timedelta

import pytest

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import AssignWish, CheckWish, Distrusted
from callkeeper.calls.record import CHECK_LIMIT, Call, Reason
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import PHONE
from workers.effects import TWO_RECORDS

END = Happening(Kind.END, 90)


@pytest.fixture(autouse=True)
def moves(rig: Rig) -> None:
    """Let the queue list the alternate id until somebody is assigned."""
    rig.stage.world.options = changed(rig.stage.world.options, moves_id=True)


async def both(rig: Rig, call: SandboxCall) -> Sequence[Call | None]:
    """Return what is found under the call's voice id and under the id that the queue listed first."""
    return [await rig.find(call.voice_id), await rig.find(call.alternate_id)]


@pytest.mark.parametrize("is_pushed", [True, False])
async def test_call_goes_on_under_the_id_that_assign_returned(rig: Rig, is_pushed: bool) -> None:
    """One record under the new id, found by both; one assign, each check counted once."""
    call = rig.stage.call(Happening(Kind.GREEN, 20), END)
    if is_pushed:
        await rig.push(call)
    await rig.run(100)
    new, old = await both(rig, call)
    assert new is not None
    assert new == old
    assert (new.voice_id, new.life.reason, new.ledger.assign.state) == (
        call.voice_id,
        Reason.AUTHENTICATED,
        EffectState.CONFIRMED,
    )
    assert rig.ledger(call)["assign"] == 1
    assert rig.ledger(call)["check"] == new.plan.checks_used <= CHECK_LIMIT


@pytest.mark.parametrize("is_pushed", [True, False])
async def test_person_chooses_the_member_of_a_call_that_goes_on_under_another_id(rig: Rig, is_pushed: bool) -> None:
    """A household: nobody is assigned before Bob says who calls, and details answer under the id of later only."""
    rig.stage.world.add_member(KEY, "p-2", [PHONE])
    call = await rig.begin_call(END, run_s=20, is_pushed=is_pushed)
    chosen = AssignWish(operator="bob", said_at=rig.clock.now, person_id="p-2", wish="a1")
    await rig.store.note(CallId(KEY, call.alternate_id), chosen)
    await rig.run(20)
    new, old = await both(rig, call)
    assert new is not None
    assert (new, call.person_id, new.ledger.assign.state) == (old, "p-2", EffectState.CONFIRMED)


@pytest.mark.parametrize("other", ["another number", pytest.param("another start", marks=pytest.mark.night)])
async def test_id_of_another_call_is_not_followed(rig: Rig, other: str) -> None:
    """The record under the returned id has another number or start: the service mixed up two calls, a person looks."""
    call = await rig.begin_call(END, run_s=0.4, is_pushed=False)
    if other == "another number":
        call.phone_number = "5550177777"
    else:
        call.started_at -= timedelta(minutes=5)
    await rig.run(900)
    record = await rig.find(call.alternate_id)
    assert record is not None
    assert (record.voice_id, record.ledger.assign.state) == (call.alternate_id, EffectState.UNRESOLVED)
    assert record.plan.checks_used == 0


async def test_person_is_asked_if_somebody_has_spoken_about_the_other_record(rig: Rig) -> None:
    """Under the returned id a pushed call is known about which a person has spoken: they are not merged by themselves."""
    call = rig.stage.call(END)
    await rig.push(call, alternate_voice_id=None)
    await rig.note(call, CheckWish(operator="ann", said_at=rig.clock.now, wish="a" * 32))
    await rig.run(0.2)
    await rig.run(10)
    record = await rig.find(call.alternate_id)
    assert record is not None
    assert record.voice_id == call.alternate_id
    assert record.ledger.assign.state is EffectState.UNRESOLVED
    assert f"asked by rule {TWO_RECORDS!r}" in (await rig.queries.attention()).values()


@pytest.mark.parametrize("is_pushed", [True, False])
async def test_call_that_another_tool_assigned_goes_on_under_its_voice_id(rig: Rig, is_pushed: bool) -> None:
    """The record under the alternate id is not told as lost after hours, and what people said under it counts."""
    rig.stage.world.add_member(KEY, "p-2", [PHONE])
    claimed = Happening(Kind.CLAIMED, 20, "zed", "p-1")
    call = await rig.begin_call(claimed, END, run_s=15, is_pushed=is_pushed)
    said = Distrusted(operator="ann", said_at=rig.clock.now, wish="a" * 32)
    await rig.store.note(CallId(KEY, call.alternate_id), said)
    await rig.run(150)
    new, old = await both(rig, call)
    assert new is not None
    assert new == old
    assert (new.voice_id, new.life.reason) == (call.voice_id, Reason.REJECTED)
    assert rig.ledger(call)["reject_voice"] == 1

"""Calls are handled the same way if pushes are lost, doubled, early, late, foreign or wrong."""

from typing import Any

import pytest

from callkeeper.calls.record import Phase, Reason
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig

END = Happening(Kind.END, 40)


async def test_end_without_a_push_settles_the_call(rig: Rig) -> None:
    """If CallEnd is lost, stored details show the end, and the call settles (B3)."""
    call = await rig.begin_call(END, run_s=60)
    assert (await rig.record(call)).life.reason is Reason.UNDECIDED


async def test_start_without_a_push_is_found_in_the_queue(rig: Rig) -> None:
    """If CallStart is lost, a listing finds the call within 10 s, and it is assigned (B4)."""
    await rig.run(1)
    call = await rig.begin_call(END, run_s=10, is_pushed=False)
    assert rig.ledger(call)[Operation.ASSIGN] == 1


async def test_two_calls_from_one_number_are_two_flows(rig: Rig) -> None:
    """Each of two calls from one number is assigned by its own voice id and has its own checks (B5)."""
    first, second = rig.stage.call(END), rig.stage.call(END)
    await rig.push(first)
    await rig.push(second)
    await rig.run(20)
    for call in (first, second):
        assert call.person_id == "p-1"
        assert rig.ledger(call)[Operation.ASSIGN] == 1
        assert (await rig.record(call)).plan.checks_used == rig.ledger(call)[Operation.CHECK]


@pytest.mark.parametrize("alternate_first", [True, False])
async def test_alternate_id_and_voice_id_are_one_flow(rig: Rig, alternate_first: bool) -> None:
    """A call that is pushed under its alternate id and under its voice id is one flow with one budget (B6)."""
    call = rig.stage.call(Happening(Kind.END, 120), listed_after_s=2)
    pushes: list[dict[str, Any]] = [{"voice_id": None}, {"alternate_voice_id": None}]
    for changes in pushes if alternate_first else reversed(pushes):
        await rig.push(call, **changes)
        await rig.run(1)
    await rig.run(100)
    seen = rig.ledger(call)
    assert seen[Operation.ASSIGN] == 1
    assert (await rig.record(call)).plan.checks_used == seen[Operation.CHECK] <= 18
    await rig.run(60)
    assert (await rig.record(call)).life.phase is Phase.SETTLED
    forwarded = await rig.find(call.alternate_id)
    assert forwarded is None or forwarded.voice_id == call.voice_id


async def test_sample_push_touches_nothing(rig: Rig) -> None:
    """A push with IsTest true is logged and leads to no note, call or request (B7)."""
    call = rig.stage.call(END, listed_after_s=1000)
    await rig.push(call, is_test=True)
    assert await rig.redis.zrange(rig.store.keys.due, 0, -1) == []
    await rig.run(15)
    assert await rig.find(call.voice_id) is None
    assert rig.ledger(call) == {}
    assert b'"is_test":true' in (await rig.redis.zrange(rig.store.keys.events, 0, -1))[0]


async def test_push_of_an_unknown_type_is_logged_and_ignored(rig: Rig) -> None:
    """A push of a type that the Spec does not name is recorded and has no other effect (B8)."""
    call = rig.stage.call(END, listed_after_s=1000)
    await rig.push(call, kind="CallTransferred")
    assert await rig.redis.zrange(rig.store.keys.due, 0, -1) == []
    await rig.run(15)
    assert await rig.find(call.voice_id) is None
    assert rig.ledger(call) == {}
    assert len(await rig.redis.zrange(rig.store.keys.events, 0, -1)) == 1

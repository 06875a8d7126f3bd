"""People's statements about a call: the last one counts, each takes effect once, and none is lost."""

import itertools
from typing import Any

import pytest
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import AssignWish, CheckWish, Statement, Verified
from callkeeper.calls.store.claims import Store
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig

END = Happening(Kind.END, 300)
PAIRS = [("ann", "bob"), ("bob", "ann"), ("agent-7", "agent-8"), ("x", "a-much-longer-name"), ("ann", "ann")]
WISHES = (f"{n:032x}" for n in itertools.count(1))


def who(rig: Rig, operator: str, person: str) -> list[Statement]:
    """Return two statements: the caller is this person, and was verified as such."""
    said: dict[str, Any] = {"operator": operator, "said_at": rig.clock.now}
    return [
        AssignWish(person_id=person, wish=next(WISHES), **said),
        Verified(person_id=person, validation_type="Other", wish=next(WISHES), **said),
    ]


async def unassigned(rig: Rig) -> SandboxCall:
    """Return a live call that nobody is assigned to."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100002"])
    return await rig.begin_call(END, persons=[], run_s=20, is_pushed=False)


@pytest.mark.parametrize("operators", PAIRS, ids="-".join)
async def test_correction_beats_the_statement_that_it_corrects(
    rig: Rig, redis: Redis, operators: tuple[str, str]
) -> None:
    """Of two statements that wait together the one that Redis received later counts, whichever process took it."""
    call = await unassigned(rig)
    other_process = Store(redis, now_ms=rig.now_ms)
    for statement in who(rig, operators[0], "p-1"):
        await rig.note(call, statement)
    for statement in who(rig, operators[1], "p-2"):
        await other_process.note(CallId(KEY, call.voice_id), statement)
    await rig.run(15)
    assert (await rig.record(call)).seen.person_id == "p-2"
    assert {verified.person_id for verified in call.verifications} == {"p-2"}
    heard = [(line.kind, line.person_id) for line in await rig.trail(call) if line.what == "said"]
    assert heard == [("assign", "p-1"), ("verified", "p-1"), ("assign", "p-2"), ("verified", "p-2")]


async def test_repetition_of_a_statement_does_not_beat_its_correction(rig: Rig) -> None:
    """The client repeats a script whose answer was lost, after a correction came in: the correction stays."""
    call = await unassigned(rig)
    first, second = who(rig, "ann", "p-1"), who(rig, "ann", "p-2")
    for statement in (*first, *second, *first):
        assert await rig.note(call, statement)
    await rig.run(5)
    for statement in first:
        assert await rig.note(call, statement)
    await rig.run(10)
    assert (await rig.record(call)).seen.person_id == "p-2"
    assert {verified.person_id for verified in call.verifications} == {"p-2"}
    assert [line.what for line in await rig.trail(call)].count("said") == 4


async def test_statement_is_folded_once(rig: Rig) -> None:
    """A statement that the client repeats after it was folded causes nothing more: one check, one assign."""
    call = await rig.begin_call(END, run_s=4, is_pushed=False)
    before = rig.ledger(call).get("check", 0)
    wish = CheckWish(operator="ann", said_at=rig.clock.now, wish=next(WISHES))
    for _ in range(2):
        assert await rig.note(call, wish)
        await rig.run(0.25)
    assert rig.ledger(call)["check"] == before + 1
    assert [line.what for line in await rig.trail(call)].count("said") == 1


async def test_repeated_assign_that_was_refused_is_sent_three_times(rig: Rig) -> None:
    """One statement asks three times for an assign that the service refuses, however often the client repeats it."""
    rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.REFUSED))
    call = await rig.begin_call(END, persons=[], run_s=4, is_pushed=False)
    wish = AssignWish(person_id="p-1", operator="ann", said_at=rig.clock.now, wish=next(WISHES))
    for _ in range(2):
        assert await rig.note(call, wish)
        await rig.run(20)
    assert rig.ledger(call)["assign"] == 3

"""A call that ended before the queue listed it gets a record: its details are read once, within an allowance."""

from msgspec.structs import replace

from callkeeper.calls.record import Phase, Reason
from callkeeper.calls.store.last_listing import LOOK_BACKS_A_MINUTE
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig


def reads(rig: Rig) -> int:
    """Return how many reads of details the service saw."""
    return rig.stage.sandbox.ledger.entries.totals.arrived.get("read", 0)


async def test_call_of_one_second_leaves_a_settled_record(rig: Rig) -> None:
    """Only its end was pushed, no queue ever listed it: one read, and the record says how it ended."""
    await rig.run(30)
    call = rig.stage.call(Happening(Kind.END, 1))
    rig.stage.advance(2)
    await rig.push(call, "CallEnd")
    await rig.run(30)
    record = await rig.record(call)
    assert (record.life.phase, record.life.reason) == (Phase.SETTLED, Reason.UNASSIGNED)
    assert rig.ledger(call) == {"read": 1}
    whats = await rig.whats(call)
    assert (whats.count("ended"), whats[-1]) == (1, "settled")


async def test_call_with_both_pushes_is_read_once_too(rig: Rig) -> None:
    """Start and end come together, twice: still one read, one record."""
    await rig.run(30)
    call = rig.stage.call(Happening(Kind.END, 1))
    rig.stage.advance(2)
    for kind in ("CallStart", "CallEnd", "CallEnd"):
        await rig.push(call, kind)
    await rig.run(30)
    assert (await rig.record(call)).is_settled
    assert rig.ledger(call)["read"] == 1


async def test_start_that_no_queue_lists_is_not_read(rig: Rig) -> None:
    """Without a pushed end there is no read, and the hint is dropped."""
    await rig.run(30)
    ghost = await rig.begin_call(Happening(Kind.END, 600), listed_after_s=500, run_s=30)
    assert await rig.find(ghost.voice_id) is None
    assert "read" not in rig.ledger(ghost)


async def test_forged_ends_cause_no_more_reads_than_the_limit(rig: Rig) -> None:
    """Pushed ends of invented calls wait for their turn, cause the allowed reads per minute at most, and leave no record."""
    await rig.run(30)
    before, minute = reads(rig), 60 - rig.stage.clock.now.second
    for n in range(LOOK_BACKS_A_MINUTE + 20):
        event = PushEvent(type="CallEnd", institution_key=KEY, voice_id=f"forged-{n}")
        await rig.intake.record(event, event_id=f"forged-{n}")
    await rig.run(minute - 1)
    assert reads(rig) - before == LOOK_BACKS_A_MINUTE
    await rig.run(80)
    assert reads(rig) - before == LOOK_BACKS_A_MINUTE + 20
    assert await rig.find("forged-0") is None
    assert sum(entry["event"] == "hint_dropped" for entry in rig.log.entries) == LOOK_BACKS_A_MINUTE + 20


async def test_look_back_that_fails_is_repeated(rig: Rig) -> None:
    """An answer that says nothing of the call does not end it."""
    await rig.run(30)
    call = rig.stage.call(Happening(Kind.END, 1))
    rig.stage.advance(2)
    rig.stage.sandbox.faults.add(Fault(target="read", action=Action.ANSWER, status=500, times=2))
    await rig.push(call, "CallEnd")
    await rig.run(60)
    assert (await rig.record(call)).is_settled
    assert rig.ledger(call)["read"] == 3


async def test_look_back_that_is_refused_is_not_repeated(rig: Rig) -> None:
    """The refusal of one call would be given again, and each read would take the turn of another call."""
    await rig.run(30)
    call = rig.stage.call(Happening(Kind.END, 1))
    rig.stage.advance(2)
    rig.stage.sandbox.faults.add(Fault(target="read", action=Action.ANSWER, status=400))
    await rig.push(call, "CallEnd")
    await rig.run(120)
    assert await rig.find(call.voice_id) is None
    assert rig.ledger(call)["read"] == 1


async def test_end_of_another_resellers_call_is_not_read(rig: Rig) -> None:
    """Nothing is asked for an institution that is not ours."""
    await rig.run(30)
    call = rig.stage.call(Happening(Kind.END, 1))
    rig.stage.advance(2)
    await rig.intake.record(replace(rig.event(call, "CallEnd"), institution_key="cu-nowhere"), event_id="nowhere")
    await rig.run(30)
    assert rig.ledger(call) == {}

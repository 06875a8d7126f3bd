"""A call that is another member's than it seemed: what the voice showed of the first is no evidence about the second."""

from redis.asyncio import Redis

from callkeeper.desk.board.states import state_of
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import DEMO, EAGER, KEY, Rig
from tests.records import facts_of_record
from tests.sandbox_fixtures import Asgi


def correct(rig: Rig, call: Call) -> None:
    """Let an operator elsewhere put p-2 on the call, of whose voice the service shows nothing."""
    rig.stage.happen(call, Kind.CLAIMED, "agent-9", "p-2")
    call.policies = call.provider.policies = []
    call.voice_validated = call.fully_authenticated = call.is_mismatch = call.provider.is_mismatch = False


async def test_voice_of_one_member_authenticates_no_other(rig: Rig) -> None:
    """A caller who is authenticated as himself and then treated as another member is not green, and is checked anew."""
    call = rig.stage.call(Happening(Kind.GREEN, 5), Happening(Kind.END, 300))
    await rig.push(call)
    await rig.run(60)
    record = await rig.record(call)
    assert facts_of_record(record, rig.book.policies).green
    checks = record.plan.checks_used
    correct(rig, call)
    await rig.run(60)
    record = await rig.record(call)
    assert record.seen.person_id == "p-2"
    assert not facts_of_record(record, rig.book.policies).green
    assert record.plan.checks_used > checks


async def test_enroll_of_one_member_vouches_for_no_other(sandbox_asgi: Asgi, redis: Redis) -> None:
    """An agent who is told that a person verified the caller must not be told so of somebody else."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = rig.stage.call(Happening(Kind.MFA_VALIDATED, 5), Happening(Kind.END, 900))
    await rig.push(call)
    await rig.run(500)
    assert rig.ledger(call)["enroll"] == 1
    assert facts_of_record(await rig.record(call), rig.book.policies).manual
    correct(rig, call)
    await rig.run(100)
    record = await rig.record(call)
    facts = facts_of_record(record, rig.book.policies)
    assert (record.seen.person_id, facts.enrolled, facts.manual) == ("p-2", True, False)
    assert record.ledger.enrolled_for == "p-1"
    assert state_of(record, rig.book).for_person


async def test_mismatch_with_one_member_rejects_no_other(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The number's only candidate was the wrong person. The voice was not theirs, which says nothing of the right one."""
    rig = Rig(sandbox_asgi, redis, DEMO)
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = rig.stage.call(Happening(Kind.MISMATCH, 3), Happening(Kind.END, 200))
    await rig.push(call)
    await rig.run(20)
    assert (await rig.record(call)).seen.mismatch
    correct(rig, call)
    rig.stage.happen(call, Kind.HIGH_RISK)
    await rig.run(100)
    record = await rig.record(call)
    assert (record.seen.person_id, record.seen.mismatch, record.seen.risky_device) == ("p-2", False, True)
    assert "reject_voice" not in rig.ledger(call)

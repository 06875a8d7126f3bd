"""Rejects and findings of fraud that a later status of the service hides."""

import pytest
from msgspec.structs import replace

from callkeeper.calls.notes import Distrusted
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.courier import Courier
from tests.harness.virtual_time import Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.records import facts_of_record

H = Happening


async def live(rig: Rig, *script: Happening, run: float = 30, end: float = 900) -> Call:
    """Push a call and let it run for some seconds."""
    return await rig.begin_call(*script, H(Kind.END, end), run_s=run)


@pytest.mark.parametrize("gap", [1, pytest.param(2, marks=pytest.mark.night), pytest.param(4, marks=pytest.mark.night)])
async def test_reject_elsewhere_just_before_the_end(rig: Rig, gap: int) -> None:
    """A colleague presses reject in another tool. The end, or another activity, hides the status, but not the feedback."""
    call = await live(rig, H(Kind.MFA_VALIDATED, 60), H(Kind.REJECTED, 200 - gap, "agent-9"), end=200, run=300)
    assert call.rejected
    assert "FAILED" in call.feedback
    assert "enroll" not in rig.ledger(call)


@pytest.mark.parametrize("gap", [1, pytest.param(4, marks=pytest.mark.night), 30])
async def test_reject_that_only_its_feedback_shows_is_remembered_in_the_next_call(rig: Rig, gap: int) -> None:
    """The caller tries again with a passcode, and is not enrolled, whether or not we read the status in time (gap 30)."""
    first = await live(rig, H(Kind.MFA_VALIDATED, 60), H(Kind.REJECTED, 200 - gap, "agent-9"), end=200, run=300)
    second = await live(rig, H(Kind.MFA_VALIDATED, 60), end=200, run=300)
    assert first.rejected
    assert "enroll" not in rig.ledger(second)
    facts = facts_of_record(await rig.record(second), rig.book.policies)
    assert facts.rejected_before or facts.suspected_before


@pytest.mark.parametrize(("gap", "others"), [(1, 0), pytest.param(5, 40, marks=pytest.mark.night), (30, 0)])
async def test_enroll_that_a_hidden_reject_took_back_is_not_told_as_enrolled(
    courier: Courier, gap: int, others: int
) -> None:
    """The record has FAILED feedback, and the policy of the enroll is gone: the call is not settled as enrolled."""
    call = courier.stage.call(H(Kind.REJECTED, 200 - gap, "agent-9"), H(Kind.END, 200))
    for n in range(others):  # then decided calls are read rarely
        courier.stage.call(H(Kind.END, 900), phone_number=f"555020{n:04}")
    await courier.run(8)
    await courier.note(call, verified(courier))
    await courier.run(300)
    assert call.manual_person_id is None
    told = [one for one in courier.receiver.taken if one["data"]["voice_id"] == call.voice_id]
    assert told[-1]["type"] == "call.settled"
    assert told[-1]["data"]["reason"] in {"unenrolled", "rejected"}


@pytest.mark.parametrize("gap", [0.1, pytest.param(2, marks=pytest.mark.night), 30])
async def test_enroll_that_a_hidden_reject_took_back_in_another_call_is_told(courier: Courier, gap: float) -> None:
    """A reject takes back the member's enrolls in all calls: the other ones are looked at again."""
    first = courier.stage.call(H(Kind.END, 60))
    await courier.run(8)
    await courier.note(first, verified(courier))
    await courier.run(100)
    second = courier.stage.call(H(Kind.REJECTED, 200 - gap, "agent-9"), H(Kind.END, 200))
    await courier.push(second)
    await courier.run(1000)
    assert first.manual_person_id is None
    told = [one["type"] for one in courier.receiver.taken if one["data"]["voice_id"] == first.voice_id]
    assert told[-1] == "call.unenrolled"


async def test_determined_fraud_is_remembered_when_its_case_is_archived(rig: Rig) -> None:
    """SystemArchived says that nobody works on the case, not that it was no fraud."""
    script = H(Kind.MFA_VALIDATED, 60), H(Kind.CASE, 70, "DeterminedFraud"), H(Kind.CASE, 120, "SystemArchived")
    call = await live(rig, *script, end=200, run=300)
    assert "enroll" not in rig.ledger(call)


async def fraud_seen(rig: Rig, *script: Happening) -> Call:
    """Let a call run in which an investigator determined fraud, until we have read that."""
    call = rig.stage.call(*script, H(Kind.CASE, 70, "DeterminedFraud"), H(Kind.END, 200))
    await rig.push(call)
    await rig.run(120)
    assert facts_of_record(await rig.record(call), rig.book.policies).fraud
    return call


def hide(rig: Rig, call: Call, how: str) -> None:
    """Let the record show no case any more, or one about another call."""
    if how == "null":
        call.research_status = call.research_voice_id = None
    else:
        rig.stage.happen(call, Kind.CASE_ELSEWHERE, "NeedsReview")


@pytest.mark.parametrize("how", ["null", "a case about another call"])
async def test_impostor_whom_an_investigator_found_is_not_enrolled(rig: Rig, how: str) -> None:
    """SystemArchived keeps the finding. That no case, or another one, is shown refutes it no more."""
    call = await fraud_seen(rig, H(Kind.MFA_VALIDATED, 60))
    hide(rig, call, how)
    await rig.run(300)
    assert "enroll" not in rig.ledger(call)


@pytest.mark.parametrize("how", ["null", "a case about another call"])
async def test_fraud_is_remembered_for_the_next_call(rig: Rig, how: str) -> None:
    """The mark `fraud_before` was stored, and is taken back as if it had been a mistake."""
    first = await fraud_seen(rig)
    hide(rig, first, how)
    await rig.run(150)
    second = rig.stage.call(H(Kind.MFA_VALIDATED, 60), H(Kind.END, 200))
    await rig.push(second)
    await rig.run(300)
    assert "enroll" not in rig.ledger(second)


async def test_our_reject_after_a_hidden_one_is_followed_up_in_the_members_other_calls(courier: Courier) -> None:
    """The first one was followed up. The member was verified and enrolled since, and Bob's distrust takes that back."""
    first = courier.stage.call(H(Kind.REJECTED, 48, "agent-9"), H(Kind.END, 50))
    await courier.run(100)
    second = courier.stage.call(H(Kind.END, 60))
    await courier.run(20)
    await courier.note(second, replace(verified(courier), despite=("suspected_before",)))
    await courier.run(1500)
    bob = Distrusted(operator="bob", said_at=courier.clock.now, reason="impostor", wish="r1")
    await courier.note(first, bob, even_settled=True)
    await courier.run(100)
    assert second.manual_person_id is None
    told = [one["type"] for one in courier.receiver.taken if one["data"]["voice_id"] == second.voice_id]
    assert told == ["call.enrolled", "call.settled", "call.unenrolled"]

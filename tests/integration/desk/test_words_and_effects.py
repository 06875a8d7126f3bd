"""People's words beside effects that were sent, refused, taken back or not proved, and what the desk then says of them."""

from dataclasses import replace

import pytest

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.facts import Facts
from callkeeper.calls.notes import Merged
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.record import Call as Record
from callkeeper.calls.record import CallStatement, CallStatements, Life, Reason
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.pausing import Pausing
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.desk import OPERATOR, DeskRig, desk
from tests.harness.virtual_time import KEY, Rig
from tests.records import facts_of_record

__all__ = ["desk"]
H, OTP = Happening, {"person_id": "p-1", "validation_type": "OneTimePasswordAuth"}


async def live(rig: Rig, *script: Happening, run: float = 30, end: float = 900) -> Call:
    """Push a call and let it run for some seconds."""
    return await rig.begin_call(*script, H(Kind.END, end), run_s=run)


def facts(rig: Rig, record: Record) -> Facts:
    """Derive the facts of a record."""
    return facts_of_record(record, rig.book.policies)


async def pause(rig: Rig) -> None:
    """Let a person pause effects."""
    await Pausing(rig.redis).pause(
        None, Pause(scope=PauseScope.EFFECTS, operator="jane", because="drill", at=rig.clock.now)
    )


async def resume(rig: Rig) -> None:
    """Let a person resume them."""
    assert await Pausing(rig.redis).resume(None, operator="jane", because="done", at=rig.clock.now)


@pytest.mark.parametrize("how", ["refused", "unresolved"])
async def test_distrust_that_was_not_carried_out_warns_later_calls(desk: DeskRig, how: str) -> None:
    """The service refused the reject, or nobody knows its outcome. Neither clears the caller."""
    cut = how == "unresolved"
    desk.stage.sandbox.faults.add(
        Fault(target="reject_voice", action=Action.CUT if cut else Action.REFUSED, applied=True if cut else None)
    )
    one = await live(desk, end=100)
    await desk.say(one, "distrusted", reason="not her")
    await desk.run(0.25)
    desk.stage.happen(one, Kind.VIEWED)
    await desk.run(300)
    assert (await desk.record(one)).ledger.reject.state.value == how
    two = await live(desk, H(Kind.MFA_VALIDATED, 30), end=200, run=300)
    assert "enroll" not in desk.ledger(two)


async def test_nobody_is_enrolled_while_a_reject_is_unresolved(desk: DeskRig) -> None:
    """It may have been carried out. Taking the distrust back does not take the reject back."""
    call = await live(desk, end=400)
    desk.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.CUT, applied=True))
    await desk.say(call, "distrusted", reason="x")
    await desk.run(0.25)
    desk.stage.happen(call, Kind.MFA_VALIDATED)  # hides RejectCallerVoice
    await desk.run(60)
    assert call.rejected
    assert (await desk.record(call)).ledger.reject.state is EffectState.UNRESOLVED
    await desk.say(call, "withdraw", what="distrusted", reason="a mistake")
    await desk.run(500)
    assert "enroll" not in desk.ledger(call)


async def test_old_status_is_not_ascribed_to_the_present_member(desk: DeskRig) -> None:
    """p-1 proved a passcode. What an agent says of p-2, and takes back, does not hand it on."""
    desk.stage.world.options = replace(desk.stage.world.options, assign_writes_status=False)
    desk.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = await live(desk, H(Kind.MFA_VALIDATED, 60), end=300, run=80)
    desk.stage.happen(call, Kind.CLAIMED, "agent-9", "p-2")
    await desk.run(20)
    await desk.say(call, "verified", person_id="p-2", validation_type="KnowledgeBasedAuth")
    await desk.say(call, "withdraw", what="verified")
    await desk.run(400)
    assert "enroll" not in desk.ledger(call)  # p-1 proved a passcode, p-2 nothing


async def test_withdrawal_leaves_what_the_service_established(desk: DeskRig) -> None:
    """The passcode counted before, and counts again."""
    call = await live(desk, H(Kind.MFA_VALIDATED, 30), H(Kind.VIEWED, 60), end=300, run=100)
    await pause(desk)
    await desk.say(call, "verified", person_id="p-1", validation_type="KnowledgeBasedAuth")
    await desk.say(call, "withdraw", what="verified")
    await desk.run(20)
    await resume(desk)
    await desk.run(300)
    assert desk.ledger(call).get("enroll") == 1


async def test_policy_that_is_gone_though_the_status_stayed(desk: DeskRig) -> None:
    """The status FullAuthentication is older than the reject and shows no new enroll."""
    desk.stage.world.options = replace(desk.stage.world.options, unenroll_writes_status=False)
    call = await live(desk, end=1900)
    await desk.say(call, "verified", **OTP)
    await desk.run(60)
    other = await live(desk, end=1900)
    await desk.say(other, "distrusted", reason="x")
    await desk.run(900)
    assert call.manual_person_id is None
    assert not facts(desk, await desk.record(call)).manual


async def test_enroll_vouches_for_whom_it_was_sent(desk: DeskRig) -> None:
    """The member is changed before the answer of the enroll is recorded."""
    call = await live(desk)
    await desk.say(call, "verified", **OTP)
    desk.stage.sandbox.faults.add(Fault(target="read", skip=1, times=1, happening=H(Kind.CLAIMED, 0, "agent-9", "p-2")))
    await desk.run(10)
    record = await desk.record(call)
    assert (record.ledger.enroll.person_id, record.seen.person_id) == ("p-1", "p-2")
    assert (record.ledger.enrolled_for, facts(desk, record).manual) == ("p-1", False)


async def test_verification_after_an_enroll_was_taken_back(desk: DeskRig) -> None:
    """Nothing is in force: the law holds it."""
    call = await live(desk)
    await desk.say(call, "verified", **OTP)
    await desk.run(30)
    desk.stage.happen(call, Kind.UNENROLLED, "x")
    await desk.run(30)
    said = await desk.say(call, "verified", person_id="p-1", validation_type="KnowledgeBasedAuth")
    await desk.run(30)
    assert call.manual_person_id is None
    assert (await desk.outcome(said))["state"] == "held"


async def test_assign_that_nothing_follows_from(desk: DeskRig) -> None:
    """Somebody has put another person there since."""
    call = await live(desk)
    await desk.say(call, "assign", person_id="p-2")
    await desk.run(5)
    desk.stage.happen(call, Kind.CLAIMED, "agent-9", "p-1")
    await desk.run(20)
    said = await desk.say(call, "assign", person_id="p-2")
    await desk.run(20)
    assert call.person_id == "p-1"
    assert (await desk.outcome(said))["state"] == "held"


@pytest.mark.parametrize("kind", [Kind.CLAIMED, Kind.GREEN])
async def test_assign_that_the_law_holds_is_told(desk: DeskRig, kind: Kind) -> None:
    """An operator elsewhere, or the voice, says that the caller is p-1, and the desk says p-2. A person has to know."""
    desk.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = await live(desk, H(kind, 5, "zed" if kind is Kind.CLAIMED else None, "p-1"))
    why = "somebody_assigned" if kind is Kind.CLAIMED else "authenticated_as_another"
    said = await desk.say(call, "assign", person_id="p-2")
    await desk.run(120)
    assert [one["name"] for one in (await desk.outcome(said))["reasons"]] == [why]
    told = [one for one in outcomes(await desk.trail(call)) if one.type == "held"]
    assert [(one.cause.effect, one.cause.operator, one.line.forbidden) for one in told] == [
        ("assign", OPERATOR, (why,))
    ]
    story = (await desk.http.get(f"/calls/{KEY}/{call.voice_id}")).json()["story"]
    line = f"decided: hold; {OPERATOR!r} asks for assign, the law forbids it ({why})"
    assert [one["text"] for one in story if why in one["text"]] == [line]


async def test_opt_out_after_an_enroll_of_unknown_outcome(desk: DeskRig) -> None:
    """The agent learns that the voice may have been enrolled before."""
    call = await live(desk, end=3000)
    desk.stage.sandbox.faults.add(Fault(target="enroll", action=Action.CUT, applied=True))
    desk.stage.sandbox.faults.add(Fault(target="details", action=Action.REFUSED, skip=1))
    await desk.say(call, "verified", **OTP)
    await desk.run(1500)
    said = await desk.say(call, "opted-out")
    await desk.run(30)
    assert (await desk.record(call)).ledger.enroll.state is EffectState.UNRESOLVED
    assert call.manual_person_id == "p-1"
    assert (await desk.outcome(said))["reasons"]


async def test_what_was_told_as_over_stays_over(desk: DeskRig) -> None:
    """The agent was told that nothing was sent. A mistaken distrust of another day must not change that."""
    call = await live(desk, end=60)
    await pause(desk)
    said = await desk.say(call, "verified", **OTP)
    await desk.run(900)
    assert (await desk.outcome(said))["reasons"][0]["name"] == "held_too_long"
    await resume(desk)
    await desk.run(300)
    desk.clock.advance(5 * 3600)
    await desk.say(call, "distrusted", reason="wrong call")
    await desk.say(call, "withdraw", what="distrusted", reason="a mistake")
    await desk.run(60)
    assert "enroll" not in desk.ledger(call)


async def test_pause_is_not_named_as_the_reason_of_what_else_forbids_it(desk: DeskRig) -> None:
    """The caller opted out. Had there been no pause, the voice would not have been enrolled either."""
    call = await live(desk, end=60)
    await pause(desk)
    await desk.say(call, "opted-out")
    said = await desk.say(call, "verified", **OTP)
    await desk.run(5)
    assert [one["name"] for one in (await desk.outcome(said))["reasons"]] == ["opted_out", "paused"]
    await desk.run(900)
    assert [one["name"] for one in (await desk.outcome(said))["reasons"]] == ["opted_out"]


@pytest.mark.parametrize(("action", "body"), [("verified", OTP), ("distrusted", {"reason": "odd"})])
async def test_word_that_only_watching_rules_hear_does_not_wait_for_the_end_of_a_pause(
    desk: DeskRig, action: str, body: dict[str, str]
) -> None:
    """Nothing is carried out after the pause, and nothing was held too long: the call is settled as soon as it ends."""
    desk.tools = desk.shift.tools = replace(desk.tools, book=load_rules("watch-only"))
    call = await desk.begin_call(H(Kind.END, 60), run_s=5)
    await desk.say(call, "assign", person_id="p-1")
    await desk.run(5)
    await pause(desk)
    said = await desk.say(call, action, **body)
    for run_s in (5, 120):
        await desk.run(run_s)
        assert [one["name"] for one in (await desk.outcome(said))["reasons"]] == ["rule_in_shadow"]


async def test_word_after_a_reject_and_the_end_is_told_of_the_reject(desk: DeskRig) -> None:
    """It is in time, so "settled" would say nothing."""
    call = await live(desk, H(Kind.REJECTED, 10), end=60, run=100)
    said = await desk.say(call, "distrusted", reason="odd")
    await desk.run(5)
    assert [one["name"] for one in (await desk.outcome(said))["reasons"]] == ["voice_rejected"]
    refused = await desk.say(call, "verified", **OTP)
    assert [one["name"] for one in refused.json()["facts"]] == ["rejected", "distrusted"]


async def test_verification_is_not_done_because_another_member_was_enrolled(desk: DeskRig) -> None:
    """Ann verified p-2 by mistake, then p-1, who was enrolled until somebody distrusted the caller."""
    desk.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = await live(desk)
    words = [await desk.say(call, "verified", person_id="p-2", validation_type="KnowledgeBasedAuth")]
    await desk.run(5)
    await desk.say(call, "verified", **OTP)
    await desk.run(5)
    await desk.say(call, "distrusted", reason="odd")
    await desk.run(20)
    assert (await desk.record(call)).ledger.enroll.state is EffectState.TAKEN_BACK
    refused = await desk.say(call, "verified", person_id="p-2", validation_type="KnowledgeBasedAuth")
    assert (refused.status_code, refused.json()["code"]) == (409, "forbidden")
    await desk.run(5)
    assert [(await desk.outcome(one))["state"] for one in words] == ["superseded"]


@pytest.mark.parametrize("end", [60, 900])
async def test_distrust_of_a_voice_that_was_enrolled_after_a_reject_elsewhere(desk: DeskRig, end: float) -> None:
    """Another tool rejected the voice, and then enrolled it. The agent's distrust comes in the call, or after it."""
    call = await live(desk, H(Kind.REJECTED, 10), H(Kind.ENROLLED, 30, "zed", "p-1"), end=end, run=100)
    assert call.manual_person_id == "p-1"
    said = await desk.say(call, "distrusted", reason="an impostor")
    await desk.run(60)
    assert ((await desk.outcome(said))["state"], desk.ledger(call)["reject_voice"]) == ("done", 1)
    assert (await desk.record(call)).seen.unenrolled
    told = [one.type for one in outcomes(await desk.trail(call)) if one.type != "settled"]
    assert told == ["rejected", "enrolled", "unenrolled"]


@pytest.mark.parametrize("end", [60, 900])
async def test_second_distrust_of_a_voice_that_was_enrolled_after_our_reject(desk: DeskRig, end: float) -> None:
    """Another tool enrolled the impostor after the first reject. A person's second word rejects once more."""
    call = await live(desk, H(Kind.ENROLLED, 50, "zed", "p-1"), end=end, run=20)
    first = await desk.say(call, "distrusted", reason="an impostor")
    await desk.run(100)
    assert (call.manual_person_id, desk.ledger(call)["reject_voice"]) == ("p-1", 1)
    await pause(desk)
    second = await desk.say(call, "distrusted", reason="an impostor, once more")
    await desk.run(20)
    told = [await desk.outcome(one) for one in (first, second)]
    assert [one["state"] for one in told] == ["done", "held"]
    await resume(desk)
    await desk.run(60)
    assert ((await desk.outcome(second))["state"], desk.ledger(call)["reject_voice"]) == ("done", 2)
    assert (call.manual_person_id, (await desk.record(call)).seen.unenrolled) == (None, True)


async def test_second_distrust_that_is_refused_needs_a_person(desk: DeskRig) -> None:
    """The voice stays enrolled, although the first reject was carried out."""
    call = await live(desk, H(Kind.ENROLLED, 50, "zed", "p-1"), run=20)
    await desk.say(call, "distrusted", reason="an impostor")
    await desk.run(100)
    desk.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.REFUSED))
    second = await desk.say(call, "distrusted", reason="an impostor, once more")
    await desk.run(60)
    assert (await desk.outcome(second))["state"] == "refused"
    assert [why.partition(":")[0] for why in (await desk.queries.attention()).values()] == [
        "reject refused by the service"
    ]


async def test_second_distrust_without_an_enroll_rejects_nothing_twice(desk: DeskRig) -> None:
    """It is answered by the reject that was sent."""
    call = await live(desk, H(Kind.ENROLLED, 10, "zed", "p-1"), run=20)
    await desk.say(call, "distrusted", reason="an impostor")
    await desk.run(3)
    await desk.say(call, "distrusted", reason="an impostor, once more")
    await desk.run(30)
    last = await desk.say(call, "distrusted", reason="an impostor, and again")
    await desk.run(30)
    assert ((await desk.outcome(last))["state"], desk.ledger(call)["reject_voice"]) == ("done", 1)


async def test_second_distrust_that_is_taken_back_leaves_the_voice_rejected(desk: DeskRig) -> None:
    """The first reject was carried out, though a later status hides it and the second intention was withdrawn."""
    call = await live(desk, run=20)
    enrolled = H(Kind.ENROLLED, 0, "zed", "p-1")
    desk.stage.sandbox.faults.add(Fault(target="details", skip=1, times=1, happening=enrolled))
    await desk.say(call, "distrusted", reason="an impostor")
    await desk.run(100)
    assert not (await desk.record(call)).seen.rejected
    desk.stage.sandbox.faults.add(Fault(target="details", action=Action.ANSWER, status=503))
    await desk.say(call, "distrusted", reason="an impostor, once more")
    await desk.run(3)
    assert (await desk.record(call)).ledger.reject.state is EffectState.INTENDED
    await desk.say(call, "withdraw", what="distrusted", reason="a mistake")
    desk.stage.sandbox.faults.clear()
    await desk.run(30)
    assert (desk.ledger(call)["reject_voice"], facts(desk, await desk.record(call)).rejected) == (1, True)


@pytest.mark.parametrize(
    ("action", "state", "enrolls"),
    [(Action.RESET, EffectState.UNRESOLVED, 1), (Action.REFUSED, EffectState.ABSENT, 2)],
)
async def test_second_verification_that_is_taken_back_allows_no_further_enroll(
    desk: DeskRig, action: Action, state: EffectState, enrolls: int
) -> None:
    """A passcode that the caller proved does not repeat an enroll whose request was lost, only one that was refused.

    A lost one is said again despite that: until then, it may have been carried out.
    """
    desk.stage.sandbox.faults.add(Fault(target="enroll", action=action, times=1))
    call = await live(desk, H(Kind.MFA_VALIDATED, 20), end=200)
    await desk.say(call, "verified", **OTP)
    await desk.run(3)
    await desk.say(call, "withdraw", what="verified")
    await desk.run(60)
    assert (await desk.record(call)).ledger.enroll.state is state
    desk.stage.sandbox.faults.add(Fault(target="details", action=Action.ANSWER, status=503))
    despite = ["enroll_unresolved"] if state is EffectState.UNRESOLVED else []
    await desk.say(call, "verified", despite=despite, **OTP)
    await desk.run(3)
    assert (await desk.record(call)).ledger.enroll.state is EffectState.INTENDED
    await desk.say(call, "withdraw", what="verified")
    desk.stage.sandbox.faults.clear()
    await desk.run(300)
    assert desk.ledger(call)["enroll"] == enrolls


async def test_second_taking_back_is_shown(desk: DeskRig) -> None:
    """Somebody has to look again, although the first time was marked as seen."""
    call = await live(desk, end=1900)
    await desk.say(call, "verified", **OTP)
    await desk.run(60)
    desk.stage.happen(call, Kind.UNENROLLED, "x")
    await desk.run(60)
    await desk.say(call, "resolve", applied=True)
    await desk.run(20)
    desk.stage.happen(call, Kind.ENROLLED, "agent-9")
    await desk.run(70)
    assert not (await desk.record(call)).seen.unenrolled
    desk.stage.happen(call, Kind.UNENROLLED, "x")
    await desk.run(70)
    assert (await desk.record(call)).seen.unenrolled
    assert await desk.queries.attention()


async def test_distrust_in_time_though_no_worker_ran(desk: DeskRig) -> None:
    """It was said within a day, and a worker reads it an hour later."""
    call = await live(desk, end=60, run=100)
    desk.clock.advance(23.5 * 3600)
    await desk.say(call, "distrusted", reason="x")
    desk.clock.advance(3600)
    await desk.run(60)
    assert desk.ledger(call).get("reject_voice") == 1


async def test_reject_that_was_intended_before_a_new_redis_asks_a_person(desk: DeskRig) -> None:
    """The new one may have lost that it was sent, so nothing is sent: a person is asked what became of it."""
    call = await live(desk)
    fault = desk.stage.sandbox.faults.add(Fault(target="details", action=Action.REFUSED))
    await desk.say(call, "distrusted", reason="x")
    await desk.run(5)
    await desk.redis.hset(desk.store.keys.epoch, "id", "another server")
    await desk.run(5)
    desk.stage.sandbox.faults.clear(fault.id)
    await desk.run(120)
    assert "reject_voice" not in desk.ledger(call)
    assert list((await desk.queries.attention()).values()) == ["reject unresolved"]


async def test_reason_after_an_answer(desk: DeskRig) -> None:
    """Somebody has rejected the voice meanwhile."""
    call = await live(desk, end=3000)
    desk.stage.sandbox.faults.add(Fault(target="enroll", action=Action.CUT, applied=False))
    fault = desk.stage.sandbox.faults.add(Fault(target="details", action=Action.REFUSED, skip=1))
    await desk.say(call, "verified", **OTP)
    await desk.run(1500)
    desk.stage.sandbox.faults.clear(fault.id)
    desk.stage.happen(call, Kind.REJECTED, "agent-9")
    await desk.run(1800)
    assert (await desk.record(call)).seen.rejected
    await desk.say(call, "resolve", applied=False, effect="enroll")
    await desk.run(20)
    assert (await desk.record(call)).life.reason is Reason.REJECTED


async def test_distrust_that_came_under_the_other_id_ends_what_was_verified_too(desk: DeskRig) -> None:
    """It reopens the settled call by a merge. Taken back, it leaves nothing that enrolls the voice hours later."""
    call = await live(desk, end=60)
    await pause(desk)
    await desk.say(call, "verified", **OTP)
    await desk.run(900)
    await resume(desk)
    await desk.run(20)
    desk.clock.advance(5 * 3600)
    now, record = desk.clock.now, await desk.record(call)
    word = CallStatement(operator="x", said_at=now, number=int(now.timestamp() * 1000))
    statements = CallStatements(were_made=True, distrusted=word)
    other = Record(
        institution_key=record.institution_key,
        voice_id=call.alternate_id,
        life=Life(first_seen_at=now),
        statements=statements,
    )
    await desk.note(call, Merged(call=other), even_settled=True)
    await desk.say(call, "withdraw", what="distrusted", reason="a mistake")
    await desk.run(100)
    assert "enroll" not in desk.ledger(call)


async def test_enroll_that_cannot_log_in_for_an_hour_is_not_tried_every_three_seconds(desk: DeskRig) -> None:
    """The password was changed, and reads go on with the old token. Once logins are accepted, it is sent."""
    call = await desk.begin_call(Happening(Kind.VIEWED, 5), Happening(Kind.END, 7200), run_s=40, is_pushed=False)
    desk.stage.sandbox.faults.add(Fault(target="enroll", action=Action.UNAUTHORIZED, times=1))
    desk.stage.sandbox.faults.add(Fault(target="token", action=Action.REFUSED))
    await desk.say(call, "verified", person_id="p-1", validation_type="OneTimePasswordAuth")
    await desk.run(3600)
    assert (await desk.record(call)).ledger.enroll.attempts < 70
    desk.stage.sandbox.faults.clear()
    await desk.run(900)
    assert desk.ledger(call)["enroll"] == 1


async def test_done_assign_stays_done(desk: DeskRig) -> None:
    """The desk was told that it is done. That somebody else assigns another member later changes nothing of that."""
    desk.stage.world.add_member(KEY, "p-2", ["5550100002"])
    call = desk.stage.call(Happening(Kind.END, 900))
    await desk.run(8)
    said = await desk.say(call, "assign", person_id="p-1")  # the only candidate, who is assigned already
    await desk.run(4)
    assert (await desk.outcome(said))["state"] == "done"
    desk.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await desk.run(20)
    assert (await desk.outcome(said))["state"] == "done"


async def test_done_enroll_stays_done_when_the_institution_goes(desk: DeskRig) -> None:
    """The reseller hands the institution over while the call is live: what was done for it was done."""
    desk.stage.world.add_institution("cu-2")
    call = desk.stage.call(Happening(Kind.END, 900))
    await desk.run(8)
    said = await desk.say(call, "verified", person_id="p-1", validation_type="OneTimePasswordAuth")
    await desk.run(8)
    desk.stage.world.state.institutions[KEY].owned = False
    await desk.redis.delete(Keys().token)  # the next login does not list the institution
    desk.stage.advance(90)
    await desk.run(300)
    assert "institution_dropped" in [entry["event"] for entry in desk.log.entries]
    assert (await desk.outcome(said))["state"] == "done"

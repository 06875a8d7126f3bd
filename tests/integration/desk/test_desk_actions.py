"""What people say at the desk: what the service is asked because of it, and what they are told."""

import asyncio
import re
from dataclasses import replace as changed
from typing import Any, cast

import pytest

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.script_runner import Unconfirmed
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.desk import OPERATOR, DeskRig
from tests.harness.virtual_time import KEY, PHONE
from tests.records import with_stored

END = Happening(Kind.END, 300)
VERIFIED = {"person_id": "p-1", "validation_type": "OneTimePasswordAuth"}


async def test_verified_enrolls_once_as_the_operator(desk: DeskRig) -> None:
    """An agent's word leads to one enroll, with her validation type and her name, and the story says over which token."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    said = await desk.say(call, "verified", notes="passcode sent to the number on file", **VERIFIED)
    assert said.status_code == 202
    pending = await desk.outcome(said)
    assert (pending["state"], pending["operator"]) == ("pending", "agent-7")
    await desk.run(5)
    assert await desk.outcome(said) | {"watch": ""} == {
        "action_id": said.json()["action_id"],
        "action": "verified",
        "state": "done",
        "reasons": [],
        "because": None,
        "operator": OPERATOR,
        "watch": "",
    }
    assert desk.ledger(call)["enroll"] == 1
    verification = call.verifications[-1]
    assert (verification.by, verification.validation_type) == (OPERATOR, "OneTimePasswordAuth")
    [heard] = [line for line in await desk.trail(call) if line.what == "said"]
    assert (heard.operator, heard.token) == (OPERATOR, "desktop")


async def test_operator_whose_core_username_has_blanks_is_recorded_at_the_service(desk: DeskRig) -> None:
    """A header can hold blanks inside a name. Those around it are left out, as a receiver of headers would not see them."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    said = await desk.say(call, "verified", operator=" Ann Smith ", **VERIFIED)
    await desk.run(5)
    told = await desk.outcome(said)
    assert (told["state"], told["operator"], call.verifications[-1].by) == ("done", "Ann Smith", "Ann Smith")


@pytest.mark.parametrize("action", ["assign", "verified"])
async def test_member_who_has_the_account_of_another_institution_is_refused(desk: DeskRig, action: str) -> None:
    """The service calls p-9 of cu-1-2 and 2-p-9 of cu-1 by one name. A token of cu-1 must not reach the former."""
    desk.stage.world.add_institution(f"{KEY}-2", "Second")
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    await desk.redis.hset(desk.store.keys.owned, f"{KEY}-2", 1)
    more = {"validation_type": "Other", "notes": "seen"} if action == "verified" else {}
    refused = await desk.say(call, action, person_id="2-p-9", **more)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid")
    assert refused.json()["detail"].startswith("person_id: ")
    assert (await desk.say(call, action, person_id="3-p-9", **more)).status_code == 202


async def test_check_that_met_a_lapsed_token_is_done_with_the_second_try(desk: DeskRig) -> None:
    """The first try gets a 401 and is repeated after a login: the person is told of the second one only."""
    call = desk.stage.call(END)
    await desk.run(5)
    desk.stage.sandbox.faults.add(Fault(target="check", action=Action.UNAUTHORIZED, times=1))
    said = await desk.say(call, "check")
    await desk.run(2)
    told = await desk.outcome(said)
    assert (told["state"], told["operator"]) == ("done", OPERATOR)
    assert (await desk.whats(call)).count("check_failed") == 1


async def test_check_whose_second_try_gets_a_401_too_has_failed(desk: DeskRig) -> None:
    """Nobody repeats it, so the person who asked must not wait for it."""
    call = desk.stage.call(END)
    await desk.run(5)
    desk.stage.sandbox.faults.add(Fault(target="check", action=Action.UNAUTHORIZED))
    said = await desk.say(call, "check")
    await desk.run(2)
    told = await desk.outcome(said)
    assert (told["state"], told["operator"]) == ("failed", OPERATOR)


async def test_distrusted_rejects_once_by_the_real_voice_id(desk: DeskRig) -> None:
    """An agent who names the call by its alternate id has the voice rejected under its real id, once."""
    call = await desk.begin_call(END, run_s=5)
    said = await desk.http.post(
        f"/calls/{KEY}/{call.alternate_id}/distrusted", json={"operator": OPERATOR, "reason": "wrong answers"}
    )
    await desk.run(5)
    assert (await desk.outcome(said))["state"] == "done"
    assert desk.ledger(call)["reject_voice"] == 1
    assert (await desk.show(call))["rejected"] is True


async def test_word_about_a_call_whose_record_has_no_voice_id_is_carried_out(desk: DeskRig) -> None:
    """A record's voice id can be null. The queue has named the call, so enroll and reject are sent with that id."""
    desk.mixed_up.is_nameless = True
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    verified = await desk.say(call, "verified", **VERIFIED)
    await desk.run(5)
    distrusted = await desk.say(call, "distrusted", reason="wrong answers")
    await desk.run(5)
    assert [(await desk.outcome(said))["state"] for said in (verified, distrusted)] == ["done", "done"]
    assert (desk.ledger(call)["enroll"], desk.ledger(call)["reject_voice"]) == (1, 1)


async def test_verified_and_distrusted_at_once_have_one_outcome(desk: DeskRig) -> None:
    """Two desks contradict each other in the same moment: one word is done, the other is told why it was not."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    verified, distrusted = await asyncio.gather(
        desk.say(call, "verified", **VERIFIED),
        desk.say(call, "distrusted", reason="a second voice", operator="agent-8"),
    )
    await desk.run(6)
    assert (await desk.outcome(distrusted))["state"] == "done"
    held = await desk.outcome(verified)
    assert (held["state"], [reason["name"] for reason in held["reasons"]]) == ("held", ["distrusted"])
    assert (desk.ledger(call).get("enroll", 0), desk.ledger(call)["reject_voice"]) == (0, 1)


async def test_two_operators_who_verify_different_people_lose_no_word(desk: DeskRig) -> None:
    """The later word stands; the earlier one is in the story and is told that it was superseded, or why it was held."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    first = await desk.say(call, "verified", **VERIFIED)
    second = await desk.say(call, "verified", **VERIFIED, operator="agent-8")
    await desk.run(5)
    assert len([line for line in await desk.trail(call) if line.what == "said"]) == 2
    assert {(await desk.outcome(said))["state"] for said in (first, second)} == {"done"}
    assert desk.ledger(call)["enroll"] == 1


@pytest.mark.parametrize(
    ("script", "action", "body", "reason"),
    [
        ((), "verified", VERIFIED | {"person_id": "p-2"}, "verified_person_is_not_the_assigned"),
        ((Happening(Kind.OPT_OUT, 1, "elsewhere"),), "verified", VERIFIED, "opted_out"),
        ((Happening(Kind.CLAIMED, 1, "elsewhere", "p-1"),), "assign", {"person_id": "p-2"}, "somebody_assigned"),
        ((Happening(Kind.GREEN, 1),), "check", {}, "already_decided"),
        ((Happening(Kind.REJECTED, 1, "elsewhere"),), "distrusted", {"reason": "again"}, "voice_rejected"),
        ((), "resolve", {"applied": True}, "nothing_unresolved"),
    ],
    ids=[
        "other-person",
        "opted-out",
        "operators",
        "decided",
        "twice",
        "clear",
    ],
)
async def test_word_that_the_law_holds_is_recorded_with_the_reason(
    desk: DeskRig, script: tuple[Happening, ...], action: str, body: dict[str, Any], reason: str
) -> None:
    """Every word is accepted and in the story. The answer names why nothing follows, and nothing reaches the service."""
    call = await desk.begin_call(*script, Happening(Kind.END, 300), run_s=14, is_pushed=False)
    before = desk.ledger(call)
    answer = await desk.say(call, action, **body)
    assert answer.status_code == 202
    await desk.run(1)
    shown = await desk.look(answer)
    outcome = shown.json()
    assert (outcome["state"], reason in [reason["name"] for reason in outcome["reasons"]]) == ("held", True)
    assert shown.status_code == (200 if action in {"check", "resolve"} else 202)
    effects = ("assign", "enroll", "reject_voice")
    assert [desk.ledger(call).get(kind, 0) for kind in effects] == [before.get(kind, 0) for kind in effects]
    assert "said" in {line.what for line in await desk.trail(call)}


@pytest.mark.parametrize("method", ["NoAuth", "VoiceAuth"])
async def test_method_that_proves_nothing_is_no_verification(desk: DeskRig, method: str) -> None:
    """It is refused with the ones that are: nothing is written into the story."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    await desk.say(call, "verified", **VERIFIED)
    await desk.run(5)
    assert desk.ledger(call)["enroll"] == 1
    answer = await desk.say(call, "verified", **VERIFIED | {"validation_type": method})
    assert (answer.status_code, "one of OneTimePasswordAuth" in answer.json()["detail"]) == (400, True)
    assert len([line for line in await desk.trail(call) if line.what == "said"]) == 1


async def test_resolve_closes_what_nothing_could_prove(desk: DeskRig) -> None:
    """A person who looked at the service says that the reject was applied: it is so from then on, and nothing is sent."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    doubtful = with_stored(await desk.record(call), reject=Effect(state=EffectState.UNRESOLVED, sent_at=desk.clock.now))
    member = CallId(call.institution_key, call.voice_id).member
    await desk.redis.hset(desk.store.keys.item(member), "rec", encode_call(doubtful))
    said = await desk.say(call, "resolve", applied=True)
    assert said.status_code == 202
    await desk.run(2)
    assert (await desk.outcome(said))["state"] == "done"
    assert (await desk.record(call)).ledger.reject.state is EffectState.CONFIRMED
    assert "reject_voice" not in desk.ledger(call)


WORDS = [("verified", VERIFIED, "enroll"), ("distrusted", {"reason": "wrong answers"}, "reject_voice")]
PAUSE = b'{"scope":"effects","operator":"risk","because":"drill","at":"2026-11-21T12:00:00Z"}'


@pytest.mark.parametrize(("action", "body", "effect"), WORDS)
async def test_word_during_a_pause_is_held_and_decided_again_after_it(
    desk: DeskRig, action: str, body: dict[str, Any], effect: str
) -> None:
    """Nothing is sent while effects are paused, and the agent is told so. After the resume it is sent, once."""
    call = await desk.begin_call(Happening(Kind.END, 300), run_s=5, is_pushed=False)
    await desk.redis.hset(desk.store.keys.pause, "*", PAUSE)
    said = await desk.say(call, action, **body)
    await desk.run(30)
    held = await desk.look(said)
    assert (held.status_code, held.json()["state"], held.json()["reasons"][0]["name"]) == (202, "held", "paused")
    assert effect not in desk.ledger(call)
    await desk.redis.delete(desk.store.keys.pause)
    await desk.run(10)
    assert ((await desk.outcome(said))["state"], desk.ledger(call)[effect]) == ("done", 1)


async def test_every_word_is_answered_although_nothing_else_changes(desk: DeskRig) -> None:
    """The same word twice during a pause, and a verification after a reject: each has an answer."""
    call = await desk.begin_call(Happening(Kind.END, 300), run_s=5, is_pushed=False)
    await desk.redis.hset(desk.store.keys.pause, "*", PAUSE)
    said = []
    for _ in range(2):
        said.append(await desk.say(call, "distrusted", reason="wrong answers"))
        await desk.run(5)
    assert [(await desk.outcome(one))["reasons"][0]["name"] for one in said] == ["paused", "paused"]
    await desk.redis.delete(desk.store.keys.pause)
    await desk.run(10)
    assert [(await desk.outcome(one))["state"] for one in said] == ["done", "done"]
    assert desk.ledger(call)["reject_voice"] == 1
    late = await desk.say(call, "verified", **VERIFIED)
    assert (late.status_code, late.json()["code"]) == (409, "forbidden")


async def test_verification_that_a_pause_outlasts_expires_and_says_so(desk: DeskRig) -> None:
    """An enroll counts for ten minutes after the end. The agent is told that it was held too long, for good."""
    call = await desk.begin_call(Happening(Kind.END, 30), run_s=5, is_pushed=False)
    await desk.redis.hset(desk.store.keys.pause, "*", PAUSE)
    said = await desk.say(call, "verified", **VERIFIED)
    await desk.run(300)
    assert (await desk.look(said)).status_code == 202
    await desk.run(400)
    told = await desk.look(said)
    assert (told.status_code, told.json()["state"], told.json()["reasons"][0]["name"]) == (200, "held", "held_too_long")
    await desk.redis.delete(desk.store.keys.pause)
    await desk.run(60)
    assert "enroll" not in desk.ledger(call)


@pytest.mark.parametrize(("action", "body", "effect"), WORDS)
async def test_word_under_rules_that_only_watch_never_causes_an_effect(
    desk: DeskRig, action: str, body: dict[str, Any], effect: str
) -> None:
    """It is recorded, and decided in shadow. When the rules go live, nothing follows from it; said again, it counts."""
    live = desk.tools
    desk.tools = desk.shift.tools = changed(live, book=load_rules("watch-only"))
    call = await desk.begin_call(Happening(Kind.END, 600), run_s=5, is_pushed=False)
    assigned = await desk.say(call, "assign", person_id="p-1")
    await desk.run(10)
    assert (await desk.outcome(assigned))["state"] == "done"
    said = await desk.say(call, action, **body)
    await desk.run(20)
    told = await desk.outcome(said)
    assert (told["state"], told["reasons"][0]["name"]) == ("held", "rule_in_shadow")
    decided = [line for line in await desk.trail(call) if line.what == "decided" and line.asked != "assign"][-1]
    assert (effect.removesuffix("_voice"), "shadowed", ()) in {
        (one.then, one.result, one.forbidden) for one in decided.tried
    }
    told = (await desk.http.get(f"/calls/{KEY}/{call.voice_id}")).json()
    story = "\n".join(line["text"] for line in told["story"])
    assert re.search(r"In shadow, '[^']+' would have (enrolled|rejected)\.", story)
    assert "nothing has come of it: the rule that would act on it only watches" in story
    desk.tools = desk.shift.tools = live
    await desk.run(60)
    told = await desk.outcome(said)
    assert (told["state"], told["reasons"][0]["name"]) == ("held", "said_in_shadow")
    assert effect not in desk.ledger(call)
    again = await desk.say(call, action, **body)
    await desk.run(20)
    assert ((await desk.outcome(again))["state"], desk.ledger(call)[effect]) == ("done", 1)


@pytest.mark.parametrize(("action", "body", "effect"), WORDS)
async def test_word_is_taken_back_before_it_was_sent(
    desk: DeskRig, action: str, body: dict[str, Any], effect: str
) -> None:
    """A withdrawal during a pause counts: after the resume nothing is sent, and both words have an answer."""
    call = await desk.begin_call(Happening(Kind.END, 300), run_s=5, is_pushed=False)
    nothing = await desk.say(call, "withdraw", what=action, reason="a mistake")
    await desk.redis.hset(desk.store.keys.pause, "*", PAUSE)
    said = await desk.say(call, action, **body)
    await desk.run(10)
    withdrawn = await desk.say(call, "withdraw", what=action, reason="a mistake", operator="agent-8")
    await desk.run(5)
    await desk.redis.delete(desk.store.keys.pause)
    await desk.run(20)
    told = [await desk.outcome(one) for one in (nothing, said, withdrawn)]
    assert [one["state"] for one in told] == ["held", "superseded", "done"]
    assert (told[0]["reasons"][0]["name"], told[1]["operator"]) == ("nothing_to_withdraw", "agent-8")
    assert effect not in desk.ledger(call)
    await desk.say(call, action, **body)
    await desk.run(20)
    assert desk.ledger(call)[effect] == 1, "said again, it counts"
    late = await desk.say(call, "withdraw", what=action, reason="a mistake")
    await desk.run(5)
    told_late = await desk.outcome(late)
    assert (told_late["state"], told_late["reasons"][0]["name"]) == ("held", "already_sent")


async def test_outcome_tells_what_the_mover_decided_otherwise(desk: DeskRig) -> None:
    """E2: what was possible when it was said and no longer is when it is heard is told as held, with the reason."""
    call = await desk.begin_call(END, run_s=8, is_pushed=False)
    said = await desk.say(call, "verified", **VERIFIED)
    desk.stage.happen(call, Kind.REJECTED, "elsewhere")
    await desk.run(5)
    outcome = await desk.outcome(said)
    assert (outcome["state"], outcome["reasons"][0]["name"]) == ("held", "voice_rejected")
    assert "enroll" not in desk.ledger(call)


async def test_repetition_under_a_key_is_one_action(desk: DeskRig) -> None:
    """The same request under the same Idempotency-Key is the same action, before and after it was heard."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    answers = [await desk.say(call, "verified", key="k-1", **VERIFIED)]
    await desk.run(5)
    answers += [await desk.say(call, "verified", key="k-1", **VERIFIED) for _ in range(2)]
    assert len({answer.json()["action_id"] for answer in answers}) == 1
    assert [answer.status_code for answer in answers] == [202, 200, 200]
    other = await desk.say(call, "verified", key="k-1", person_id="p-2", validation_type="KnowledgeBasedAuth")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    await desk.run(2)
    assert len([line for line in await desk.trail(call) if line.what == "said"]) == 1


class Unreplicated:
    """A store whose statements no replica confirms."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def note(self, *args: Any, **options: Any) -> Any:
        """Leave a note."""
        await self._store.note(*args, **options)
        raise Unconfirmed


async def test_word_that_no_replica_confirmed_is_told_with_its_action(desk: DeskRig) -> None:
    """It is recorded and acted on. Said again under its key it is the same word, and one request is sent."""
    call = await desk.begin_call(END, run_s=15, is_pushed=False)
    actions, store = desk.desk.actions, desk.desk.actions._store
    actions._store = cast("Any", Unreplicated(store))
    answers = [await desk.say(call, "verified", key="k-1", **VERIFIED) for _ in range(2)]
    assert [(one.status_code, one.json()["code"]) for one in answers] == [(503, "recorded_unconfirmed")] * 2
    assert len({one.json()["detail"] for one in answers}) == 1
    await desk.run(10)
    actions._store = store
    again = await desk.say(call, "verified", key="k-1", **VERIFIED)
    assert again.json()["action_id"] == answers[0].json()["detail"]
    assert (await desk.outcome(again))["state"] == "done"
    assert desk.ledger(call)["enroll"] == 1


async def test_repetition_without_a_key_sends_nothing_twice(desk: DeskRig) -> None:
    """An agent who clicks twice has one enroll: the second click is answered as done."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    for _ in range(3):
        last = await desk.say(call, "verified", **VERIFIED)
        await desk.run(3)
    assert (await desk.outcome(last))["state"] == "done"
    assert desk.ledger(call)["enroll"] == 1


async def test_check_spends_one_now_as_the_operator(desk: DeskRig) -> None:
    """The desk's check is made at once, outside the schedule, and brings what the provider knows."""
    call = await desk.begin_call(Happening(Kind.GREEN, 4), END, run_s=5, is_pushed=False)
    used = (await desk.show(call))["checks_used"]
    said = await desk.say(call, "check")
    await desk.run(0)
    shown = await desk.show(call)
    assert (await desk.outcome(said))["state"] == "done"
    assert (shown["checks_used"], shown["green"]) == (used + 1, True)


async def test_mistyped_action_is_answered_with_the_actions_there_are(desk: DeskRig) -> None:
    """A developer who guesses the name finds it in the answer."""
    call = desk.stage.call(END)
    told = (await desk.say(call, "verify", **VERIFIED)).json()
    assert told["code"] == "method_not_allowed"
    assert "verified, distrusted" in told["detail"]


async def test_assign_chooses_among_candidates(desk: DeskRig) -> None:
    """Two candidates wait for a person's word; the desk shows both by name and type, and her choice is assigned as hers."""
    desk.stage.world.add_member(KEY, "p-2", [PHONE], first_name="Bea", last_name="Example")
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    shown = await desk.show(call)
    assert [person["person_id"] for person in shown["candidates"]] == ["p-1", "p-2"]
    assert set(shown["candidates"][0]) == {"person_id", "name", "person_type"}
    said = await desk.say(call, "assign", person_id="p-2")
    await desk.run(2)
    assert (await desk.outcome(said))["state"] == "done"
    assert (call.person_id, call.core_username) == ("p-2", OPERATOR)


async def test_assign_replaces_our_own_assignment(desk: DeskRig) -> None:
    """The only candidate was assigned by itself and is not the caller: the desk's word replaces it, once."""
    desk.stage.world.add_member(KEY, "p-2", ["5559990000"], first_name="Bea", last_name="Example")
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    assert (await desk.show(call))["assigned_by_us"] is True
    said = await desk.say(call, "assign", person_id="p-2")
    await desk.run(10)
    assert (await desk.outcome(said))["state"] == "done"
    assert (call.person_id, desk.ledger(call)["assign"]) == ("p-2", 2)
    assert (await desk.record(call)).ledger.assign.state is EffectState.APPLIED


async def test_assign_never_replaces_an_operators(desk: DeskRig) -> None:
    """An operator who claims the call between the word and the sending keeps it: the assign is withdrawn unsent."""
    desk.stage.world.add_member(KEY, "p-2", ["5559990000"], first_name="Bea", last_name="Example")
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    said = await desk.say(call, "assign", person_id="p-2")
    desk.stage.happen(call, Kind.CLAIMED, "elsewhere", "p-1")
    await desk.run(10)
    outcome = await desk.outcome(said)
    assert (outcome["state"], outcome["reasons"][0]["name"]) == ("held", "somebody_assigned")
    assert (call.person_id, desk.ledger(call)["assign"]) == ("p-1", 1)


@pytest.mark.parametrize(
    ("before", "reason"),
    [("verified", "enrolled_for_another"), ("distrusted", "rejected_for_another")],
)
async def test_assign_is_held_after_an_effect_for_another(desk: DeskRig, before: str, reason: str) -> None:
    """After an enroll or a reject the person of a call stays: what was sent was about them."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    await desk.say(call, before, **(VERIFIED if before == "verified" else {"reason": "wrong answers"}))
    await desk.run(5)
    answer = await desk.say(call, "assign", person_id="p-2")
    await desk.run(5)
    outcome = await desk.outcome(answer)
    assert (outcome["state"], reason in [reason["name"] for reason in outcome["reasons"]]) == ("held", True)
    assert desk.ledger(call)["assign"] == 1


async def test_opt_out_at_the_desk_is_never_lost(desk: DeskRig) -> None:
    """In the call, after its end, and twice: it is recorded, and no enroll follows. After an enroll the answer says so."""
    live, over, enrolled = (desk.stage.call(Happening(Kind.END, 60), phone_number=PHONE) for _ in range(3))
    await desk.run(5)
    await desk.say(enrolled, "verified", **VERIFIED)
    await desk.run(5)
    for _ in range(2):
        told = await desk.say(live, "opted-out", operator="agent-7")
    await desk.run(5)
    assert (await desk.outcome(told))["state"] == "done"
    held = await desk.say(live, "verified", **VERIFIED)
    await desk.run(5)
    assert "opted_out" in [reason["name"] for reason in (await desk.outcome(held))["reasons"]]
    late = await desk.say(enrolled, "opted-out", operator="agent-7")
    await desk.run(5)
    answer = await desk.outcome(late)
    assert (answer["state"], [reason["name"] for reason in answer["reasons"]]) == ("done", ["enrolled_before"])
    await desk.run(90)
    assert (await desk.record(over)).is_settled
    told = await desk.say(over, "opted-out", operator="agent-7")
    await desk.run(5)
    assert (await desk.outcome(told))["state"] == "done"
    assert (await desk.record(over)).seen.opted_out
    assert [desk.ledger(call).get("enroll", 0) for call in (live, over, enrolled)] == [0, 0, 1]

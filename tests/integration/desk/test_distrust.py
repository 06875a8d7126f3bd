"""A person's distrust is sent where a rule's reject is not, and for a day after the call: one reject for each statement."""

import asyncio
from typing import Any

import pytest

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.note_folding import fold_note
from callkeeper.calls.notes import Distrusted
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.record import Phase, Reason
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.desk import DeskRig
from tests.records import with_stored
from tests.unit.calls.specimens import NOW, reading, seconds
from tests.unit.calls.specimens import call as live_call

END = Happening(Kind.END, 300)


async def ended(desk: DeskRig, *script: Happening, ended_s: float = 60.0) -> Call:
    """Return a call that was settled, and ended so many seconds ago."""
    call = await desk.begin_call(*script, Happening(Kind.END, 20), run_s=40, is_pushed=False)
    desk.stage.advance(ended_s - 20)
    assert (await desk.record(call)).is_settled
    return call


def rejects(desk: DeskRig, call: Call) -> int:
    """Return how many rejects the service was sent for a call."""
    return desk.ledger(call).get("reject_voice", 0)


@pytest.mark.parametrize(
    "happening",
    [Happening(Kind.CASE, 1, "DeterminedFraud"), Happening(Kind.REJECTED_BY_RULE, 1)],
    ids=["fraud", "validation-rule"],
)
async def test_distrust_is_sent_whatever_the_service_itself_found(desk: DeskRig, happening: Happening) -> None:
    """Neither fraud that a research case found nor a validation rule's reject stands in a person's way."""
    call = await desk.begin_call(happening, END, run_s=10, is_pushed=False)
    said = await desk.say(call, "distrusted", reason="a second voice")
    await desk.run(8)
    assert (await desk.outcome(said))["state"] == "done"
    assert rejects(desk, call) == 1
    assert call.status == "RejectCallerVoice"
    await desk.run(30)
    assert rejects(desk, call) == 1


async def test_distrust_is_sent_for_a_call_that_ended_within_the_last_day(desk: DeskRig) -> None:
    """An agent finds out after the call: the voice is rejected once, and the record says so. It is settled anew."""
    call = await ended(desk, ended_s=23 * 3600)
    said = await desk.say(call, "distrusted", reason="the member called: it was not she")
    assert said.status_code == 202
    await desk.run(10)
    assert (await desk.outcome(said))["state"] == "done"
    assert rejects(desk, call) == 1
    record = await desk.record(call)
    assert (record.is_settled, record.life.reason) == (True, Reason.REJECTED)
    assert [outcome.type for outcome in outcomes(await desk.trail(call))][-2:] == ["rejected", "settled"]
    assert not await desk.redis.zscore(desk.store.keys.live, desk.call_id(call).member)
    again = await desk.say(call, "distrusted", reason="once more")
    await desk.run(10)
    assert (await desk.outcome(again))["state"] == "done"
    assert rejects(desk, call) == 1


async def test_distrust_a_day_after_the_end_is_recorded_and_held(desk: DeskRig) -> None:
    """After a day it is too late: the word is in the story, the desk says so, and nothing is sent."""
    call = await ended(desk, ended_s=25 * 3600)
    said = await desk.say(call, "distrusted", reason="too late")
    await desk.run(10)
    told = await desk.outcome(said)
    assert (told["state"], [reason["name"] for reason in told["reasons"]]) == ("held", ["call_settled"])
    assert rejects(desk, call) == 0


@pytest.mark.parametrize(
    ("changes", "is_heard"),
    [
        ({}, True),
        ({"reading": reading(voice_id=None)}, True),
        ({"reading": reading(voice_id=None), "listed_at": None}, False),
        ({"reading": None}, False),
        ({"rejected_seen": True}, False),
        ({"rejected_seen": True, "rejected_by_rule_only": True}, True),
        ({"reject": Effect(state=EffectState.UNRESOLVED, sent_at=NOW, attempts=1)}, False),
    ],
    ids=["ordinary", "listed", "unnamed", "unread", "rejected", "by-rule", "unresolved"],
)
def test_late_distrust_needs_an_end_a_voice_id_and_no_reject(changes: dict[str, Any], is_heard: bool) -> None:
    """A settled call is opened again only where a reject can follow: reject-voice resolves no other id."""
    over = with_stored(live_call(phase=Phase.SETTLED, reason=Reason.UNDECIDED, end_seen_at=NOW), **changes)
    heard, _ = fold_note(over, Distrusted(operator="ann", said_at=NOW), NOW + seconds(60))
    assert (heard.life.phase is Phase.ENDED, heard.is_settled) == (is_heard, not is_heard)


async def test_action_of_the_other_kinds_is_held_after_the_end(desk: DeskRig) -> None:
    """Ten minutes after the end only a distrust has an effect: nobody is assigned, enrolled or checked any more."""
    call = await ended(desk, ended_s=700)
    verified = {"person_id": "p-1", "validation_type": "OneTimePasswordAuth"}
    for action, body in (("verified", verified), ("assign", {"person_id": "p-2"}), ("check", {})):
        said = await desk.say(call, action, **body)
        await desk.run(5)
        told = await desk.look(said)
        assert (told.status_code, told.json()["state"]) == (200, "held"), action
        assert [reason["name"] for reason in told.json()["reasons"]] in (["call_settled"], ["call_ended"])
    before = desk.ledger(call)
    await desk.say(call, "distrusted", reason="a second voice")
    await desk.run(20)
    assert desk.ledger(call).get("check") == before.get("check")
    assert desk.ledger(call).get("enroll") is None


async def test_two_distrusts_at_once_are_one_reject(desk: DeskRig) -> None:
    """Two people say it in the same moment, during the call or after it: none is sent once a reject is recorded."""
    for call in (await ended(desk), desk.stage.call(END, phone_number="5550100009")):
        await desk.run(5)
        await asyncio.gather(
            desk.say(call, "distrusted", reason="a second voice"),
            desk.say(call, "distrusted", reason="a second voice", operator="agent-8"),
        )
        await desk.run(20)
        assert rejects(desk, call) == 1


async def test_statement_after_a_refused_reject_asks_anew(desk: DeskRig) -> None:
    """The service declined the reject twice: nothing repeats it but another statement, and that one once."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    desk.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.REFUSED, times=2))
    first = await desk.say(call, "distrusted", reason="a second voice")
    await desk.run(10)
    assert (await desk.outcome(first))["state"] == "pending"
    await desk.run(40)
    assert (await desk.outcome(first))["state"] == "refused"
    assert rejects(desk, call) == 2
    second = await desk.say(call, "distrusted", reason="I am sure", operator="agent-8")
    await desk.run(30)
    assert (await desk.outcome(second))["state"] == "done"
    assert rejects(desk, call) == 3
    assert (await desk.record(call)).ledger.reject.state is EffectState.APPLIED


async def test_late_reject_waits_for_the_end_of_a_pause(desk: DeskRig) -> None:
    """A pause holds a late reject like any other: it is sent when the pause is over."""
    call = await ended(desk)
    said = await desk.say(call, "distrusted", reason="a second voice")
    pause = b'{"scope":"effects","operator":"risk","because":"drill","at":"2026-11-21T12:00:00Z"}'
    await desk.redis.hset(desk.store.keys.pause, "*", pause)
    await desk.run(30)
    assert rejects(desk, call) == 0
    await desk.redis.hdel(desk.store.keys.pause, "*")
    await desk.run(30)
    assert rejects(desk, call) == 1
    assert (await desk.outcome(said))["state"] == "done"


async def test_late_reject_in_doubt_is_read_and_never_repeated(desk: DeskRig) -> None:
    """The answer to a late reject is lost: stored details tell what became of it."""
    call = await ended(desk)
    desk.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.DROP, applied=True, times=1))
    said = await desk.say(call, "distrusted", reason="a second voice")
    await desk.run(60)
    assert rejects(desk, call) == 1
    assert (await desk.outcome(said))["state"] == "done"
    record = await desk.record(call)
    assert (record.is_settled, record.life.reason, record.ledger.reject.state) == (
        True,
        Reason.REJECTED,
        EffectState.CONFIRMED,
    )


async def test_refused_reject_says_why_in_words_that_name_nobody(desk: DeskRig) -> None:
    """The story and the log have the service's reason; a name in it stays out."""
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    body = '{"success": false, "error": "Voice already rejected for Ada Example"}'
    desk.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.REFUSED, times=1, body=body))
    await desk.say(call, "distrusted", reason="a second voice")
    await desk.run(5)
    [answered] = [line for line in await desk.trail(call) if line.what == "answered" and line.kind == "reject"]
    assert answered.because == "Voice already rejected for …"
    story = await desk.http.get(f"/calls/{call.institution_key}/{call.voice_id}")
    assert (
        "reject refused by the service: Voice already rejected for …; reads will show if it was applied all the same"
        in story.text
    )
    [logged] = [
        entry for entry in desk.log.entries if entry["event"] == "effect_answered" and entry["kind"] == "reject"
    ]
    assert logged["said"] == "Voice already rejected for …"

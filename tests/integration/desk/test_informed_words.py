"""A word that verifies a caller counts against the evidence that it names, and against nothing else."""

from typing import Any

import pytest

from callkeeper.calls.action_status import ActionState
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.desk import DeskRig

END = Happening(Kind.END, 300)
VERIFIED = {"person_id": "p-1", "validation_type": "OneTimePasswordAuth"}
PAUSE = b'{"scope":"effects","operator":"risk","because":"drill","at":"2026-11-21T12:00:00Z"}'
MISMATCH = Happening(Kind.MISMATCH, 2)


def names(answer: Any) -> list[str]:
    """Return the facts of a refusal."""
    return [one["name"] for one in answer.json()["facts"]]


async def live(desk: DeskRig, *script: Happening, **more: Any) -> Call:
    """Return a call that goes on, as it is after some checks."""
    return await desk.begin_call(*script, END, run_s=15, is_pushed=False, **more)


async def test_word_in_ignorance_of_evidence_enrolls_nobody(desk: DeskRig) -> None:
    """It is refused with the facts, recorded, and does nothing, also not later. Said again with them, it enrolls."""
    call = await live(desk, MISMATCH, Happening(Kind.HIGH_RISK, 3))
    assert [one["name"] for one in (await desk.show(call))["evidence"]] == ["voice_mismatch", "high_risk_device"]
    refused = await desk.say(call, "verified", **VERIFIED)
    assert (refused.status_code, refused.json()["code"]) == (409, "evidence_against")
    assert names(refused) == ["voice_mismatch", "high_risk_device"]
    half = await desk.say(call, "verified", **VERIFIED, despite=["voice_mismatch"])
    assert names(half) == ["high_risk_device"]
    await desk.run(20)
    assert "enroll" not in desk.ledger(call)
    said = await desk.say(call, "verified", **VERIFIED, despite=["voice_mismatch", "high_risk_device"])
    await desk.run(10)
    assert (await desk.outcome(said))["state"] == ActionState.DONE
    lines = [line for line in await desk.trail(call) if line.what == "said"]
    assert [(line.forbidden, line.despite) for line in lines] == [
        (("voice_mismatch", "high_risk_device"), ()),
        (("high_risk_device",), ()),
        ((), ("voice_mismatch", "high_risk_device")),
    ]


async def test_what_a_word_overruled_is_written_everywhere(desk: DeskRig) -> None:
    """In the ledger, in the note to the service, in the first line of the story, and for the next call."""
    call = await live(desk, MISMATCH)
    await desk.say(call, "verified", **VERIFIED, notes="called back", despite=["voice_mismatch"])
    await desk.run(10)
    assert (await desk.record(call)).ledger.enroll.despite == ("voice_mismatch",)
    assert call.verifications[-1].notes == "Despite: the voice does not match the member's enrolled one. called back"
    story = (await desk.http.get(f"/calls/{call.institution_key}/{call.voice_id}")).json()["story"]
    assert story[0]["text"].endswith("despite: the voice does not match the member's enrolled one")
    desk.stage.happen(call, Kind.END)
    await desk.run(60)
    later = await live(desk)
    assert [one["name"] for one in (await desk.show(later))["evidence"]] == ["suspected_before"]


async def test_audit_log_names_what_a_word_was_refused_for(desk: DeskRig) -> None:
    """Beside what it was said despite: the API's and the board's alike, also when it is repeated."""
    call = await live(desk, MISMATCH, Happening(Kind.HIGH_RISK, 3))
    for _ in range(2):
        await desk.say(call, "verified", key="k-1", **VERIFIED, despite=["voice_mismatch"])
        await desk.run(2)
    await desk.say(call, "verified", **VERIFIED, despite=["voice_mismatch", "high_risk_device"])
    assert [entry.detail for entry in await desk.audited()] == [
        *["verified; despite voice_mismatch; refused for high_risk_device"] * 2,
        "verified; despite voice_mismatch, high_risk_device",
    ]


@pytest.mark.parametrize(
    ("kind", "fact"), [(Kind.RED, "red"), (Kind.REJECTED, "rejected"), (Kind.GREEN, "green")], ids=str
)
async def test_no_word_overrules_what_the_law_forbids(desk: DeskRig, kind: Kind, fact: str) -> None:
    """It is refused, whatever it names, and recorded."""
    call = await live(desk, MISMATCH, Happening(kind, 3))
    assert fact in [one["name"] for one in (await desk.show(call))["forbidding"]]
    refused = await desk.say(call, "verified", **VERIFIED, despite=["voice_mismatch", "red_seen"])
    assert (refused.status_code, refused.json()["code"], fact in names(refused)) == (409, "forbidden", True)
    await desk.run(20)
    assert "enroll" not in desk.ledger(call)
    assert [line.because for line in await desk.trail(call) if line.what == "said"] == ["forbidden"]


async def test_evidence_that_is_read_after_the_word_asks_again(desk: DeskRig) -> None:
    """The word names nothing that nobody knew, whatever it lists. The voice is enrolled; the device is read after it."""
    call = await live(desk)
    said = await desk.say(call, "verified", **VERIFIED, despite=["high_risk_device"])
    await desk.run(10)
    assert (await desk.outcome(said))["state"] == ActionState.DONE
    assert (await desk.record(call)).statements.identity.despite == ()  # type: ignore[union-attr]
    call.is_high_risk_device = True
    await desk.run(70)
    assert list((await desk.queries.attention()).values()) == ["asked by rule 'verified, but evidence against it'"]
    again = await desk.say(call, "verified", **VERIFIED)
    assert names(again) == ["high_risk_device"]
    await desk.say(call, "verified", **VERIFIED, despite=["high_risk_device"])
    await desk.run(10)
    assert not await desk.queries.attention()
    assert desk.ledger(call)["enroll"] == 1


async def test_repeated_refusal_is_the_same(desk: DeskRig) -> None:
    """Under one Idempotency-Key the word is recorded once, and refused each time."""
    call = await live(desk, MISMATCH)
    for _ in range(3):
        refused = await desk.say(call, "verified", key="k-1", **VERIFIED)
        assert (refused.status_code, names(refused)) == (409, ["voice_mismatch"])
        await desk.run(2)
    assert len([line for line in await desk.trail(call) if line.what == "said"]) == 1


@pytest.mark.parametrize(
    ("action", "body", "field"),
    [
        ("verified", VERIFIED | {"validation_type": "Other"}, "notes"),
        ("verified", VERIFIED | {"validation_type": "Other", "notes": " "}, "notes"),
        ("verified", VERIFIED | {"despite": ["mismatch"]}, "despite"),
        ("withdraw", {"what": "distrusted"}, "reason"),
    ],
)
async def test_words_that_need_words(desk: DeskRig, action: str, body: dict[str, Any], field: str) -> None:
    """Another way of verifying is described, a distrust is taken back for a reason, and evidence has a known name."""
    call = await live(desk)
    refused = await desk.say(call, action, **body)
    assert (refused.status_code, refused.json()["detail"].partition(":")[0]) == (400, field)


async def test_both_are_told_of_a_distrust_that_is_taken_back(desk: DeskRig) -> None:
    """Ann learns that her distrust was taken back, by whom and why."""
    call = await live(desk)
    await desk.redis.hset(desk.store.keys.pause, "*", PAUSE)
    said = await desk.say(call, "distrusted", reason="he did not know the birthday", operator="ann")
    await desk.run(5)
    refused = await desk.say(call, "verified", **VERIFIED)
    assert names(refused) == ["distrusted"]
    taken = await desk.say(call, "withdraw", what="distrusted", reason="her sister called", operator="bob")
    await desk.run(5)
    told = await desk.outcome(said)
    assert (told["state"], told["operator"], told["because"]) == ("superseded", "bob", "her sister called")
    assert (await desk.outcome(taken))["state"] == "done"

"""Tests of whose evidence it is: what another member showed, or was enrolled for, says nothing of this one."""

from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.facts import ENOUGH_ANSWERS
from callkeeper.calls.member_evidence import (
    FULL_AUTHENTICATION,
    MISMATCH,
    enrolled_member,
    enrolled_person,
    in_doubt,
    is_assigned,
    is_enrolled,
    is_rejection_standing,
    named_by_desk,
    of_member,
    rejected_member,
    shown_of_voice,
    usable_answers,
    with_answered_check,
)
from callkeeper.calls.note_folding import fold_note
from callkeeper.calls.notes import Merged
from callkeeper.calls.record import Call, History, Seen
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, NOW, call, reading, verified, word

GREEN, RED = "Green Voice", "Red Device"
SHE_IS_P2 = word(number=2, person_id="p-2")
APPLIED = Effect(state=EffectState.APPLIED, sent_at=NOW, attempts=1, person_id="p-1")


def checked(record: Call, *numbers: int, person_id: str | None = "p-1", after_end: bool = False) -> Call:
    """Return a call after checks with these numbers."""
    seen = record.seen
    for n in numbers:
        seen = with_answered_check(seen, n, reading(person_id=person_id), (), can_tell=not after_end)
    return replace(record, seen=seen)


@pytest.mark.parametrize(
    ("reading_shows", "words"),
    [
        ({}, ()),
        ({"policies": (GREEN, RED)}, (GREEN, RED)),
        ({"status": "VoiceMismatch"}, (MISMATCH,)),
        ({"is_voice_mismatch": True}, (MISMATCH,)),
        ({"status": "FullAuthentication"}, ()),
        ({"status": "FullAuthentication", "is_voice_verified": True}, (FULL_AUTHENTICATION,)),
        ({"is_voice_verified": True}, ()),
    ],
)
def test_reading_shows_of_the_voice(reading_shows: dict[str, object], words: tuple[str, ...]) -> None:
    """Policies, a mismatch in either form, and an authentication that the voice brought."""
    assert shown_of_voice(reading(**reading_shows)) == words
    assert shown_of_voice(None) == ()


@pytest.mark.parametrize(
    ("before", "now", "doubtful"),
    [
        (Seen(person_id="p-1"), "p-1", ()),
        (Seen(), "p-1", ()),
        (Seen(person_id="p-1"), "p-2", (GREEN, RED)),
        (Seen(person_id="p-2", member_before="p-1", of_another=(GREEN,)), "p-2", (GREEN,)),
        (Seen(person_id="p-2", member_before="p-1", of_another=(GREEN,)), "p-1", (RED,)),
        (Seen(person_id="p-2", member_before="p-1", of_another=(GREEN,)), "p-3", (GREEN, RED)),
    ],
)
def test_evidence_in_doubt(before: Seen, now: str, doubtful: tuple[str, ...]) -> None:
    """What stood there under another member; a member who comes back gets their own back, and not the other's."""
    assert in_doubt(before, now, (GREEN, RED)) == doubtful


def test_evidence_in_doubt_that_is_gone_is_in_doubt_no_longer() -> None:
    """If the service applies a policy anew after it was gone, the voice was compared anew."""
    assert in_doubt(Seen(person_id="p-2", of_another=(GREEN,)), "p-2", (RED,)) == ()


def test_voice_of_the_member_before_is_forgotten() -> None:
    """What is not of the voice stays: an opt-out, a risky device, that it was red."""
    before = Seen(
        person_id="p-1",
        reading=reading(policies=(GREEN,)),
        authenticated=True,
        full_authentication=True,
        mismatch=True,
        red=True,
        risky_device=True,
        opted_out=True,
        history=History().with_answer(1, (GREEN,), ("voice_mismatch", "high_risk_device")),
    )
    seen = of_member(before, "p-2")
    assert (seen.authenticated, seen.full_authentication, seen.mismatch) == (False, False, False)
    assert seen.authenticated_members == ("p-1",)
    assert (seen.red, seen.risky_device, seen.opted_out) == (True, True, True)
    assert (set(seen.history.policies.values()), set(seen.history.signs)) == ({0}, {"high_risk_device"})
    assert (seen.of_another, seen.member_before) == ((GREEN,), "p-1")


def test_what_the_voice_was_not_is_remembered_by_member() -> None:
    """A mismatch counts again for the member it was of, and for nobody else; so does a voice that was recognised."""
    first = Seen(person_id="p-1", mismatch=True, authenticated=True, voiceprint=True)
    second = of_member(first, "p-2")
    assert (second.mismatch, second.mismatched_members, second.voiceprint) == (False, ("p-1",), False)
    assert second.authenticated_members == ("p-1",)
    again = of_member(second, "p-1")
    assert (again.mismatch, again.mismatched_members) == (True, ("p-1",))
    third = of_member(again, "p-3")
    assert (third.mismatched_members, third.authenticated_members) == (("p-1",), ("p-1",))
    fourth = of_member(replace(third, mismatch=True, authenticated=True), "p-4")
    assert (fourth.mismatched_members, fourth.authenticated_members) == (("p-1", "p-3"), ("p-1", "p-3"))
    recognised = of_member(replace(third, authenticated=True, authenticated_members=("p-3",)), "p-1")
    assert recognised.authenticated_members == ("p-3",)


def test_answers_of_checks_are_no_longer_this_members_once_another_is_assigned() -> None:
    """Also not after the member came back: the one between may have been the caller."""
    record = checked(call(), 1, 2)
    between = of_member(record.seen, "p-2")
    assert usable_answers(between) == 0
    assert usable_answers(of_member(between, "p-1")) == 0


@pytest.mark.parametrize("person_id", [None, "p-1"])
def test_voice_is_kept_while_the_member_stays(person_id: str | None) -> None:
    """A reading that names nobody says nothing new of whom the call is."""
    before = Seen(person_id="p-1", authenticated=True, mismatch=True)
    assert of_member(before, person_id) is before


def test_voice_is_kept_when_the_first_member_is_assigned() -> None:
    """Before that, the call was nobody's: the provider may have compared the voice by the number."""
    assert of_member(Seen(authenticated=True), "p-1") == Seen(authenticated=True, person_id="p-1")


@pytest.mark.parametrize("first", ["p-2", None])
def test_answers_count_for_the_assigned_member_only(first: str | None) -> None:
    """What was answered while somebody else, or nobody, was assigned says nothing of this member's voice."""
    record = checked(call(person_id=first), *range(1, ENOUGH_ANSWERS + 1), person_id=first)
    assert facts_of_record(record, BOOK.policies).voice_checked
    corrected = replace(record, seen=replace(record.seen, person_id="p-1"))
    assert not facts_of_record(corrected, BOOK.policies).voice_checked
    corrected = checked(corrected, ENOUGH_ANSWERS + 1)
    assert usable_answers(corrected.seen) == 1 << ENOUGH_ANSWERS
    merged = fold_note(call(), Merged(call=replace(corrected, voice_id="alt-1")), NOW)[0]
    assert not facts_of_record(merged, BOOK.policies).voice_checked


def test_answers_after_the_end_do_not_count() -> None:
    """The service no longer asks the provider then."""
    assert usable_answers(checked(checked(call(), 1, 2), 3, after_end=True).seen) == 0b011


@pytest.mark.parametrize("sign", ["provider_error", "voice_pending"])
def test_answers_without_a_result_do_not_count(sign: str) -> None:
    """They say nothing of the voice yet."""
    seen = with_answered_check(checked(call(), 1).seen, 2, reading(), (sign,), can_tell=True)
    assert usable_answers(seen) == 0b01


def test_mismatch_counts_once_a_check_has_compared_the_voice() -> None:
    """Policies stay in doubt: they stay on the record."""
    seen = Seen(person_id="p-2", of_another=(GREEN, MISMATCH))
    assert with_answered_check(seen, 1, reading(person_id="p-2"), (), can_tell=True).of_another == (GREEN,)


@pytest.mark.parametrize(
    ("changes", "assigned"),
    [
        ({}, False),
        ({"core_username": "bob"}, True),
        ({"assigned_person_id": "p-1"}, True),
        ({"assigned_person_id": "p-2"}, False),
        ({"assigned_person_id": "p-2", "core_username": "bob"}, True),
        ({"person_id": None}, False),
    ],
)
def test_member_is_assigned_by_us_or_by_whoever_claimed_the_call(changes: dict[str, Any], assigned: bool) -> None:
    """Otherwise the service has filled in the only match, and no account was correlated."""
    assert is_assigned(call(**changes)) is assigned


@pytest.mark.parametrize("state", [EffectState.APPLIED, EffectState.SENT])
def test_enrolled_person_is_whom_we_named(state: EffectState) -> None:
    """Also if nothing proves that the request arrived, and whoever is assigned now."""
    enroll = replace(APPLIED, state=state)
    assert enrolled_person(call(person_id="p-2", enroll=enroll, enrolled_for="p-3")) == "p-1"


def test_enrolled_person_of_an_enroll_elsewhere_is_who_was_assigned_then() -> None:
    """Nobody has told for whom it was."""
    assert enrolled_person(call(person_id="p-2", enrolled_for="p-3")) == "p-3"
    assert enrolled_person(call(person_id="p-2", enroll=replace(APPLIED, state=EffectState.ABSENT))) is None


def test_enroll_is_in_force_until_it_is_taken_back() -> None:
    """Ours or somebody else's."""
    assert not is_enrolled(call())
    assert is_enrolled(call(enroll=APPLIED))
    assert is_enrolled(call(enrolled_seen=True))
    assert not is_enrolled(call(enroll=APPLIED, unenrolled_seen=True))


def test_enrolled_member_of_an_enroll_in_force() -> None:
    """The assigned one, if nobody knows better."""
    assert enrolled_member(call(person_id="p-2", enroll=APPLIED)) == "p-1"
    assert enrolled_member(call(person_id="p-2", enrolled_seen=True)) == "p-2"
    assert enrolled_member(call(person_id="p-2", enroll=APPLIED, unenrolled_seen=True)) is None


def test_rejected_member_is_whom_we_rejected() -> None:
    """After a reject elsewhere, the assigned one. A validation rule rejects no voice."""
    assert rejected_member(call(person_id="p-2", reject=APPLIED)) == "p-1"
    assert rejected_member(call(person_id="p-2", rejected_seen=True)) == "p-2"
    assert rejected_member(call(person_id="p-2", rejected_seen=True, rejected_by_rule_only=True)) is None
    assert rejected_member(call()) is None


@pytest.mark.parametrize(
    ("changes", "enrolled"),
    [
        ({}, "p-1"),
        ({"of_another": ()}, None),
        ({"reading": None}, None),
        ({"reading": reading(status="AcceptCallerVoice")}, None),
        ({"reading": reading(status="FullAuthentication")}, None),
    ],
)
def test_policy_of_an_enroll_that_came_with_the_next_member_is_of_the_one_before(
    changes: dict[str, Any], enrolled: str | None
) -> None:
    """Unless the status says that the enroll is the last activity: that came after the member's."""
    known = {"member_before": "p-1", "of_another": ("Green Manual Authentication",), "enrolled_seen": True}
    assert enrolled_person(call(**{"person_id": "p-2", **known, **changes})) == enrolled


@pytest.mark.parametrize(
    ("changes", "rejected", "is_standing"),
    [
        ({}, None, False),
        ({"rejected_seen": True}, "p-1", True),
        ({"rejected_seen": True, "enrolled_seen": True}, "p-1", False),
        ({"rejected_seen": True, "rejected_by_rule_only": True}, None, False),
        ({"failed_feedback_seen": True}, "p-1", False),
        ({"failed_feedback_seen": True, "rejected_seen": True, "rejected_by_rule_only": True}, None, False),
    ],
)
def test_reject_of_a_validation_rule_takes_no_enroll_back(
    changes: dict[str, Any], rejected: str | None, is_standing: bool
) -> None:
    """It explains the provider's FAILED feedback, too. Without it the feedback may hide somebody's reject."""
    known = call(**changes)
    assert (rejected_member(known), is_rejection_standing(known)) == (rejected, is_standing)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, None),
        ({"assign_wish": word(number=2, person_id="p-1")}, None),
        ({"assign_wish": SHE_IS_P2}, "p-2"),
        ({"assign_wish": SHE_IS_P2, "identity": replace(verified(), number=3)}, None),
        ({"assign_wish": SHE_IS_P2, "identity": replace(verified(), number=1)}, "p-2"),
        ({"assign_wish": SHE_IS_P2, "identity": replace(verified(person_id="p-2"), number=3)}, "p-2"),
        ({"assign_wish": SHE_IS_P2, "assign": replace(APPLIED, person_id="p-2", last_word=2)}, None),
        ({"assign_wish": SHE_IS_P2, "assign": replace(APPLIED, person_id="p-2", last_word=1)}, "p-2"),
        ({"assign_wish": SHE_IS_P2, "assign": replace(APPLIED, last_word=2)}, "p-2"),
    ],
)
def test_member_whom_the_desk_names_counts_until_that_is_over(changes: dict[str, Any], named: str | None) -> None:
    """It is over once that was carried out, or somebody verified another member. The desk's order of words decides."""
    assert named_by_desk(call(**changes)) == named

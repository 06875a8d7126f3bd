"""Tests of whose evidence it is: what another member showed, or was enrolled for, says nothing of this one."""

from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.assign_folding import assigned_to
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.facts import ENOUGH_ANSWERS
from callkeeper.calls.member_evidence import (
    enrolled_member,
    enrolled_person,
    is_assigned,
    is_enrolled,
    is_rejection_standing,
    named_by_desk,
    rejected_member,
    usable_answers,
)
from callkeeper.calls.note_folding import fold_note
from callkeeper.calls.notes import Merged
from callkeeper.calls.record import Call
from callkeeper.calls.seen_folding import with_answered_check
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


def test_answers_count_for_the_assigned_member_only() -> None:
    """What was answered while somebody else was says nothing of this one's voice, nor of the first one's who comes back."""
    record = checked(call(person_id="p-2", checks_used=18), *range(1, ENOUGH_ANSWERS + 1), person_id="p-2")
    assert facts_of_record(record, BOOK.policies).voice_checked
    corrected = assigned_to(record, "p-1")
    assert usable_answers(corrected.seen) == usable_answers(assigned_to(corrected, "p-2").seen) == 0
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
    """That is the one who is assigned now, if nobody knows better."""
    assert enrolled_person(call(person_id="p-2", enrolled_for="p-3")) == "p-3"
    assert enrolled_person(call(person_id="p-2", enroll=replace(APPLIED, state=EffectState.ABSENT))) == "p-2"


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
        ({}, None),
        ({"enrolled_for": "p-1"}, "p-1"),
        ({"of_another": ()}, "p-2"),
        ({"reading": reading(status="AcceptCallerVoice")}, "p-2"),
        ({"reading": reading(status="FullAuthentication")}, "p-2"),
    ],
)
def test_policy_of_an_enroll_that_came_with_the_next_member_is_perhaps_of_the_one_before(
    changes: dict[str, Any], enrolled: str | None
) -> None:
    """Unless the status says that the enroll is the last activity: that came after the member's."""
    known = {"of_another": ("Green Manual Authentication",), "enrolled_seen": True}
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

"""Research cases: which call a case is about, and what of it is a fact."""

from typing import Any

import pytest

from callkeeper.calls.reading_folding import reading_of
from callkeeper.calls.record import Reading
from callkeeper.calls.record_storage import encode_call, parse_call
from callkeeper.service import PhoneCall
from callkeeper.service.phone_calls import ResearchCase
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, NOW, call, read_again

GUID = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"


def known(case: ResearchCase | None, **changes: Any) -> tuple[bool, bool, str | None, str | None]:
    """Return the facts about cases after the service showed this one."""
    reading = reading_of(PhoneCall(voice_id="v-1", person_id="p-1", research_case=case), NOW)
    shown = {name: getattr(reading, name) for name in ("research_status", "research_voice_id")}
    facts = facts_of_record(read_again(call(**changes), NOW, **shown), BOOK.policies)
    return facts.fraud, facts.fraud_elsewhere, facts.research, facts.research_elsewhere


FRAUD = "DeterminedFraud"


@pytest.mark.parametrize(
    ("about", "ids", "is_ours"),
    [
        ("v-1", {}, True),
        ("a-1", {"alternate_id": "a-1"}, True),
        (GUID.upper(), {"voice_id": GUID}, True),
        (GUID.upper(), {"alternate_id": GUID}, True),
        ("V-1", {}, False),
        ("v-2", {}, False),
        ("a-1", {}, False),
        ("", {}, False),
    ],
)
def test_case_is_about_the_call_that_it_names(about: str, ids: dict[str, Any], is_ours: bool) -> None:
    """By real or alternate id; ids compare as elsewhere. A case that names no call counts as one about another call."""
    found = known(ResearchCase(voice_id=about, research_status=FRAUD), **ids)
    assert found == ((True, False, FRAUD, None) if is_ours else (False, True, None, FRAUD))


@pytest.mark.parametrize("state", ["NeedsReview", "InReview", "FalsePositive", "SystemArchived", "Escalated"])
def test_other_states_are_facts_and_no_fraud(state: str) -> None:
    """Every state of the Spec is a value, a newer word is kept as it is; only DeterminedFraud is fraud."""
    assert known(ResearchCase(voice_id="v-1", research_status=state)) == (False, False, state, None)
    assert known(ResearchCase(voice_id="v-2", research_status=state)) == (False, False, None, state)
    assert known(ResearchCase(voice_id="v-1")) == known(None) == (False, False, None, None)


def test_call_of_a_case_that_lists_this_one_among_others_is_another_call() -> None:
    """``otherCalls`` are calls that were looked at as well: nobody determined fraud in them."""
    listed = (PhoneCall(voice_id="v-1"),)
    assert known(ResearchCase(voice_id="v-2", research_status=FRAUD, other_calls=listed))[:2] == (False, True)


def test_reading_of_an_earlier_release_counts_as_a_case_about_another_call() -> None:
    """Until the next read nobody knows which call the case is about: the caller may be its victim."""
    before = call(reading=Reading(read_at=NOW, voice_id="v-1", person_id="p-1", research_status=FRAUD))
    stored = encode_call(before)
    assert b"research_voice_id" not in stored
    facts = facts_of_record(parse_call(stored), BOOK.policies)
    assert (facts.fraud, facts.fraud_elsewhere) == (False, True)

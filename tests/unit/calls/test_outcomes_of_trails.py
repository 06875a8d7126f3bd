"""Which lines of a trail are outcomes."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.calls.outcome_messages import MEANINGS, example_of
from callkeeper.calls.outcomes_of_trails import OutcomeCause, outcomes
from callkeeper.calls.trail import Entry
from tests.outcome_schemas import keeps_to_its_schema, validator_of

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def line(what: Any, **fields: Any) -> Entry:
    """Return a line of a trail."""
    return Entry(at=AT, what=what, **fields)


def told(*lines: Entry) -> list[str]:
    """Return the types of a trail's outcomes."""
    return [outcome.type for outcome in outcomes(lines)]


GREEN = line("facts", facts={"green": True, "assigned": True})
SENT = line("sent", kind="enroll")
IN_DOUBT = line("facts", facts={"enrolled": True})
APPLIED = line("answered", kind="enroll", state="applied")
HELD = line("decided", kind="hold", asked="enroll", forbidden=("paused",))


def test_outcomes_come_once_and_in_order() -> None:
    """What stays true is told when it became so, and not again."""
    assert told(GREEN, GREEN, line("settled", because="authenticated")) == ["authenticated", "settled"]


def test_enroll_in_doubt_is_not_told_as_enrolled() -> None:
    """The law counts an enroll in doubt as one; the world is told when it is known."""
    assert told(SENT, line("answered", kind="enroll", state="unknown"), IN_DOUBT) == []
    assert told(SENT, APPLIED, IN_DOUBT) == ["enrolled"]
    assert told(SENT, IN_DOUBT, line("established", kind="enroll", state="unresolved")) == ["unresolved"]
    assert told(IN_DOUBT) == ["enrolled"], "somebody else did it"


def test_held_is_told_when_it_is_news() -> None:
    """The same reason twice in a row is one outcome; nothing asked for, or a reason that passes by itself, is none."""
    other = line("decided", kind="hold", asked="enroll", forbidden=("opted_out",))
    assert told(HELD, HELD, other, HELD) == ["held", "held", "held"]
    assert told(line("decided", kind="hold", asked="hold")) == []
    assert told(line("decided", kind="hold", asked="enroll", forbidden=("voice_id_not_confirmed",))) == []


def test_voice_is_told_as_authenticated_once_for_each_member() -> None:
    """A correction of the member would otherwise leave the first one told for ever."""
    one, other = line("read", person_id="p-1"), line("read", person_id="p-2")
    assert of_whom(one, GREEN, GREEN, other, GREEN, one, GREEN) == [("authenticated", "p-1"), ("authenticated", "p-2")]
    assert of_whom(GREEN, one, GREEN) == [("authenticated", None)]


def of_whom(*lines: Entry) -> list[tuple[str, str | None]]:
    """Return the types of a trail's outcomes, and whose they are."""
    return [(outcome.type, outcome.cause.person_id) for outcome in outcomes(lines)]


def test_outcome_is_the_members_of_that_time() -> None:
    """What was true of one member is not told of another, however late it is told."""
    first, second = line("read", person_id="p-1"), line("checked", person_id="p-2")
    assert of_whom(first, GREEN, second, line("settled", because="authenticated")) == [
        ("authenticated", "p-1"),
        ("settled", "p-2"),
    ]
    assert of_whom(line("listed", person_id="p-1"), line("read"), GREEN) == [("authenticated", "p-1")]
    assert of_whom(first, line("listed", person_id="p-2"), GREEN) == [("authenticated", "p-1")], "details decide"
    assert of_whom(GREEN) == [("authenticated", None)]


def test_outcome_of_an_effect_is_the_members_it_was_for() -> None:
    """Also if the member changed before it was proved."""
    intended = line("intended", kind="enroll", person_id="p-1")
    assert of_whom(intended, SENT, line("read", person_id="p-2"), APPLIED) == [("enrolled", "p-1")]
    ours = line("intended", kind="assign", person_id="p-3"), line("answered", kind="assign", state="applied")
    assert of_whom(*ours, GREEN) == [("authenticated", "p-3")]


def test_end_of_the_record_under_another_id_is_not_told_of_this_call() -> None:
    """A person spoke under the alternate id, which the service did not know yet. The records were merged later."""
    unconfirmed = line("settled", because="unconfirmed")
    assert told(unconfirmed) == ["settled"]
    copied = line("said", kind="opted_out"), unconfirmed
    later = Entry(at=AT + timedelta(seconds=9), what="facts", facts=GREEN.facts)
    assert told(later, *copied) == ["authenticated"]
    numbers = [outcome.n for outcome in outcomes([later, *copied, line("settled", because="authenticated")])]
    assert numbers == [0, 2], "a stored cursor counts what a release before has told"


LINES = st.builds(
    Entry,
    at=st.just(AT),
    what=st.sampled_from(["facts", "decided", "sent", "answered", "established", "settled", "read"]),
    kind=st.sampled_from([*EffectKind, "hold", None]),
    state=st.sampled_from([*EffectState, None]),
    asked=st.sampled_from(["enroll", "reject", "hold", None]),
    forbidden=st.sampled_from([(), ("paused",), ("voice_id_not_confirmed",)]),
    facts=st.sampled_from([None, {"green": True}, {"rejected": True, "enrolled": True}]),
)


@given(st.lists(LINES, max_size=30), st.integers(0, 30))
def test_outcomes_of_a_longer_trail_begin_with_those_of_the_shorter(trail: list[Entry], cut: int) -> None:
    """However far a trail has grown, what was sent keeps its number: a cursor is a count."""
    assert outcomes(trail)[: len(outcomes(trail[:cut]))] == outcomes(trail[:cut])


def test_outcome_knows_who_and_why() -> None:
    """Of an effect of ours: the person, the rule, how identity was established, as whom it was sent."""
    trail = [
        line("said", kind="verified", operator="agent-7", validation_type="MFA"),
        line("read", status="MFAValidated"),
        line("decided", kind="enroll", asked="enroll", rule="passcode", validation_type="MFA", because="She said it."),
        line("intended", kind="enroll", operator="agent-7", validation_type="MFA", because="She said it."),
        line("sent", kind="enroll", operator="bot"),
        APPLIED,
        line("settled", because="enrolled"),
    ]
    enrolled, settled = outcomes(trail)
    assert enrolled.cause == OutcomeCause(
        effect="enroll",
        operator="agent-7",
        requested_by="bot",
        validation_type="MFA",
        rule="passcode",
        reason="She said it.",
        status="MFAValidated",
    )
    assert settled.cause == replace(enrolled.cause, reason="enrolled")


def test_held_names_the_person_whose_word_is_held() -> None:
    """A held enroll that a person's word asked for is hers; one that rests on other proof is nobody's."""
    said = line("said", kind="verified", operator="agent-7", validation_type="MFA")
    hers = line("decided", kind="hold", asked="enroll", validation_type="MFA", forbidden=("opted_out",), rule="r")
    other = line("decided", kind="hold", asked="enroll", validation_type="KBA", forbidden=("paused",), rule="r")
    assert [outcome.cause.operator for outcome in outcomes([said, hers, other])] == ["agent-7", None]
    assert {outcome.cause.effect for outcome in outcomes([said, hers, other])} == {"enroll"}


def test_what_somebody_else_did_names_no_effect_of_ours() -> None:
    """An enroll that only the service's record shows has neither rule nor person, but the status that shows it."""
    [enrolled] = outcomes([line("checked", status="AcceptCallerVoice"), IN_DOUBT])
    assert enrolled.cause == OutcomeCause(status="AcceptCallerVoice")


@pytest.mark.parametrize("kind", MEANINGS)
def test_example_of_each_type_keeps_to_its_schema(kind: str) -> None:
    """The document shows an example of each type that its own schema accepts, and no other type's does."""
    example = json.dumps(example_of(kind)).encode()
    assert keeps_to_its_schema(example)["type"] == kind
    assert validator_of(kind).is_valid({**example_of(kind), "version": 2}) is False
    other = "call.settled" if kind != "call.settled" else "call.held"
    assert not validator_of(other).is_valid(example_of(kind))


def test_green_voice_of_nobody_is_not_told_before_somebody_is_assigned() -> None:
    """A call that nobody is assigned to may be green; whose voice it is, the assign says."""
    unassigned = line("facts", facts={"green": True})
    assert told(unassigned, line("settled", because="unassigned")) == ["settled"]
    assert told(unassigned, GREEN) == ["authenticated"]

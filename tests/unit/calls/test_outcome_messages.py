"""The messages of outcomes."""

from dataclasses import replace

import pytest

from callkeeper.calls.item_names import CallId
from callkeeper.calls.outcome_messages import MEANINGS, example_of, message_id, message_of, schema_name, schemas
from callkeeper.calls.outcomes_of_trails import CallOutcome, OutcomeCause
from callkeeper.calls.trail import Entry
from tests.unit.calls.specimens import NOW, call

OUTCOME = CallOutcome(
    3, "held", Entry(at=NOW, what="decided", forbidden=("paused",)), OutcomeCause(effect="enroll", rule="r")
)


def test_message_says_what_became_true_when_and_why() -> None:
    """The call's facts come from its record, the rest from the entry of its trail."""
    message = message_of(call(checks_used=4, alternate_id="a-1"), OUTCOME)
    assert (message.type, message.timestamp) == ("call.held", NOW)
    data = message.data
    assert (data.institution_key, data.voice_id, data.alternate_id) == ("cu-1", "v-1", "a-1")
    assert (data.effect, data.rule, data.forbidden, data.checks_used) == ("enroll", "r", ("paused",), 4)


def test_only_a_held_effect_is_forbidden() -> None:
    """An enroll elsewhere may be shown by the decision that therefore holds ours. What is told was carried out."""
    assert message_of(call(), replace(OUTCOME, type="enrolled")).data.forbidden == ()


def test_person_is_the_one_that_the_outcome_was_about() -> None:
    """Else the call's."""
    assert message_of(call(), OUTCOME).data.person_id == "p-1"
    about = CallOutcome(0, "enrolled", Entry(at=NOW, what="sent", person_id="p-2"))
    assert message_of(call(), about).data.person_id == "p-2"


def test_id_is_the_same_however_often_it_is_sent() -> None:
    """So that a receiver can leave out what comes again."""
    assert message_id(CallId("cu-1", "v-1"), OUTCOME) == "c:cu-1:v-1.3.held"


@pytest.mark.parametrize("kind", MEANINGS)
def test_every_type_has_a_schema_and_an_example_of_it(kind: str) -> None:
    """With its meaning."""
    schema = schemas("#/{name}")[schema_name(kind)]
    assert schema["description"] == MEANINGS[kind]
    assert schema["examples"] == [example_of(kind)]
    assert example_of(kind)["type"] == kind

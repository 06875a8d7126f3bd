"""Fields of the service's record that rules and agents need: enrolled voice, validation rule, the provider's error."""

from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.context import Context
from callkeeper.calls.reading_folding import reading_of
from callkeeper.calls.record import Phase, Reason
from callkeeper.calls.rules import parse_rules
from callkeeper.calls.rules.matching import judge
from callkeeper.calls.settlement import close
from callkeeper.calls.steps import Settle
from callkeeper.desk.board.rows import row_of
from callkeeper.desk.board.states import StateName, state_of
from callkeeper.desk.views import call_view
from callkeeper.service import PhoneCall
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, NOW, call, read_again, seconds

ERROR = "Provider timeout for Ada Example, 555-010-4821"


def read(**fields: Any) -> Any:
    """Return a call after the service's record said this."""
    said = PhoneCall(voice_id="v-1", person_id="p-1", status="CheckRiskAndAuthentication", **fields)
    reading = reading_of(said, NOW)
    changes = {name: getattr(reading, name) for name in reading.__struct_fields__ if name != "read_at"}
    return read_again(call(), NOW, **changes)


@pytest.mark.parametrize(
    ("fields", "fact", "value"),
    [
        ({"is_voice_enrolled": True}, "voice_enrolled", True),
        ({"has_voice_match_validation_rule": True}, "voice_match_rule", True),
        ({"validation_rule_name": "Two of three"}, "validation_rule", "Two of three"),
        ({"voice_authentication_error": ERROR}, "provider_error", True),
        ({"voice_authentication_error": ""}, "provider_error", False),
    ],
    ids=["voice", "match", "rule", "error", "no-error"],
)
def test_field_of_the_record_is_a_fact(fields: dict[str, Any], fact: str, value: object) -> None:
    """Rules can use each field as a fact. If missing, the fact is false or none. Changes are written to the trail."""
    before, after = facts_of_record(read(), BOOK.policies), facts_of_record(read(**fields), BOOK.policies)
    assert getattr(before, fact) in {False, None}
    assert getattr(after, fact) == value
    assert (before.signature != after.signature) == bool(value)


def test_rule_decides_by_the_name_of_the_validation_rule() -> None:
    """Institutions choose these names, so any text is a legal value."""
    text = b"""
[checks]
at = [10, 20, 40]
[[rule]]
name = "strict"
when = { validation_rule = "Two of three", voice_enrolled = false }
then = "hold"
because = "Strict."
[[rule]]
name = "otherwise"
then = "hold"
because = "Nothing."
"""
    book = parse_rules(text, name="test")
    facts = facts_of_record(read(validation_rule_name="Two of three"), book.policies)
    assert judge(facts, book, "cu-1").rule == "strict"
    assert judge(facts_of_record(read(), book.policies), book, "cu-1").rule == "otherwise"


def test_provider_error_is_told_from_undecided() -> None:
    """A call that the provider could not judge is shown as such. A result before the error takes precedence."""
    failed, open_ = read(voice_authentication_error=ERROR), read()
    assert "provider error" in row_of(failed, BOOK).tags
    assert call_view(open_, BOOK.policies).provider_error is None
    for one, reason, state in (
        (failed, Reason.PROVIDER_ERROR, StateName.PROVIDER_ERROR),
        (open_, Reason.UNDECIDED, StateName.UNDECIDED),
        (read(voice_authentication_error=ERROR, is_voice_verified=True, call_ended=False), Reason.PROVIDER_ERROR, None),
    ):
        fields = {"has_ended": True, "provider_error": one.seen.reading.provider_error}
        ended = read_again(read_again(one, NOW + seconds(9), **fields), NOW + seconds(20), **fields)
        assert close(
            ended, Context(ended.last_claim), BOOK, facts_of_record(ended, BOOK.policies), NOW + seconds(20)
        ) == Settle(reason)
        if state is not None:
            settled = read_again(ended, NOW + seconds(20), **fields)
            assert (
                state_of(replace(settled, life=replace(settled.life, phase=Phase.SETTLED, reason=reason)), BOOK).name
                is state
            )


def test_desk_shows_the_fields_and_nothing_of_a_person() -> None:
    """The error is shown in known words only, and of the questions only their number."""
    questions = ("What is your favourite colour?", "Which card ends in 48210?")
    view = call_view(
        read(
            voice_authentication_error=ERROR,
            verification_questions=questions,
            validation_rule_name="Two of three",
            has_voice_match_validation_rule=True,
            is_voice_enrolled=True,
        ),
        BOOK.policies,
    )
    assert view.provider_error == "Provider timeout for …"
    assert view.verification_questions == 2
    assert (view.validation_rule, view.voice_match_rule, view.voice_enrolled) == ("Two of three", True, True)

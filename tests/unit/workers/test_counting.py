"""What a call's record shows of the provider, for the figures."""

from typing import Any

import pytest

from callkeeper.calls.policies import MANUAL_GREEN
from tests.unit.calls.specimens import BOOK, call, reading
from workers.counting import is_voice_expected, is_voice_shown, signs_shown, unknown_names

GREEN = "Green Voice Authentication"


@pytest.mark.parametrize(
    "changes",
    [{"reading": reading(policies=(GREEN,))}, {"mismatch_seen": True}, {"risky_device_seen": True}],
    ids=["policy", "mismatch", "risk"],
)
def test_voice_is_shown_by_a_policy_a_mismatch_or_a_risk(changes: dict[str, Any]) -> None:
    """Each by itself is something that the provider said."""
    assert is_voice_shown(call(**changes), BOOK.policies)


def test_voice_is_not_shown_by_an_enroll_or_by_nothing() -> None:
    """The manual policy comes from a person."""
    assert not is_voice_shown(call(), BOOK.policies)
    assert not is_voice_shown(call(reading=None), BOOK.policies)
    assert not is_voice_shown(call(reading=reading(policies=(MANUAL_GREEN,))), BOOK.policies)


def test_voice_is_expected_while_it_is_evaluated_or_where_a_voiceprint_is() -> None:
    """Otherwise the provider may have nothing to say."""
    assert is_voice_expected(call(pending_seen=True))
    assert is_voice_expected(call(reading=reading(is_voice_enrolled=True)))
    assert not is_voice_expected(call())
    assert not is_voice_expected(call(reading=None))


def test_names_that_nobody_knows_are_reported() -> None:
    """A policy without a colour, and a status that the Spec does not name."""
    strange = reading(policies=(GREEN, "Mauve"), status="Brand New")
    assert signs_shown(strange, BOOK.policies) == {"unclassified", "status_unknown"}
    assert unknown_names(strange, BOOK.policies) == (["Mauve"], "Brand New")
    known = reading(policies=(GREEN,))
    assert signs_shown(known, BOOK.policies) == {"classified"}
    assert unknown_names(known, BOOK.policies) == ([], None)
    assert signs_shown(None, BOOK.policies) == set()
    assert unknown_names(None, BOOK.policies) == ([], None)

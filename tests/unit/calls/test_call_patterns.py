"""When a reading of a call says something about the service."""

from typing import Any

import pytest

from callkeeper.calls.call_patterns import repeats_last
from callkeeper.calls.effect_ledger import Effect, EffectState
from tests.unit.calls.specimens import NOW, call, reading, seconds

LATER = {"read_at": NOW + seconds(8)}


def test_same_reading_of_a_live_call_says_nothing_new() -> None:
    """A call is read dozens of times; what it shows is counted once."""
    assert repeats_last(call(), reading(**LATER))


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "FullAuthentication"},
        {"policies": ("Green Voice Authentication",)},
        {"updated_at": NOW},
        {"person_id": "p-2"},
        {"is_voice_mismatch": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_changed_reading_says_something(changes: dict[str, Any]) -> None:
    """Whatever differs from the last reading may be an answer to an open question."""
    assert not repeats_last(call(), reading(**LATER, **changes))


def test_first_reading_says_something() -> None:
    """There is nothing to compare it with."""
    assert not repeats_last(call(reading=None), reading())


@pytest.mark.parametrize(
    "expecting",
    [
        {"end_seen_at": NOW},
        {"is_unlisted": True},
        {"not_found_since": NOW},
        {"recheck_from": NOW},
        {"listed_at": NOW + seconds(1)},
        {"enroll": Effect(state=EffectState.APPLIED, person_id="p-1", sent_at=NOW - seconds(9), attempts=1)},
        {"assign": Effect(state=EffectState.APPLIED, person_id="p-1", sent_at=NOW, attempts=1)},
    ],
    ids=lambda expecting: next(iter(expecting)),
)
def test_same_reading_says_something_where_a_change_was_due(expecting: dict[str, Any]) -> None:
    """After an end, a listing, an effect or a reject of the member, a reading that stays the same is an answer."""
    assert not repeats_last(call(**expecting), reading(**LATER))

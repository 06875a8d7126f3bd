"""When a reading of a call says something about the service."""

from typing import Any

import pytest

from callkeeper.calls.call_patterns import repeats_last, seen_in_reading
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.service.phone_calls import PhoneCall
from tests.unit.calls.specimens import BOOK, NOW, call, reading, seconds

CLOCKS = ("dates-without-zone", "service-clock")
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


@pytest.mark.parametrize(
    ("ahead_s", "shown"),
    [
        (0, {"dates-without-zone": "dates-without-zone", "service-clock": "usual"}),
        (180, {"dates-without-zone": "dates-without-zone", "service-clock": "clock-3-min-ahead"}),
        (-180, {"dates-without-zone": "dates-without-zone", "service-clock": "clock-3-min-behind"}),
        (900, {"dates-without-zone": "dates-without-zone", "service-clock": "clock-differs"}),
        (2_100, {"dates-without-zone": "dates-without-zone", "service-clock": "clock-differs"}),
        (1_800, {"dates-without-zone": "dates-local-east"}),
        (20_700, {"dates-without-zone": "dates-local-east"}),
        (-18_003, {"dates-without-zone": "dates-local-west"}),
    ],
)
def test_only_the_difference_of_a_zone_is_local_time(ahead_s: int, shown: dict[str, str]) -> None:
    """Zones differ by quarters of an hour, from half an hour up. Minutes are a clock that is wrong."""
    before = call(reading=reading(updated_at=NOW - seconds(60)))
    after = reading(read_at=NOW + seconds(8), updated_at=NOW + seconds(4 + ahead_s))
    seen = seen_in_reading(before, call(reading=after), PhoneCall(), BOOK.policies, "none")
    assert {one.assumption: one.answer for one in seen if one.assumption in CLOCKS} == shown

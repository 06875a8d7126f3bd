"""Which calls a typed query matches."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace as changed

from callkeeper.calls.call_query import CallQuery, parse_query, same_number
from callkeeper.calls.record import Call, Candidate, Life, Names, Seen

BEGAN = datetime(2026, 11, 22, 10, 38, tzinfo=UTC)
CALL = Call(
    institution_key="cu-1",
    voice_id="vA7x-123456",
    names=Names(alternate_id="alt-99", phone_number="2025550147"),
    life=Life(started_at=BEGAN),
    seen=Seen(candidates=(Candidate(person_id="p-1", name="Zoë Example"),)),
)


def means(text: str, *, zone_h: int = 0, call: Call = CALL) -> bool:
    """Tell whether a query means the call."""
    query = parse_query(text, country="US", zone=timezone(timedelta(hours=zone_h)))
    return query.matches(call, name="First Example Credit Union", state="Watching live")


@pytest.mark.parametrize(
    "text",
    [
        *("0147", "147", "(202) 555-0147", "+1 202 555 0147", "1-202-555-0147", "202.555.0147", "zoë", "ZOË example"),
        *("p-1", "vA7x-123456", "va7x", "alt-99", "alt-", "cu-1", "first example", "10:40", "around 10:35", "watching"),
        *("2026-11-22 10:40", "0147 zoë 10:40 cu-1", "about 10:38"),
    ],
)
def test_query_means_the_call(text: str) -> None:
    """A query matches by any property of the call, in any case and notation, alone or combined."""
    assert means(text)


@pytest.mark.parametrize(
    "text",
    [
        *("0148", "47", "+44 202 555 0147", "bob", "p-2", "vA8", "vA7", "11:40", "2026-11-21 10:40", "rejected"),
        *("0147 bob", "cu-2"),
    ],
)
def test_query_means_another_call(text: str) -> None:
    """Every word must match; two digits or three letters are too few."""
    assert not means(text)


def test_time_is_the_viewers_own() -> None:
    """In a zone two hours ahead of UTC the call began at 12:38, also just before midnight."""
    assert means("12:40", zone_h=2)
    assert not means("10:40", zone_h=2)
    late = changed(CALL, life=changed(CALL.life, started_at=datetime(2026, 11, 22, 23, 58, tzinfo=UTC)))
    assert means("00:01", call=late)


def test_numbers_are_compared_in_any_notation() -> None:
    """The configured country fills in what is not typed."""
    assert same_number("020 7946 0958", "+44 20 7946 0958", "GB")
    assert not same_number("020 7946 0958", "+44 20 7946 0958", "US")


def test_nothing_typed_is_no_query() -> None:
    """An empty line is an empty query."""
    assert parse_query("  ", country="US", zone=UTC).is_empty
    assert not replace(CallQuery(), id_prefix="vA7x").is_empty


def test_query_is_held_to_an_institution_and_to_a_time() -> None:
    """Filters by institution and time are exact."""
    assert CallQuery(institution_key="cu-1", since=BEGAN).matches(CALL)
    assert not CallQuery(institution_key="cu").matches(CALL)
    assert not CallQuery(since=BEGAN + timedelta(seconds=1)).matches(CALL)
    assert not CallQuery(since=BEGAN).matches(changed(CALL, life=changed(CALL.life, started_at=None)))

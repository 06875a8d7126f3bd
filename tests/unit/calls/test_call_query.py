"""Which calls a typed query matches."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace as changed

from callkeeper.calls.call_query import NEEDS_PERSON, CallQuery, FilterWrong, filtered, parse_query
from callkeeper.calls.record import Call, Candidate, History, Life, Names, Reading, Reason, Seen
from callkeeper.calls.trail import Entry
from callkeeper.desk.board.states import state_named
from tests.records import with_stored

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


def narrowed(**filters: str) -> CallQuery:
    """Return a query with filters, as of ten minutes after the call began."""
    return filtered(CallQuery(), filters, state_named=state_named, now=BEGAN + timedelta(minutes=10))


@pytest.mark.parametrize(
    ("filters", "is_found"),
    [
        ({"state": "green"}, True),
        ({"state": "open"}, True),
        ({"state": "settled"}, False),
        ({"state": NEEDS_PERSON}, False),
        ({"institution": "cu-1", "policy": "green voice"}, True),
        ({"policy": "yellow review"}, True),
        ({"policy": "red"}, False),
        ({"since": "10m"}, True),
        ({"since": "9m"}, False),
        ({"since": "2026-11-22T10:38", "until": "2026-11-22T10:38:01"}, True),
        ({"until": "2026-11-22T10:38"}, False),
        ({"since": "2026-11-22T11:38+01:00"}, True),
        ({"since": " ", "policy": ""}, True),
    ],
    ids=lambda value: " ".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else "",
)
def test_filters_are_exact(filters: dict[str, str], is_found: bool) -> None:
    """By state, institution, policy (applied now or before) and the time of its beginning; empty ones are none."""
    known = with_stored(
        CALL,
        reading=Reading(read_at=BEGAN, policies=("Green Voice",)),
        history=History().with_answer(1, ["Yellow Review"], []),
    )
    assert narrowed(**filters).matches(known, states={"green", "open"}) is is_found


def test_filters_by_what_happened_need_the_trail() -> None:
    """A rule that decided and a person who said something are in the trail, an outcome is in the record."""
    trail = (
        Entry(at=BEGAN, what="decided", rule="new device"),
        Entry(at=BEGAN, what="said", operator="agent-7"),
        Entry(at=BEGAN, what="sent", operator="agent-8"),
    )
    over = with_stored(CALL, reason=Reason.REJECTED)
    for filters in ({"rule": "new device"}, {"operator": "agent-7"}, {"rule": "new device", "outcome": "rejected"}):
        assert narrowed(**filters).has_terms(over, trail), filters
        assert narrowed(**filters).needs_trail
    for filters in ({"rule": "device"}, {"operator": "agent-8"}, {"outcome": "enrolled"}):
        assert not narrowed(**filters).has_terms(over, trail), filters
    assert not narrowed(outcome="rejected").needs_trail


@pytest.mark.parametrize(
    "filters",
    [{"state": "blue"}, {"outcome": "maybe"}, {"since": "yesterday"}, {"until": "0001-01-01"}, {"since": "9w"}],
)
def test_filter_with_an_impossible_value_is_refused(filters: dict[str, str]) -> None:
    """A misspelt value would otherwise show nothing, or everything."""
    with pytest.raises(FilterWrong) as wrong:
        narrowed(**filters)
    assert [wrong.value.name] == list(filters)

"""When stored details are read next."""

from typing import Any

import pytest

from callkeeper.calls.context import Context
from callkeeper.calls.record import CHECK_LIMIT, Obstacles
from callkeeper.calls.schedule.reads import (
    END_HINT_FOR,
    MANY,
    SOON_S,
    apart,
    may_have_ended,
    next_read,
    put_off,
    read_retry,
)
from tests.unit.calls.specimens import BOOK, NOW, call, reading, seconds, verified

MANY_LIVE = Context(Obstacles(), live=99)


def wait_s(live: int = 1, late_s: float = 0.0, busy: float = 0.0, **changes: Any) -> float:
    """Return for how long a call waits for its next read, without its own tenth."""
    known = call(next_check_at=None, **changes)
    context = Context(known.last_claim, live, seconds(late_s), busy)
    at = next_read(known, context, BOOK.policies, NOW, undecided_s=20, decided_s=60)
    return (at - NOW).total_seconds() / apart(known, 1).total_seconds()


def test_reads_are_frequent_while_few_calls_are_live() -> None:
    """Then each is read within ten seconds; with many, at the period of the rules."""
    assert wait_s() == pytest.approx(SOON_S)
    assert wait_s(live=MANY) == pytest.approx(20)
    assert SOON_S < wait_s(live=25) < 20
    assert wait_s(live=MANY, rejected_seen=True) == pytest.approx(60)


def test_call_without_checks_left_is_read_as_often_as_an_undecided_one() -> None:
    """Only a read can show its opt-out, or that its caller was verified."""
    assert wait_s(live=MANY, checks_used=CHECK_LIMIT) == pytest.approx(20)


def test_pushed_end_is_looked_at_within_a_second() -> None:
    """For ten seconds."""
    ended = call(end_hinted_at=NOW)
    assert next_read(ended, MANY_LIVE, BOOK.policies, NOW, undecided_s=20, decided_s=60) == NOW + seconds(1)
    assert may_have_ended(ended, NOW + END_HINT_FOR - seconds(1))
    assert not may_have_ended(ended, NOW + END_HINT_FOR)


def test_old_and_verified_calls_are_read_less_often() -> None:
    """But at least as often as decided ones."""
    assert wait_s(live=MANY, first_seen_at=NOW - seconds(2000)) == pytest.approx(40)
    assert wait_s(live=MANY, first_seen_at=NOW - seconds(90_000)) == pytest.approx(60)
    assert wait_s(live=MANY, identity=verified()) == pytest.approx(40)


def test_late_or_busy_workers_read_less_often() -> None:
    """Up to a tolerance nothing changes, and decided calls never wait longer."""
    assert wait_s(late_s=0.3) == wait_s(busy=0.6) == wait_s()
    assert wait_s(late_s=1.3) == pytest.approx(SOON_S + 20)
    assert wait_s(busy=0.7) == pytest.approx(SOON_S + 20)
    assert wait_s(late_s=99) == pytest.approx(60)


def test_read_that_something_asks_for_is_not_put_off() -> None:
    """An effect that was sent since the last read must be seen."""
    late = Context(Obstacles(), late=seconds(5))
    assert put_off(call(), late, NOW, NOW, decided_s=60.0) > NOW
    assert put_off(call(not_found_since=NOW), late, NOW, NOW, decided_s=60.0) == NOW
    assert put_off(call(end_hinted_at=NOW), late, NOW, NOW, decided_s=60.0) == NOW
    assert put_off(call(reading=None), late, NOW, NOW, decided_s=60.0) == NOW
    assert put_off(call(reading=reading()), Context(Obstacles()), NOW, NOW, decided_s=60.0) == NOW


def test_failed_reads_are_repeated_ever_later() -> None:
    """Up to half a minute."""
    waits = [(read_retry(call(reads_failed=n), NOW) - NOW).total_seconds() for n in range(7)]
    assert waits == [1, 2, 4, 8, 16, 30, 30]

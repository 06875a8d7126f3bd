"""What a decision must know besides the call, the rules and the time."""

import pytest

from callkeeper.calls.context import LATE_TOLERANCE, Context
from callkeeper.calls.facts import facts_of
from callkeeper.calls.record import Obstacles
from tests.unit.calls.specimens import BOOK, call, seconds


@pytest.mark.parametrize(("late_s", "is_late"), [(0.0, False), (0.3, False), (0.31, True)])
def test_workers_are_late_above_the_tolerance(late_s: float, is_late: bool) -> None:
    """A few tenths of a second are usual."""
    assert Context(Obstacles(), late=seconds(late_s)).is_late is is_late
    assert seconds(0.3) == LATE_TOLERANCE


def test_facts_come_from_what_holds_now_and_not_from_the_record() -> None:
    """What held at the last claim is only shown."""
    known = call(standing="not_active", effects_held_until=None)
    assert not facts_of(known, known.last_claim, BOOK.policies).allowed
    assert facts_of(known, Obstacles(), BOOK.policies).allowed

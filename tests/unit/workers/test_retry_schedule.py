"""When failed work is tried again, and when it is parked."""

from datetime import timedelta

import pytest

from callkeeper.calls.claimed_item import Placement
from workers.retry_schedule import OUTCOMES, STEPS

DAY = timedelta(days=1)


def test_retry_of_a_step_waits_longer_each_time_and_is_parked_after_five_failures() -> None:
    """A bug is not repeated for ever: a person looks at the call."""
    assert [STEPS.wait_s(n) for n in range(1, 6)] == [2.0, 4.0, 8.0, 16.0, None]


@pytest.mark.parametrize(("failures", "placement"), [(1, Placement(2000)), (5, Placement(None, attention="parked"))])
def test_retry_of_a_step_says_when_it_is_due_or_why_it_is_parked(failures: int, placement: Placement) -> None:
    """A parked call is due no more, and has its reason in the attention list."""
    assert STEPS.placement(failures, "parked") == placement


def test_retry_of_an_outcome_goes_on_for_a_day() -> None:
    """A receiver may be away for hours: the last wait repeats, until the outcome is older than a day."""
    assert [OUTCOMES.wait_s(n, DAY) for n in (1, 2, 6, 7, 100)] == [5.0, 15.0, 3600.0, 3600.0, 3600.0]
    assert OUTCOMES.wait_s(1, DAY + timedelta(seconds=1)) is None

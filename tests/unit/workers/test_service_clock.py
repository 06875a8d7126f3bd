"""How old a call is where the service's clock is not ours."""

from datetime import UTC, datetime, timedelta

import pytest

from workers.service_clock import FAMILIAR_S, ServiceClock

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize("ahead_s", [-7200, -30, 0, 30, 7200])
def test_age_of_a_call_does_not_depend_on_how_clocks_differ(ahead_s: int) -> None:
    """A process that has read queues for a while knows how old a call is, hours apart or not."""
    passed_s = 0.0
    clock = ServiceClock(lambda: passed_s)
    begun = NOW + timedelta(seconds=ahead_s)
    clock.see([begun])
    passed_s = 100.0
    clock.see([begun, begun + timedelta(seconds=98)])
    assert clock.age(begun, NOW + timedelta(seconds=100)) == timedelta(seconds=100)
    assert clock.age(begun + timedelta(seconds=98), NOW + timedelta(seconds=100)) == timedelta(seconds=2)


def test_age_of_the_first_call_that_a_familiar_process_meets_is_nothing() -> None:
    """It was not listed before: it has just begun, whatever its start says."""
    passed_s = 0.0
    clock = ServiceClock(lambda: passed_s)
    clock.see([])
    passed_s = FAMILIAR_S + 1
    old = NOW - timedelta(hours=1)
    clock.see([old])
    assert clock.age(old, NOW) == timedelta()


def test_age_by_a_new_process_is_the_older_of_both() -> None:
    """A process that has just begun cannot tell a call that was there before from one whose clock differs."""
    clock = ServiceClock(lambda: 0.0)
    assert clock.age(NOW - timedelta(seconds=60), NOW) == timedelta(seconds=60)
    clock.see([NOW, NOW - timedelta(seconds=60)])
    assert clock.age(NOW - timedelta(seconds=60), NOW - timedelta(hours=1)) == timedelta(seconds=60)

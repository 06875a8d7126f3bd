"""How old a call is where the service's clock is not ours."""

from datetime import UTC, datetime, timedelta

import pytest

from callkeeper.calls.claimed_item import Epoch
from workers.service_clock import FOUND_WITHIN_S, ServiceClock

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KNOWN = Epoch("known", NOW)


def at(seconds: float) -> datetime:
    """Return an instant of Redis's clock."""
    return NOW + timedelta(seconds=seconds)


def met(seconds: float) -> timedelta:
    """Return how old a call is at the most that a familiar process measures so."""
    return timedelta(seconds=seconds + FOUND_WITHIN_S)


class Process:
    """A process whose own clock is moved by hand; the service's is ahead of Redis's by so much."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.passed_s = 0.0
        self.ahead = timedelta(seconds=ahead_s)
        self.clock = ServiceClock(lambda: self.passed_s)

    def lists(self, passed_s: float, *began_s: float) -> None:
        """Read a page with calls that began then."""
        self.passed_s = passed_s
        self.clock.learn([at(seconds) + self.ahead for seconds in began_s])

    def finds(self, began_s: float) -> None:
        """Be the one to find a call that nobody knew of."""
        self.clock.found(at(began_s) + self.ahead, at(self.passed_s), KNOWN, may_be_old=False)

    def age(self, began_s: float, epoch: Epoch = KNOWN) -> timedelta | None:
        """Return how old a call is that began then, and may be older than Redis if that is a replaced one."""
        return self.clock.age(at(began_s) + self.ahead, at(self.passed_s), epoch, may_be_old=epoch.is_replaced)


@pytest.mark.parametrize("ahead_s", [-7200, -30, 0, 30, 7200])
def test_age_in_an_emptied_redis_does_not_depend_on_how_clocks_differ(ahead_s: int) -> None:
    """A process that found a call fresh knows how old the calls are that Redis forgot, hours apart or not."""
    process = Process(ahead_s)
    process.lists(50, 20)
    process.lists(140, 20, 140)
    process.finds(140)
    process.lists(200, 20, 140, 190)
    emptied = Epoch("new", at(195), was_seen_to_begin=True, is_replaced=True)
    assert process.age(20, emptied) == met(180)
    process.lists(260, 20, 140, 190)
    assert process.age(20, emptied) == met(240)


@pytest.mark.parametrize("was_there", [True, False], ids=["found no call itself", "began afterwards"])
@pytest.mark.parametrize("ahead_s", [0, 30, 3600])
def test_age_of_forgotten_calls_is_not_learned_from_them(was_there: bool, ahead_s: int) -> None:
    """A process that found no call before Redis was emptied cannot tell how far ahead the service's clock is."""
    process = Process(ahead_s)
    if was_there:
        process.lists(0)
        process.lists(60, 20)
    emptied = Epoch("new", at(100), was_seen_to_begin=was_there, is_replaced=True)
    process.lists(101, 20)
    assert process.age(20, emptied) is None


def test_age_of_a_call_whose_start_is_not_told_is_unknown_only_if_it_may_be_old() -> None:
    """A call that was not in an earlier look at the whole queue is new, whatever its entry leaves out."""
    clock = Process().clock
    found = {is_old: clock.found(None, at(200), KNOWN, may_be_old=is_old) for is_old in (True, False)}
    assert found == {True: None, False: timedelta()}
    assert clock.found(None, at(119), KNOWN, may_be_old=False) is None, "two minutes count as the first look"


@pytest.mark.parametrize("ahead_s", [-7200, 0, 7200])
def test_age_of_a_call_that_a_familiar_process_meets_is_nothing(ahead_s: int) -> None:
    """It was not listed before: it has just begun, whatever its start says."""
    process = Process(ahead_s)
    process.lists(0)
    process.lists(FOUND_WITHIN_S + 1, FOUND_WITHIN_S + 1)
    assert process.age(FOUND_WITHIN_S + 1) == timedelta()


def test_age_by_a_new_process_is_the_older_of_both() -> None:
    """A process that has just begun cannot tell a call that was there before from one whose clock differs."""
    process = Process(-60)
    process.lists(0, 0, -30)
    assert process.age(-30) == timedelta(seconds=90)
    process = Process(3600)
    process.lists(0, 0, -30)
    assert process.age(-30) == timedelta(seconds=30)

"""How many failures of an address are answered."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.store.attempt_limiter import AttemptLimiter, network_of


@dataclass
class Clock:
    """A clock that is moved by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return the clock."""
    return Clock()


@pytest.fixture
def limiter(clock: Clock) -> AttemptLimiter:
    """Return a limiter that allows three failures and another one every ten seconds."""
    return AttemptLimiter(allowed=3, every_s=10, remembered=100, now=clock)


def test_limiter_counts_to_its_limit(limiter: AttemptLimiter) -> None:
    """Three failures are counted; those after them are over the limit, for this name only."""
    assert [bool(limiter.count("a")) for _ in range(5)] == [False, False, False, True, True]
    assert limiter.wait_s("a") > 0
    assert limiter.wait_s("b") == 0


def test_limiter_allows_another_failure_after_the_wait(limiter: AttemptLimiter, clock: Clock) -> None:
    """Failures over the limit do not extend the wait: after it one more is allowed."""
    for _ in range(50):
        limiter.count("a")
    wait_s = limiter.wait_s("a")
    assert wait_s <= 11
    clock.now += wait_s
    assert limiter.wait_s("a") == 0
    assert limiter.count("a") == 0
    assert limiter.count("a") > 0


def test_limiter_forgets(limiter: AttemptLimiter, clock: Clock) -> None:
    """After long enough without failures the count of a name starts anew."""
    for _ in range(3):
        limiter.count("a")
    clock.now += 30
    assert [limiter.count("a") for _ in range(3)] == [0, 0, 0]


@given(names=st.lists(st.text(max_size=3), max_size=500))
def test_limiter_is_bounded(names: list[str]) -> None:
    """For all sequences of names, the limiter keeps at most the configured number."""
    limiter = AttemptLimiter(remembered=5)
    for name in names:
        limiter.count(name)
    assert len(limiter) <= 5


@pytest.mark.parametrize(
    ("client", "name"),
    [
        (("203.0.113.7", 1), "203.0.113.7"),
        (("2001:db8:1:2:3::4", 1), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::9", 1), "2001:db8:1:2::/64"),
        (("::ffff:203.0.113.7", 1), "203.0.113.7"),
        (("fe80::1%eth0", 1), "fe80::/64"),
        (("forged\r\nline", 1), "unknown"),
        (("", 1), "unknown"),
        (None, "unknown"),
    ],
)
def test_network_of_a_client(client: object, name: str) -> None:
    """An IPv4 address is counted alone, an IPv6 address by its network, and an invalid address is not logged."""
    assert network_of(client) == name

"""How many failures of an address are heard."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calls.strangers import Failure, Strangers, network_of


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
def strangers(clock: Clock) -> Strangers:
    """Return a book that hears three failures and another one every ten seconds."""
    return Strangers(heard=3, every_s=10, remembered=100, now=clock)


def test_strangers_hear_some_failures_and_say_which_is_the_last(strangers: Strangers) -> None:
    """The third of three is the last that is heard; what follows is ignored, and the address barred."""
    heard = [strangers.fail("a") for _ in range(5)]
    assert heard == [Failure.HEARD, Failure.HEARD, Failure.LAST_HEARD, Failure.IGNORED, Failure.IGNORED]
    assert strangers.is_barred("a")
    assert not strangers.is_barred("b")


def test_strangers_are_heard_again_after_the_wait_they_were_told(strangers: Strangers, clock: Clock) -> None:
    """Ignored failures make nobody wait longer: after the time that was told one more is heard."""
    for _ in range(50):
        strangers.fail("a")
    wait_s = strangers.wait_s("a")
    assert wait_s <= 11
    clock.now += wait_s
    assert not strangers.is_barred("a")
    assert strangers.fail("a") is Failure.LAST_HEARD


def test_strangers_are_forgiven(strangers: Strangers, clock: Clock) -> None:
    """After long enough a silent address is like a new one."""
    for _ in range(3):
        strangers.fail("a")
    clock.now += 30
    assert strangers.fail("a") is Failure.HEARD


@given(names=st.lists(st.text(max_size=3), max_size=500))
def test_strangers_fill_no_memory(names: list[str]) -> None:
    """For all sequences of addresses: no more are kept than was said."""
    strangers = Strangers(remembered=5)
    for name in names:
        strangers.fail(name)
    assert len(strangers) <= 5


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
    """An IPv4 address is one, an IPv6 one stands for its network, and what is no address is nobody's text in our log."""
    assert network_of(client) == name

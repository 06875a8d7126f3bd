"""Tokens of pages."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desk.forms import VALID_S, FormTokens
from reseller.secret import Secret


@dataclass
class Clock:
    """A clock that is moved by hand."""

    now: float = 1_790_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return the clock."""
    return Clock()


def tokens_of(password: str, clock: Clock, user: str = "ops") -> FormTokens:
    """Return the tokens of one login, as any web process has them."""
    return FormTokens(user, Secret(password), now=clock)


def test_token_is_taken_by_every_process_of_one_login(clock: Clock) -> None:
    """What one process issued another one takes: nothing is kept, so a restart closes no page."""
    assert tokens_of("the-password-1", clock).is_valid(tokens_of("the-password-1", clock).issue())


def test_token_of_another_login_is_refused(clock: Clock) -> None:
    """Another password or another user: another signature."""
    mine = tokens_of("the-password-1", clock)
    assert not mine.is_valid(tokens_of("the-password-2", clock).issue())
    assert not mine.is_valid(tokens_of("the-password-1", clock, user="eve").issue())


@pytest.mark.parametrize(("after_s", "is_valid"), [(0, True), (VALID_S, True), (VALID_S + 1, False), (-3600, False)])
def test_token_grows_old(after_s: float, is_valid: bool, clock: Clock) -> None:
    """A token is good for half a day, and never before it was issued."""
    tokens = tokens_of("the-password-1", clock)
    token = tokens.issue()
    clock.now += after_s
    assert tokens.is_valid(token) is is_valid


@given(token=st.none() | st.text() | st.from_regex(r"[0-9]{1,12}\.[0-9a-f]{64}", fullmatch=True))
def test_token_cannot_be_made_up(token: str | None) -> None:
    """For all texts: none is a token, and none raises."""
    assert not tokens_of("the-password-1", Clock()).is_valid(token)

"""Signed tokens and their keys."""

import hmac
import time
from dataclasses import dataclass
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.desk.signed_tokens import FORM_VALID_S, Signer, form_tokens, key_for, key_of_login
from callkeeper.service.secret import Secret

PASSWORD, ANOTHER = Secret("the-right-password"), Secret("another-password")


def test_key_is_derived_slowly() -> None:
    """A guess of the password costs as much memory and time as scrypt is told to take."""
    began_s = time.process_time()
    key_of_login("ops", Secret("a-password-that-is-new"))
    assert time.process_time() - began_s > 0.02


def test_keys_differ_by_login_and_purpose() -> None:
    """Another user, password or purpose: another key."""
    keys = {
        key_for(purpose, key_of_login(user, password))
        for purpose in ("form tokens", "known browsers")
        for user, password in (("ops", PASSWORD), ("eve", PASSWORD), ("ops", ANOTHER))
    }
    assert len(keys) == 6


def test_cookie_cannot_be_checked_against_a_password_quickly() -> None:
    """A signature is no HMAC that is keyed by the password, whatever text was signed beside it."""
    token = Signer(key_for("known browsers", key_of_login("ops", PASSWORD)), valid_s=60).issue()
    head, _, signature = token.rpartition(".")
    quick = [PASSWORD.reveal().encode(), hmac.digest(PASSWORD.reveal().encode(), b"known browsers", sha256)]
    assert signature not in {hmac.digest(key, head.encode(), sha256).hex() for key in quick}


def test_tokens_are_never_the_same() -> None:
    """Two browsers that log in within one second are told apart."""
    signer = Signer(bytes(32), valid_s=60, now=lambda: 1000.0)
    assert len({signer.issue() for _ in range(100)}) == 100
    assert signer.age_s(signer.issue()) == 0.0


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


def tokens_of(password: Secret, clock: Clock, user: str = "ops") -> Signer:
    """Return the tokens of one login, as any web process has them."""
    return form_tokens(key_of_login(user, password), now=clock)


def test_token_is_taken_by_every_process_of_one_login(clock: Clock) -> None:
    """What one process issued another one takes: nothing is kept, so a restart closes no page."""
    assert tokens_of(PASSWORD, clock).is_valid(tokens_of(PASSWORD, clock).issue())


def test_token_of_another_login_is_refused(clock: Clock) -> None:
    """Another password or another user: another signature."""
    mine = tokens_of(PASSWORD, clock)
    assert not mine.is_valid(tokens_of(ANOTHER, clock).issue())
    assert not mine.is_valid(tokens_of(PASSWORD, clock, user="eve").issue())


@pytest.mark.parametrize(
    ("after_s", "is_valid"), [(0, True), (FORM_VALID_S, True), (FORM_VALID_S + 1, False), (-3600, False)]
)
def test_token_grows_old(after_s: float, is_valid: bool, clock: Clock) -> None:
    """A token is good for half a day, and never before it was issued."""
    tokens = tokens_of(PASSWORD, clock)
    token = tokens.issue()
    clock.now += after_s
    assert tokens.is_valid(token) is is_valid


@given(token=st.none() | st.text() | st.from_regex(r"[0-9]{1,12}\.[0-9a-f]{64}", fullmatch=True))
def test_token_cannot_be_made_up(token: str | None) -> None:
    """For all texts: none is a token, and none raises."""
    assert not tokens_of(PASSWORD, Clock()).is_valid(token)

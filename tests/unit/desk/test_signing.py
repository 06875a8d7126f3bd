"""Signed tokens and their keys."""

import hmac
import time
from hashlib import sha256

from desk.signing import Signer, key_for, key_of_login
from reseller.secret import Secret

PASSWORD = Secret("the-right-password")


def test_key_is_derived_slowly() -> None:
    """A guess of the password costs as much memory and time as scrypt is told to take."""
    began_s = time.process_time()
    key_of_login("ops", Secret("a-password-that-is-new"))
    assert time.process_time() - began_s > 0.02


def test_keys_differ_by_login_and_purpose() -> None:
    """Another user, password or purpose: another key."""
    keys = {
        key_for(purpose, key_of_login(user, Secret(password)))
        for purpose in ("form tokens", "known browsers")
        for user in ("ops", "eve")
        for password in ("the-right-password", "another-password")
    }
    assert len(keys) == 8


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

"""Credentials that are easy to guess are refused."""

from collections.abc import Callable

import pytest

from callkeeper.credentials import desk_tokens, login, push_headers

GUESSED = (
    "Password1234",
    "administrator",
    "qwertyuiop12",
    "callkeeper12",
    "adminadmin12345",
    "abcdefghijkl",
    "Welcome2026!",
    "123456789012",
    "callkeeper:1",
    "aaaaaaaaaaaa",
    "operator-1990",
)


@pytest.mark.parametrize("password", GUESSED)
def test_login_is_not_a_common_password(password: str) -> None:
    """A common password stops the start, also with digits or signs added. The message does not repeat it."""
    with pytest.raises(ValueError, match="hard to guess") as refused:
        login(f"operator:{password}")
    assert password not in str(refused.value)


@pytest.mark.parametrize("password", ["Tr4ck-bright-Sea9", "four words nobody chose", "Jn3kQ8vB2xWd"])
def test_login_that_is_hard_to_guess_is_taken(password: str) -> None:
    """Random characters and several words are accepted, also with colons and blanks."""
    assert login(f"ops:{password}").password.reveal() == password


@pytest.mark.parametrize("value", ["abcdefgh12345678", "secretsecret1234", "tokentokentoken12", "passwordpassword"])
@pytest.mark.parametrize(
    ("parse", "prefix"),
    [(push_headers, "X-Push-Key: "), (desk_tokens, "desktop:")],
    ids=["push headers", "desk tokens"],
)
def test_secrets_of_software_are_hard_to_guess(value: str, parse: Callable[[str], object], prefix: str) -> None:
    """Tokens and push secrets that are easy to guess are refused."""
    with pytest.raises(ValueError, match="hard to guess"):
        parse(prefix + value)

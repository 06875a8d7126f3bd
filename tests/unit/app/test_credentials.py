"""Credentials that are easy to guess are refused."""

from base64 import b64encode
from collections.abc import Callable
from secrets import token_bytes, token_hex, token_urlsafe
from uuid import uuid4

import pytest

from callkeeper.app.credentials import (
    desk_tokens,
    login,
    metrics_token,
    outcome_secrets,
    push_headers,
    refuse_weak_password,
    strong_secret,
)
from callkeeper.app.settings import VARIABLES

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


def test_password_is_no_longer_than_the_fields_of_our_pages() -> None:
    """A password of 256 characters of any kind is taken; nobody could type a longer one on the login page."""
    longest = "Tr4ck-bright-Sea9 \u00e4\u4e2d\t\x00" + "x" * 234
    assert len(longest) == 256
    refuse_weak_password("ann", longest)
    for longer in (longest + "x", "Tr4ck-bright-Sea9" + "\U0001f600" * 120):
        with pytest.raises(ValueError, match="more than 256"):
            refuse_weak_password("ann", longer)


WEAK_SECRETS = (
    "abcdefgh12345678",
    "secretsecret1234",
    "tokentokentoken12",
    "passwordpassword",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "0123456789abcdef0123456789abcdef",
    "aabbccddeeff0011",
    "00000000-0000-0000-0000-000000000000",
    "callkeeper-secret",
    "prometheus-token",
    "my-metrics-token",
    "CallkeeperPush2026!",
    "Summer2026Summer2026",
    "000102030405060708090a0b0c0d0e0f",
    "cGFzc3dvcmRwYXNzd29yZHBhc3N3b3Jk",
    "change-me-change-me-now",
    "cGFzc3dvcmQxMjM0",  # password1234
    "cGFzc3dvcmQxMjM0Cg==",  # with a line break
    "cGFzc3dvcmQxMjM0NTY3OA",  # password12345678, without padding
    "Pj4-Pz8_cGFzc3dvcmQxMjM0",  # >>>???password1234, in the alphabet of addresses
    b"password1234".hex(),
    f"0x{b'password1234'.hex()}",
    "insert-your-token-here",
    "YOUR_PUSH_KEY_HERE",
    "Replace-with-9x7Qz2Lm4V",
    b64encode(b"insert-your-9x7Qz2Lm4V-token").decode(),
)
PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "push headers": (push_headers, "X-Push-Key: "),
    "desk tokens": (desk_tokens, "desktop:"),
    "metrics token": (metrics_token, ""),
    "archive key, provider's secret": (strong_secret, ""),
}


@pytest.mark.parametrize("value", WEAK_SECRETS)
@pytest.mark.parametrize(("parse", "prefix"), PARSERS.values(), ids=PARSERS)
def test_secrets_of_software_are_hard_to_guess(value: str, parse: Callable[[str], object], prefix: str) -> None:
    """Tokens and secrets that are easy to guess are refused, also in hexadecimal or base64."""
    with pytest.raises(ValueError, match=r"hard to guess|placeholder") as refused:
        parse(prefix + value)
    assert value not in str(refused.value)


@pytest.mark.parametrize(
    "key",
    [bytes(24), bytes(range(32)), b"password" * 4, b"ab" * 16, b"changeme-changeme-change"],
    ids=["zeroes", "ascending", "word", "pairs", "placeholder"],
)
def test_outcome_key_is_hard_to_guess(key: bytes) -> None:
    """A signing key of repeated or ascending bytes, or of common words, is refused although it is long enough."""
    value = f"whsec_{b64encode(key).decode()}"
    with pytest.raises(ValueError, match="hard to guess") as refused:
        outcome_secrets(value)
    assert value not in str(refused.value)


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.night)])
def test_secrets_that_commands_print_are_taken(times: int) -> None:
    """Random secrets of 96 bits and more are never refused, in whatever alphabet."""
    for _ in range(times):
        lengths = (token_hex(16), token_hex(32), token_urlsafe(12), token_urlsafe(24), token_urlsafe(32))
        for value in (*lengths, b64encode(token_bytes(16)).decode(), f"0x{token_hex(16)}", str(uuid4())):
            assert strong_secret(value).reveal() == value
        assert outcome_secrets(f"whsec_{b64encode(token_bytes(24)).decode()}")


@pytest.mark.parametrize("value", [b"xK9#vQ2!".hex(), b"]T0m{4wZ".hex(), b64encode(b"Vq8$nL2@xR5&").decode()])
def test_random_bytes_that_are_a_text_by_chance_are_taken(value: str) -> None:
    """A random secret is taken also if its bytes happen to be visible characters."""
    assert strong_secret(value).reveal() == value


@pytest.mark.parametrize("variable", ["CALLKEEPER_ARCHIVE_KEY", "CALLKEEPER_OIDC_CLIENT_SECRET"])
def test_settings_read_their_secrets_strictly(variable: str) -> None:
    """The archive's key and the provider's secret stop the start if they are easy to guess."""
    with pytest.raises(ValueError, match="hard to guess"):
        VARIABLES[variable].parse("passwordpassword")

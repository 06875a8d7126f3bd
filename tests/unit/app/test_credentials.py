"""Credentials that are short, repetitions or placeholders are refused."""

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
    strong_secret,
)
from callkeeper.app.settings import VARIABLES

WEAK = (
    token_hex(15) + "f",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "tokentokentokentokentokentokentokentoken",
    "change-me-change-me-now-change-me-now",
    "insert-your-token-here-0123456789abcdef",
    "YOUR_PUSH_KEY_HERE_0123456789abcdefghij",
    "Replace-with-9x7Qz2Lm4V-8b1c5d7e9f02",
)
PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "push headers": (push_headers, "X-Push-Key: "),
    "desk tokens": (desk_tokens, "desktop:"),
    "metrics token": (metrics_token, ""),
    "emergency login": (login, "ops:"),
    "archive key, provider's secret": (strong_secret, ""),
}


@pytest.mark.parametrize("value", WEAK, ids=range(len(WEAK)))
@pytest.mark.parametrize(("parse", "prefix"), PARSERS.values(), ids=PARSERS)
def test_secrets_are_long_and_no_placeholders(value: str, parse: Callable[[str], object], prefix: str) -> None:
    """Secrets of less than 32 characters, of few different ones, and placeholders are refused and not repeated."""
    with pytest.raises(ValueError, match=r"at least 32 random characters|placeholder") as refused:
        parse(prefix + value)
    assert value not in str(refused.value)


def test_password_may_have_colons_and_blanks() -> None:
    """The name ends at the first colon; the password may hold anything, up to 256 characters."""
    assert login(f"ops:{'four words: nobody chose them by chance'}").password.reveal().startswith("four words:")
    with pytest.raises(ValueError, match="more than 256"):
        login(f"ops:{token_hex(129)}")


@pytest.mark.parametrize("key", [bytes(24), b"ab" * 16], ids=["zeroes", "pairs"])
def test_outcome_key_is_random(key: bytes) -> None:
    """A signing key of repeated bytes is refused although it is long enough."""
    value = f"whsec_{b64encode(key).decode()}"
    with pytest.raises(ValueError, match="must be random") as refused:
        outcome_secrets(value)
    assert value not in str(refused.value)


def test_secrets_that_commands_print_are_taken() -> None:
    """Random secrets of 128 bits and more are never refused, in whatever alphabet."""
    for _ in range(500):
        for value in (token_hex(16), token_urlsafe(24), token_urlsafe(32), f"0x{token_hex(16)}", str(uuid4())):
            assert strong_secret(value).reveal() == value
        assert outcome_secrets(f"whsec_{b64encode(token_bytes(24)).decode()}")


@pytest.mark.parametrize("variable", ["CALLKEEPER_ARCHIVE_KEY", "CALLKEEPER_OIDC_CLIENT_SECRET"])
def test_settings_read_their_secrets_strictly(variable: str) -> None:
    """The archive's key and the provider's secret stop the start if they are short."""
    with pytest.raises(ValueError, match="at least 32"):
        VARIABLES[variable].parse("passwordpassword")

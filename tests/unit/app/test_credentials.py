"""Credentials that are short, repetitions or placeholders are refused."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes, token_hex, token_urlsafe
from uuid import uuid4

import pytest

from callkeeper.app.credentials import (
    login,
    metrics_token,
    outcome_secrets,
    push_headers,
    strong_secret,
)
from callkeeper.app.environment import SettingsWrong
from callkeeper.app.settings import VARIABLES, WebSettings, WorkerSettings

WEAK = (
    token_hex(15) + "f",
    "change-me-change-me-now-change-me-now",
    "insert-your-token-here-0123456789abcdef",
    "YOUR_PUSH_KEY_HERE_0123456789abcdefghij",
    "Replace-with-9x7Qz2Lm4V-8b1c5d7e9f02",
)
PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "push headers": (push_headers, "X-Push-Key: "),
    "metrics token": (metrics_token, ""),
    "emergency login": (login, "ops:"),
    "archive key": (strong_secret, ""),
}


@pytest.mark.parametrize("value", WEAK, ids=range(len(WEAK)))
@pytest.mark.parametrize(("parse", "prefix"), PARSERS.values(), ids=PARSERS)
def test_secrets_are_long_and_no_placeholders(value: str, parse: Callable[[str], object], prefix: str) -> None:
    """Secrets of less than 32 characters, and placeholders, are refused and not repeated."""
    with pytest.raises(ValueError, match=r"at least 32 random characters|placeholder") as refused:
        parse(prefix + value)
    assert value not in str(refused.value)


def test_password_may_have_colons_and_blanks() -> None:
    """The name ends at the first colon; the password may hold anything, up to 256 characters."""
    assert login(f"ops:{'four words: nobody chose them by chance'}").password.reveal().startswith("four words:")
    with pytest.raises(ValueError, match="more than 256"):
        login(f"ops:{token_hex(129)}")


def test_secrets_that_commands_print_are_taken() -> None:
    """Random secrets of 128 bits and more are never refused, in whatever alphabet."""
    for _ in range(500):
        for value in (token_hex(16), token_urlsafe(24), token_urlsafe(32), f"0x{token_hex(16)}", str(uuid4())):
            assert strong_secret(value).reveal() == value
        assert outcome_secrets(f"whsec_{b64encode(token_bytes(24)).decode()}")


def test_archive_key_is_read_strictly() -> None:
    """The archive's key stops the start if it is short."""
    with pytest.raises(ValueError, match="at least 32"):
        VARIABLES["CALLKEEPER_ARCHIVE_KEY"].parse("passwordpassword")


def test_client_secret_is_not_judged() -> None:
    """The provider has issued it, however short it is."""
    assert VARIABLES["CALLKEEPER_OIDC_CLIENT_SECRET"].parse("short").reveal() == "short"


PUBLISHED = {
    line.partition("=")[0]: line.partition("=")[2].strip('"')
    for line in (Path(__file__).parents[3] / "deploy" / "sandbox.env").read_text(encoding="utf-8").splitlines()
    if line.startswith("CALLKEEPER_")
}


@pytest.mark.parametrize(
    ("section", "named"),
    [
        (WebSettings, {"CALLKEEPER_PUSH_HEADERS", "CALLKEEPER_ADMIN"}),
        (WorkerSettings, {"CALLKEEPER_ACCESS_TOKEN", "CALLKEEPER_PASSWORD"}),
    ],
)
@pytest.mark.parametrize("service", ["https://service.example", "https://127.0.0.1.example", "", "http://[bad"])
def test_published_credentials_are_for_this_machine(
    section: type[WebSettings | WorkerSettings], named: set[str], service: str
) -> None:
    """The credentials of deploy/sandbox.env stop the start, unless the service is on this machine."""
    environ = PUBLISHED | {"REDIS_URL": "redis://127.0.0.1:6379/0"}
    section.load(environ)
    with pytest.raises(SettingsWrong) as wrong:
        section.load(environ | {"CALLKEEPER_SERVICE_URL": service})
    assert {each.name for each in wrong.value.faults if "published" in each.problem} == named
    assert "0123456789abcdef01234567" not in str(wrong.value)

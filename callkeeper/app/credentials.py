"""Reads credentials: those that were issued, and those that the operator chooses.

A chosen one is refused if it has fewer than 32 characters or is a placeholder; `callkeeper secret` makes good ones.
Every function raises ValueError with what is wrong, never with the text itself.
"""

import re
from base64 import b64decode
from contextlib import suppress
from typing import Final

from callkeeper.app.parsing import VISIBLE, ensure, plain_text, separated
from callkeeper.desk.access.configured_logins import AdminLogin
from callkeeper.service.push_event import Headers, parse_header_settings
from callkeeper.service.secret import Secret

MIN_ISSUED: Final = 8
MIN_SECRET: Final = 32
MAX_PASSWORD: Final = 256
"""The field of our login page takes no longer one. Characters beyond U+FFFF count twice there."""

_PLACEHOLDER = re.compile(
    r"(?i)change.?(me|this)|example|placeholder|<.*>"
    r"|(insert|replace|enter|paste).{0,20}?(me|this|with|your|here|token|key|secret|password|value)(.{0,20}here)?"
    r"|your.{0,20}?(token|key|secret|password|value)(.{0,3}here)?"
    r"|(token|key|secret|password|value).{0,3}here"
)
_STRONG: Final = f"of at least {MIN_SECRET} random characters"


def issued(text: str) -> Secret:
    """Read an issued credential. Placeholders and texts that are too short are refused.

    Assumed (`credentials-length`): credentials issued at onboarding have eight characters or more.
    """
    ensure(not _PLACEHOLDER.fullmatch(text), "is a placeholder, not an issued credential")
    is_long = len(text) >= MIN_ISSUED
    ensure(is_long, f"has fewer than {MIN_ISSUED} characters, so it is not an issued credential")
    return Secret(text)


def strong_secret(text: str) -> Secret:
    """Read a secret that signs."""
    ensure(_is_strong_secret(text), f"needs a secret {_STRONG}; run: callkeeper secret new")
    return Secret(text)


def issued_header(text: str) -> Secret:
    """Read an issued credential that is sent as a header."""
    return issued(plain_text(text))


def outcome_secrets(text: str) -> tuple[Secret, ...]:
    """Read the signing keys: one, or two during a rotation."""
    found = separated(_outcome_secret)(text)
    ensure(len(found) <= 2, "must be one secret, or two with a comma between them")
    ensure(len(set(found)) == len(found), "names the same secret twice")
    return found


def _outcome_secret(text: str) -> Secret:
    """Read one key in the form of Standard Webhooks."""
    key = b""
    with suppress(ValueError):
        key = b64decode(text.removeprefix("whsec_"), validate=True)
    is_key = text.startswith("whsec_") and 24 <= len(key) <= 64
    ensure(is_key, "must be whsec_ and 24 to 64 bytes in base64; run: callkeeper secret outcome")
    return Secret(text)


def push_headers(text: str) -> Headers:
    """Read ``Header: value; Header2: value2`` of which at least one value must be a real secret."""
    headers = parse_header_settings(text)
    values = [value.reveal() for _, value in headers]
    ensure(not any(map(_PLACEHOLDER.search, values)), "holds a placeholder, not a secret; run: callkeeper secret new")
    ensure(any(map(_is_strong_secret, values)), f"needs a secret {_STRONG}; run: callkeeper secret new")
    return headers


def login(text: str) -> AdminLogin:
    """Read ``user:password`` of the shared login."""
    user, colon, password = text.partition(":")
    ensure(user and colon, "must be user:password")
    length = len(password.encode("utf-16-le", "surrogatepass")) // 2
    ensure(length <= MAX_PASSWORD, f"the password has more than {MAX_PASSWORD} characters")
    ensure(_is_strong_secret(password), f"needs a password {_STRONG}; run: callkeeper secret new")
    return AdminLogin(user, Secret(password))


def metrics_token(text: str) -> Secret:
    """Read the token by which Prometheus reads the metrics."""
    is_token = VISIBLE.fullmatch(text) and _is_strong_secret(text)
    ensure(is_token, f"needs a token {_STRONG}; run: callkeeper secret metrics")
    return Secret(text)


def _is_strong_secret(text: str) -> bool:
    """Tell whether a secret is long and no placeholder."""
    return len(text) >= MIN_SECRET and not _PLACEHOLDER.search(text)

"""Reads credentials: those that were issued, and those that the operator chooses.

zxcvbn refuses chosen ones that are easy to guess: common passwords, names, words, dates, rows of keys, repetitions. A
plain list of passwords would miss ``Welcome2026!`` or ``adminadmin12345``. Every function raises ValueError with what
is wrong, never with the text itself.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Final

from callkeeper.app.parsing import VISIBLE, ensure, plain_text, separated, split_limit
from callkeeper.desk.access.configured_logins import AdminLogin
from callkeeper.desk.access.desk_tokens import DeskToken
from callkeeper.service.push_event import Headers, parse_header_settings
from callkeeper.service.secret import Secret

MIN_ISSUED: Final = 8
MIN_SECRET: Final = 16
MIN_PASSWORD: Final = 12
MAX_PASSWORD: Final = 256
"""The fields of our pages take no longer one, so nobody could log in by it. Characters beyond U+FFFF count twice there."""

PASSWORD_WITHSTANDS: Final = 8.0
"""Guesses that a password must withstand, as a power of ten: at the limit of ten a minute, nineteen years."""

SECRET_WITHSTANDS: Final = 12.0
"""The same for software. Its guesses are not limited, so only the process's speed counts: 5,000 a second at most."""

_CONTENT_WITHSTANDS: Final = 0.75
"""The same for each character of a text that a secret encodes, until it withstands as much as a secret. Of the random
secrets of 16 hexadecimal digits one in three thousand encodes a text; zxcvbn expects nearly ten guesses a character."""

RATED: Final = 64
"""Characters that are judged: zxcvbn refuses more than 72, and long texts take it long."""

TOKEN_NAME: Final = re.compile(r"(?!board\Z)[A-Za-z0-9_.-]{1,40}")
"""Names of users and tokens. In trails ``board`` means the board itself, so no user and no token has this name."""

NAME_RULE: Final = "NAME must be 1 to 40 letters, digits, dots, hyphens or underscores, and not board"

_PLACEHOLDER = re.compile(
    r"(?i)change.?(me|this)|example|placeholder|<.*>"
    r"|(insert|replace|enter|paste).{0,20}?(me|this|with|your|here|token|key|secret|password|value)(.{0,20}here)?"
    r"|your.{0,20}?(token|key|secret|password|value)(.{0,3}here)?"
    r"|(token|key|secret|password|value).{0,3}here"
)
_DEFAULTS: Final = {"password", "password1", "secret", "12345678", "accesstoken", "access-token", "test", "testtest"}
_STRONG: Final = f"of at least {MIN_SECRET} visible characters, hard to guess"

_CONTEXT: Final = (
    *("callkeeper", "key", "secret", "token", "password", "push", "metrics", "prometheus", "webhook", "outcome"),
    *("signing", "archive", "client", "desk", "admin"),
)
"""Words that an attacker would try first."""

_MIN_DISTINCT: Final = 5
"""Different characters, and different steps from one to the next, of a secret. Fewer are a repetition or a sequence; of
random texts with 16 hexadecimal digits one in two million has so few."""


def issued(text: str) -> Secret:
    """Read an issued credential. Placeholders and texts that are too short are refused.

    Assumed (`credentials-length`): credentials issued at onboarding have eight characters or more.
    """
    is_default = _PLACEHOLDER.fullmatch(text) or text.lower() in _DEFAULTS
    ensure(not is_default, "is a placeholder or a default, not an issued credential")
    is_long = len(text) >= MIN_ISSUED
    ensure(is_long, f"has fewer than {MIN_ISSUED} characters, so it is not an issued credential")
    return Secret(text)


def strong_secret(text: str) -> Secret:
    """Read a secret that signs, or by which we identify ourselves to software of the operator."""
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
    ensure(_is_hard_to_guess(text.removeprefix("whsec_")), "must be hard to guess; run: callkeeper secret outcome")
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
    ensure(not _PLACEHOLDER.search(password), "holds a placeholder, not a password")
    refuse_weak_password(user, password)
    return AdminLogin(user, Secret(password))


def desk_tokens(text: str) -> tuple[DeskToken, ...]:
    """Read ``name:token`` or ``name:token@cu-1|cu-2``, separated by commas."""
    tokens = separated(_desk_token)(text)
    ensure(len({token.name for token in tokens}) == len(tokens), "uses a name twice")
    are_distinct = len({token.secret for token in tokens}) == len(tokens)
    ensure(are_distinct, "uses a token twice, so the log could not tell the two users apart")
    return tokens


def _desk_token(text: str) -> DeskToken:
    name, _, rest = text.partition(":")
    value, institutions = split_limit(rest)
    is_token = TOKEN_NAME.fullmatch(name) and VISIBLE.fullmatch(value)
    ensure(is_token, "must be name:token or name:token@key|key, separated by commas; the name must not be board")
    ensure(_is_strong_secret(value), f"needs tokens {_STRONG}; run: callkeeper secret token")
    return DeskToken(name=name, secret=Secret(value), institutions=institutions)


def metrics_token(text: str) -> Secret:
    """Read the token by which Prometheus reads the metrics."""
    is_token = VISIBLE.fullmatch(text) and _is_strong_secret(text)
    ensure(is_token, f"needs a token {_STRONG}; run: callkeeper secret metrics")
    return Secret(text)


def refuse_weak_password(name: str, password: str) -> None:
    """Refuse a password that is easy to guess.

    Raises:
        ValueError: Says what it needs.
    """
    length = len(password.encode("utf-16-le", "surrogatepass")) // 2
    ensure(length <= MAX_PASSWORD, f"the password has more than {MAX_PASSWORD} characters")
    is_strong = len(password) >= MIN_PASSWORD and _guesses_log10(password, name) >= PASSWORD_WITHSTANDS
    ensure(
        is_strong,
        f"the password needs at least {MIN_PASSWORD} characters and must be hard to guess: no common password, "
        "name, date or row of keys, alone or with some digits",
    )


def _is_strong_secret(text: str) -> bool:
    """Tell whether a secret of software is long, hard to guess and no placeholder."""
    return len(text) >= MIN_SECRET and _is_hard_to_guess(text)


def _is_hard_to_guess(text: str) -> bool:
    """Tell whether a secret of software, and what it encodes, is no placeholder, repetition, sequence or common word."""
    encoded = list(_encoded(text))
    contents = [content.decode() for content in encoded if content.isascii() and content.decode().isprintable()]
    if any(map(_PLACEHOLDER.search, [text, *contents])):
        return False
    if not all(map(_has_variety, [text.encode("utf-8", "replace"), *encoded])):
        return False
    needed = {content: min(SECRET_WITHSTANDS, _CONTENT_WITHSTANDS * len(content)) for content in contents}
    needed[text] = SECRET_WITHSTANDS
    return all(_guesses_log10(each) >= guesses for each, guesses in needed.items())


def _encoded(text: str) -> Iterator[bytes]:
    """Yield the bytes that a secret encodes in hexadecimal or base64, of either alphabet and without padding too."""
    digits = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    decoders: tuple[Callable[[], bytes], ...] = (
        lambda: bytes.fromhex(text.lower().removeprefix("0x")),
        lambda: b64decode(digits + "=" * (-len(digits) % 4), validate=True),
    )
    for decode in decoders:
        with suppress(ValueError):
            yield decode().rstrip(b"\r\n")  # a line break is what echo adds


def _has_variety(content: bytes) -> bool:
    """Tell whether bytes are neither repeated nor in sequence, alone or in small groups."""
    steps = {after - before for before, after in pairwise(content)}
    return len(set(content)) >= _MIN_DISTINCT and len(steps) >= _MIN_DISTINCT


def _guesses_log10(text: str, *known: str) -> float:
    """Return how many guesses find a secret. ``known`` are further words that an attacker would try first."""
    from zxcvbn import zxcvbn  # noqa: PLC0415  (its lists take a twentieth of a second to load; few commands need them)

    return float(zxcvbn(text[:RATED], user_inputs=[*_CONTEXT, *known])["guesses_log10"])

"""Reads the credentials that the operator chooses: push headers, the admin login, desk tokens.

zxcvbn refuses those that are easy to guess: common passwords, names, words, dates, rows of keys, repetitions. A plain
list of passwords would miss ``Welcome2026!`` or ``adminadmin12345``. Every function raises ValueError with what is
wrong, never with the text itself.
"""

import re
from typing import Final

from callkeeper.parsing import PLACEHOLDER, VISIBLE
from desk.access.configured_logins import AdminLogin
from desk.access.desk_tokens import DeskToken
from reseller.endpoints import is_institution_key
from reseller.push_event import Headers, parse_header_settings
from reseller.secret import Secret

MIN_PUSH_SECRET: Final = 16
MIN_ADMIN_PASSWORD: Final = 12
MIN_DESK_TOKEN: Final = 16
PASSWORD_WITHSTANDS: Final = 8.0
"""Guesses that a password must withstand, as a power of ten: at the limit of ten a minute, nineteen years."""

SECRET_WITHSTANDS: Final = 12.0
"""The same for software. Its guesses are not limited, so only the process's speed counts: 5,000 a second at most."""

LOOKED_AT: Final = 64
"""Characters that are judged: zxcvbn refuses more than 72, and long texts take it long."""

TOKEN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def push_headers(text: str) -> Headers:
    """Read ``Header: value; Header2: value2`` of which at least one value must be a real secret."""
    headers = parse_header_settings(text)
    values = [value.reveal() for _, value in headers]
    if any(map(PLACEHOLDER.search, values)):
        raise ValueError("holds a placeholder instead of a secret; run: callkeeper secret new")
    if not any(_is_strong(value, MIN_PUSH_SECRET, SECRET_WITHSTANDS) for value in values):
        raise ValueError(
            f"needs a secret of at least {MIN_PUSH_SECRET} characters that is hard to guess; run: callkeeper secret new"
        )
    return headers


def login(text: str) -> AdminLogin:
    """Read ``user:password`` of the shared login."""
    user, colon, password = text.partition(":")
    if not (user and colon):
        raise ValueError("must be user:password")
    if PLACEHOLDER.search(password) or not _is_strong(password, MIN_ADMIN_PASSWORD, PASSWORD_WITHSTANDS, user):
        raise ValueError(
            f"needs a password of at least {MIN_ADMIN_PASSWORD} characters that is hard to guess: no placeholder, no common "
            "password, name, date or row of keys, alone or with some digits"
        )
    return AdminLogin(user, Secret(password))


def desk_tokens(text: str) -> tuple[DeskToken, ...]:
    """Read ``name:token`` or ``name:token@cu-1|cu-2``, separated by commas."""
    tokens = tuple(_desk_token(part.strip()) for part in text.split(","))
    if len({token.name for token in tokens}) != len(tokens):
        raise ValueError("uses a name twice")
    if len({token.secret.reveal() for token in tokens}) != len(tokens):
        raise ValueError("uses a token twice, so the log could not tell the two users apart")
    return tokens


def _desk_token(text: str) -> DeskToken:
    name, _, rest = text.partition(":")
    value, limited, keys = rest.partition("@")
    if not (TOKEN_NAME.fullmatch(name) and VISIBLE.fullmatch(value)):
        raise ValueError("must be name:token, or name:token@key|key, separated by commas")
    if PLACEHOLDER.search(value) or not _is_strong(value, MIN_DESK_TOKEN, SECRET_WITHSTANDS):
        raise ValueError(
            f"needs tokens of at least {MIN_DESK_TOKEN} characters that are hard to guess; run: callkeeper secret token"
        )
    return DeskToken(name=name, secret=Secret(value), institutions=limits(keys) if limited else None)


def limits(text: str) -> frozenset[str]:
    """Read institution keys, separated by ``|``."""
    institutions = frozenset(text.split("|"))
    if not all(map(is_institution_key, institutions)):
        raise ValueError("must name institution keys after the @, separated by |")
    return institutions


def metrics_token(text: str) -> Secret:
    """Read the token by which Prometheus reads the metrics."""
    if (
        not VISIBLE.fullmatch(text)
        or PLACEHOLDER.search(text)
        or not _is_strong(text, MIN_DESK_TOKEN, SECRET_WITHSTANDS)
    ):
        raise ValueError(
            f"needs at least {MIN_DESK_TOKEN} visible characters that are hard to guess; run: callkeeper secret metrics"
        )
    return Secret(text)


def refuse_weak_password(name: str, password: str) -> None:
    """Refuse a password of a local user that is easy to guess.

    Raises:
        ValueError: Says what it needs.
    """
    if not _is_strong(password, MIN_ADMIN_PASSWORD, PASSWORD_WITHSTANDS, name):
        raise ValueError(
            f"the password needs at least {MIN_ADMIN_PASSWORD} characters and must be hard to guess: no common password, "
            "name, date or row of keys, alone or with some digits"
        )


def _is_strong(text: str, minimum: int, withstands: float, *known: str) -> bool:
    """Tell whether a secret is long and hard to guess. ``known`` are words that an attacker would try first."""
    return len(text) >= minimum and _guesses_log10(text, *known) >= withstands


def _guesses_log10(text: str, *known: str) -> float:
    from zxcvbn import zxcvbn  # noqa: PLC0415  (its lists take a twentieth of a second to load; few commands need them)

    return float(zxcvbn(text[:LOOKED_AT], user_inputs=["callkeeper", *known])["guesses_log10"])

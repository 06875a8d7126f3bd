"""Reads one environment variable; every function raises ValueError with what is wrong and never with the text itself."""

import math
import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from callkeeper.terminal import is_visible
from calls.record import CHECK_LIMIT
from calls.rules import SHIPPED
from reseller.endpoints import is_institution_key
from reseller.secret import Secret

S = TypeVar("S", bound=str)

_BETWEEN_ALERTS: Final = re.compile(r"[\s,]+(?=(?:page=)?[A-Za-z][A-Za-z0-9+.-]*://)")

MIN_CREDENTIAL: Final = 8
MOST_OUTCOME_SECRETS: Final = 2
VISIBLE: Final = re.compile(r"[!-~]+")
PLACEHOLDER: Final = re.compile(
    r"change.?me|example|placeholder|replace.?(me|this)|your.?(key|secret|password)|<.*>", re.IGNORECASE
)
_DEFAULTS: Final = {"password", "password1", "secret", "12345678", "accesstoken", "access-token", "test", "testtest"}
LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


class AlertAddress(msgspec.Struct, frozen=True):
    """Where alerts go: an apprise URL. It contains secrets; only ``scheme`` may be shown."""

    url: Secret
    scheme: str
    is_page_only: bool = False


class ArchiveRetention(msgspec.Struct, frozen=True):
    """For how many days the archive keeps calls, with exceptions for single institutions."""

    days: int
    by_institution: tuple[tuple[str, int], ...] = ()

    def for_institution(self, key: str) -> int:
        """Return the days of an institution."""
        return dict(self.by_institution).get(key, self.days)


class RequestedBy(msgspec.Struct, frozen=True):
    """The core username that automatic actions are recorded for, with exceptions for single institutions."""

    default: str
    by_institution: tuple[tuple[str, str], ...] = ()

    def for_institution(self, key: str) -> str:
        """Return the core username to send for an institution."""
        return dict(self.by_institution).get(key, self.default)


def one_of(values: Iterable[S]) -> Callable[[str], S]:
    """Return a parser that accepts one of some words."""
    known = {str(value): value for value in values}

    def read(text: str) -> S:
        if text not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return known[text]

    return read


def country(text: str) -> str:
    """Read a country code."""
    from phonenumbers import SUPPORTED_REGIONS  # noqa: PLC0415  (its tables are large; few processes set a country)

    if text.upper() not in SUPPORTED_REGIONS:
        raise ValueError("must be two letters of a country, such as US")
    return text.upper()


def between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of a whole number within bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise ValueError(f"must be a whole number, {least} to {most}")
        return int(text)

    return read


def span(least_s: int, most_s: int) -> Callable[[str], int]:
    """Return a parser of a length of time within bounds, such as ``30m``, ``24h`` or ``14d``, in seconds."""

    def read(text: str) -> int:
        found = re.fullmatch(r"([0-9]{1,4})([mhd])", text)
        length_s = int(found[1]) * {"m": 60, "h": 3600, "d": 86400}[found[2]] if found else -1
        if not least_s <= length_s <= most_s:
            raise ValueError("must be a length of time such as 30m, 24h or 14d, and within bounds")
        return length_s

    return read


def seconds(least: float, most: float = math.inf) -> Callable[[str], float]:
    """Return a parser of a number of seconds within bounds."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and least <= number <= most):
            raise ValueError(
                f"must be a number of seconds, {least} or more" + (f", at most {most}" * (most < math.inf))
            )
        return number

    return read


def yes_or_no(text: str) -> bool:
    """Read ``yes`` or ``no``."""
    return one_of(("yes", "no"))(text) == "yes"


def key_prefix(text: str) -> str:
    """Read the prefix of our keys in Redis."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,32}", text):
        raise ValueError("must be 1 to 32 letters, digits, dots, hyphens or underscores")
    return text


def certificates(text: str) -> Path:
    """Read the path of an existing file of certificates; return it absolute."""
    path = Path(text).absolute()
    if not path.is_file():
        raise ValueError("is not the path of a file")
    return path


def rules_file(text: str) -> Path:
    """Read the path of an existing rules file and return it absolute, or the name of a shipped one."""
    if text in SHIPPED:
        return Path(text)
    path = Path(text).absolute()
    if not path.is_file():
        raise ValueError(f"is neither the path of a file nor one of the shipped {', '.join(SHIPPED)}")
    return path


def check_times(text: str) -> tuple[float, ...]:
    """Read check times in seconds after assignment: ascending, no more than a call may have checks."""
    times = tuple(map(seconds(0), text.split(",")))
    if len(times) > CHECK_LIMIT or any(later <= earlier for earlier, later in pairwise(times)):
        raise ValueError(f"must be at most {CHECK_LIMIT} ascending numbers of seconds separated by commas")
    return times


def until(text: str) -> datetime:
    """Read an ISO date (through the end of that day, UTC) or an ISO instant with its zone."""
    with suppress(ValueError, OverflowError):
        return datetime.combine(date.fromisoformat(text), time(tzinfo=UTC)) + timedelta(days=1)
    with suppress(ValueError, OverflowError):
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is not None:
            return instant.astimezone(UTC)
    raise ValueError(
        "must be an ISO date such as 2027-01-31, or an instant with its zone such as 2027-01-31T12:00:00Z, "
        "before the year 9999"
    )


def header_secret(text: str) -> Secret:
    """Read a credential that is sent as a header: visible ASCII, no blanks."""
    if not VISIBLE.fullmatch(text):
        raise ValueError("must be visible ASCII characters without blanks")
    return credential(text)


def credential(text: str) -> Secret:
    """Read an issued credential. Placeholders and texts that are too short are refused.

    Assumed: credentials issued at onboarding have eight characters or more.
    """
    if PLACEHOLDER.fullmatch(text) or text.lower() in _DEFAULTS:
        raise ValueError("is a placeholder or a default, not an issued credential")
    if len(text) < MIN_CREDENTIAL:
        raise ValueError(f"has fewer than {MIN_CREDENTIAL} characters, so it is not an issued credential")
    return Secret(text)


def outcome_secrets(text: str) -> tuple[Secret, ...]:
    """Read the signing keys: one, or two during a rotation."""
    found = tuple(_outcome_secret(part.strip()) for part in text.split(","))
    if len(found) > MOST_OUTCOME_SECRETS:
        raise ValueError("must be one secret, or two with a comma between them")
    if len({secret.reveal() for secret in found}) != len(found):
        raise ValueError("names the same secret twice")
    return found


def _outcome_secret(text: str) -> Secret:
    """Read one key in the form of Standard Webhooks."""
    prefix, found, encoded = text.partition("_")
    try:
        key = b64decode(encoded, validate=True) if found and prefix == "whsec" else b""
    except ValueError:
        key = b""
    if not 24 <= len(key) <= 64:
        raise ValueError("must be whsec_ and 24 to 64 bytes in base64; run: callkeeper secret outcome")
    return Secret(text)


def email(text: str) -> str:
    """Read the service account's address."""
    name, _, host = text.rpartition("@")
    if not (name and host and is_visible(text) and " " not in text):
        raise ValueError("must be an e-mail address")
    return text


def institutions(text: str) -> tuple[str, ...]:
    """Read institution keys, separated by commas."""
    keys = tuple(part.strip() for part in text.split(","))
    if not all(map(is_institution_key, keys)):
        raise ValueError("must be institution keys separated by commas (visible ASCII, no slash)")
    return tuple(dict.fromkeys(keys))


def requested_by(text: str) -> RequestedBy:
    """Read ``bot`` or ``bot, cu-1=svc1, cu-2=svc2``."""
    default, *others = (part.strip() for part in text.split(","))
    if "=" in default:
        raise ValueError("must begin with the username for all other institutions, before any key=username")
    split = (other.partition("=") for other in others)
    pairs = [(key.strip(), user.strip()) for key, _, user in split]
    if not all(is_institution_key(key) and user for key, user in pairs):
        raise ValueError("must be one username, then key=username for single institutions")
    if len(dict(pairs)) != len(pairs):
        raise ValueError("names an institution twice")
    if not all(VISIBLE.fullmatch(user) and len(user) <= 64 for user in (default, *dict(pairs).values())):
        raise ValueError("must hold usernames of 1 to 64 visible ASCII characters without blanks")
    return RequestedBy(default, tuple(pairs))


def service_url(text: str) -> str:
    """Read the service's base address, without a slash at the end."""
    bare = public_url(text)
    parts = urlsplit(bare)
    host = parts.hostname or ""
    # A host name without a domain is in a private network.
    if parts.scheme == "http" and host not in LOOPBACK and ("." in host or ":" in host):
        raise ValueError("must be https: credentials travel over it (http only to this machine or a bare host name)")
    if bare.endswith("/external"):
        raise ValueError("must be given without /external")
    return bare


def public_url(text: str) -> str:
    """Read a base address, without a slash at the end."""
    parts = split_address(text)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must hold neither credentials, query nor fragment")
    return text.rstrip("/")


def outcome_url(text: str) -> str:
    """Read the address to which outcomes are posted."""
    parts = split_address(text)
    if parts.username or parts.password or parts.fragment:
        raise ValueError("must hold neither credentials nor fragment")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ValueError("must be https: outcomes travel over it (http only to this machine)")
    return text


def archive_url(text: str) -> Secret:
    """Read the archive's address: a PostgreSQL database, or an SQLite file by its absolute path."""
    parts = urlsplit(text)
    if text.startswith("sqlite:////") and not parts.query:
        return Secret(text)
    if parts.scheme not in {"postgresql", "postgres"} or not parts.hostname or not parts.path.strip("/"):
        raise ValueError("must be postgresql://user:password@host:5432/database, or sqlite:////path/of/a/file")
    if "ssl" in parts.query:
        raise ValueError("must not say how certificates are verified: set CALLKEEPER_ARCHIVE_CA or _TLS=unverified")
    return Secret(text)


def keep_archive(text: str) -> ArchiveRetention:
    """Read ``10y`` or ``10y, cu-1=7y``: years or days."""
    default, *others = (part.strip() for part in text.split(","))
    pairs = [(key.strip(), _age(age.strip())) for key, _, age in (other.partition("=") for other in others)]
    if not all(is_institution_key(key) for key, _ in pairs) or len(dict(pairs)) != len(pairs):
        raise ValueError("must be a length of time such as 10y, then key=length for single institutions, each once")
    return ArchiveRetention(_age(default), tuple(pairs))


def _age(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,4})([yd])", text)
    days = int(found[1]) * {"y": 366, "d": 1}[found[2]] if found else 0
    if days < 1:
        raise ValueError("must be lengths of time such as 10y or 400d")
    return days


def alert_addresses(text: str) -> tuple[AlertAddress, ...]:
    """Read addresses of alerts, separated by commas or blanks, with ``page=`` before those that get only urgent alerts.

    An invalid address is not refused here: a misspelt alert address must not stop a process.
    """
    return tuple(_alert_address(part) for part in _BETWEEN_ALERTS.split(text) if part)


def _alert_address(text: str) -> AlertAddress:
    url = text.removeprefix("page=")
    scheme, found, _ = url.partition("://")
    return AlertAddress(Secret(url), scheme.lower()[:20] if found and scheme.isalnum() else "?", url != text)


def origins(text: str) -> tuple[str, ...]:
    """Read origins of web pages: scheme and host only."""
    found = tuple(part.strip() for part in text.split(","))
    for origin in found:
        parts = split_address(origin)
        if origin != f"{parts.scheme}://{parts.netloc}" or "@" in parts.netloc:
            raise ValueError("must be origins such as https://agents.example, separated by commas")
    return found


def split_address(text: str) -> SplitResult:
    """Read an http or https address with a host."""
    if not is_visible(text) or " " in text:  # urlsplit would remove tabs and line breaks first
        raise ValueError("must hold no spaces, line breaks or invisible characters")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("must be an http or https address with a host")
    return parts

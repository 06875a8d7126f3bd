"""Reads one environment variable; every parser raises ValueError with what is wrong and never with the text itself."""

import re
import ssl
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, Generic, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from callkeeper.app.terminal import is_visible
from callkeeper.calls.rules import SHIPPED
from callkeeper.desk.access.configured_logins import Grant
from callkeeper.desk.access.rights import Role, operator_in
from callkeeper.service.endpoints import is_institution_key
from callkeeper.service.secret import Secret

T = TypeVar("T")

VISIBLE: Final = re.compile(r"[!-~]+")
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}
_BETWEEN_ALERTS: Final = re.compile(r"[\s,]+(?=(?:page=)?[A-Za-z][A-Za-z0-9+.-]*://)")
_UNITS_S: Final = {"m": 60, "h": 3600, "d": 86400, "y": 366 * 86400}


class AlertAddress(msgspec.Struct, frozen=True):
    """Where alerts go: an apprise URL. It contains secrets; only ``scheme`` may be shown."""

    url: Secret
    scheme: str
    is_page_only: bool = False


class PerInstitution(msgspec.Struct, Generic[T], frozen=True):
    """A value, with other values for single institutions."""

    default: T
    by_institution: dict[str, T]

    def for_institution(self, key: str) -> T:
        return self.by_institution.get(key, self.default)


def ensure(condition: object, problem: str) -> None:
    """Raise ValueError with the problem unless the condition is true."""
    if not condition:
        raise ValueError(problem)


def separated(parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a parser of values with commas between them."""
    return lambda text: tuple(parse(each.strip()) for each in text.split(","))


def per_institution(parse: Callable[[str], T], value: str) -> Callable[[str], PerInstitution[T]]:
    """Return a parser of ``10y, cu-1=7y``: a value, then other values for single institutions."""

    def read(text: str) -> PerInstitution[T]:
        default, *others = map(str.strip, text.split(","))
        pairs = [(key.strip(), other.strip()) for key, _, other in (each.partition("=") for each in others)]
        are_pairs = all(is_institution_key(key) and other for key, other in pairs)
        ensure("=" not in default, f"must begin with the {value} for all other institutions, before any key={value}")
        ensure(are_pairs, f"must be one {value}, then key={value} for single institutions")
        ensure(len(dict(pairs)) == len(pairs), "names an institution twice")
        return PerInstitution(parse(default), {key: parse(other) for key, other in pairs})

    return read


def one_of(values: Iterable[T]) -> Callable[[str], T]:
    """Return a parser that accepts one of some words."""
    known = {str(value): value for value in values}

    def read(text: str) -> T:
        ensure(text in known, f"must be one of {', '.join(known)}")
        return known[text]

    return read


def matching(pattern: str, problem: str) -> Callable[[str], str]:
    """Return a parser of a text that has a form."""

    def read(text: str) -> str:
        ensure(re.fullmatch(pattern, text), problem)
        return text

    return read


def between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of a whole number within bounds."""

    def read(text: str) -> int:
        is_number = text.isascii() and text.isdigit()
        ensure(is_number and least <= int(text) <= most, f"must be a whole number, {least} to {most}")
        return int(text)

    return read


def span(units: str, least: str, most: str) -> Callable[[str], int]:
    """Return a parser of a length of time within bounds, such as ``30m``, ``24h`` or ``14d``, in seconds."""

    def length_s(text: str) -> int:
        found = re.fullmatch(f"([0-9]{{1,4}})([{units}])", text)
        return int(found[1]) * _UNITS_S[found[2]] if found else 0

    def read(text: str) -> int:
        is_within = length_s(least) <= length_s(text) <= length_s(most)
        ensure(is_within, f"must be a number and a unit ({', '.join(units)}), from {least} to {most}")
        return length_s(text)

    return read


key_prefix: Final = matching(r"[A-Za-z0-9_.-]{1,32}", "must be 1 to 32 letters, digits, dots, hyphens or underscores")
plain_text: Final = matching(r"[!-~]+", "must be visible ASCII characters without blanks")


def _username(text: str) -> str:
    ensure(operator_in(text), "must hold usernames of 1 to 64 printable ASCII characters")
    return text


requested_by: Final = per_institution(_username, "username")
keep_archive: Final = per_institution(span("yd", "1d", "9999y"), "length")


def country(text: str) -> str:
    """Read a country code."""
    from phonenumbers import SUPPORTED_REGIONS  # noqa: PLC0415  (its tables are large; few processes set a country)

    ensure(text.upper() in SUPPORTED_REGIONS, "must be two letters of a country, such as US")
    return text.upper()


def existing_file(text: str, problem: str = "is not the path of a file") -> Path:
    """Read the path of an existing file; return it absolute."""
    path = Path(text).absolute()
    ensure(path.is_file(), problem)
    return path


def authorities(text: str) -> Path:
    """Read the path of a PEM file with certificates of authorities; return it absolute."""
    path, problem = existing_file(text), ""
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        problem = "holds no certificate in PEM format" if isinstance(error, ssl.SSLError) else "cannot be read"
    ensure(not problem, problem)
    return path


def rules_file(text: str) -> Path:
    """Read the path of an existing rules file, or the name of a shipped one."""
    problem = f"is neither the path of a file nor one of the shipped {', '.join(SHIPPED)}"
    return Path(text) if text in SHIPPED else existing_file(text, problem)


def email(text: str) -> str:
    """Read the service account's address."""
    name, _, host = text.rpartition("@")
    ensure(name and host and is_visible(text) and " " not in text, "must be an e-mail address")
    return text


def institutions(text: str) -> tuple[str, ...]:
    """Read institution keys, separated by commas. A repeated one counts once."""
    keys = separated(str)(text)
    are_keys = all(map(is_institution_key, keys))
    ensure(are_keys, "must be institution keys separated by commas (visible ASCII, no slash)")
    return tuple(dict.fromkeys(keys))


def _split_limit(text: str) -> tuple[str, frozenset[str] | None]:
    """Split ``something@cu-1|cu-2`` into what is limited and its institutions: None if there is no ``@``."""
    limited, at, keys = text.partition("@")
    institutions = frozenset(keys.strip().split("|")) if at else None
    ensure(all(map(is_institution_key, institutions or ())), "must name institution keys after the @, separated by |")
    return limited, institutions


def _grant(text: str) -> Grant:
    """Read ``value=role`` or ``value=role@cu-1|cu-2``."""
    value, _, rest = map(str.strip, text.rpartition("="))
    role, institutions = _split_limit(rest)
    role = role.strip()
    ensure(value and role in set(Role), f"must be value=role, separated by commas; roles are {', '.join(Role)}")
    return Grant(value=value, role=Role(role), institutions=institutions)


grants: Final = separated(_grant)


def public_url(text: str) -> str:
    """Read a base address, without a slash at the end."""
    _split_address(text)
    return text.rstrip("/")


def service_url(text: str) -> str:
    """Read the service's base address, without a slash at the end."""
    parts = _split_address(text)
    host = parts.hostname or ""
    # A host name without a domain is in a private network.
    is_safe = parts.scheme == "https" or host in _LOOPBACK or not ("." in host or ":" in host)
    ensure(is_safe, "must be https: credentials travel over it (http only to this machine or a bare host name)")
    ensure(not text.rstrip("/").endswith("/external"), "must be given without /external")
    return text.rstrip("/")


def outcome_url(text: str) -> str:
    """Read the address to which outcomes are posted."""
    _split_address(text, why_https="outcomes travel over it", may_have_query=True)
    return text


def collector(text: str) -> str:
    """Read the base address of a collector. Plain http is usual within a cluster: spans hold no secrets."""
    _split_address(text)
    return text


def issuer(text: str) -> str:
    """Read the issuer of an identity provider. It is compared literally, so a slash at its end is kept."""
    _split_address(text, why_https="it decides who can log in")
    return text


def _origin(text: str) -> str:
    """Read the origin of a web page: scheme and host only."""
    parts = _split_address(text)
    is_origin = text == f"{parts.scheme}://{parts.netloc}" and "@" not in text
    ensure(is_origin, "must be origins such as https://agents.example, separated by commas")
    return text


origins: Final = separated(_origin)


def archive_url(text: str) -> Secret:
    """Read the archive's address: a PostgreSQL database, or an SQLite file by its absolute path."""
    if text.startswith("sqlite:////") and "?" not in text:
        return Secret(text)
    problem = "must be postgresql://user:password@host:5432/database, or sqlite:////path/of/a/file"
    parts = _split(text, {"postgresql", "postgres"}, problem)
    ensure(parts.path.strip("/"), problem)
    mode = dict(parse_qsl(parts.query)).get("sslmode", "verify-full")
    ensure(
        mode in {"require", "verify-ca", "verify-full"}, "must have no sslmode but require, verify-ca or verify-full"
    )
    return Secret(text)


def alert_addresses(text: str) -> tuple[AlertAddress, ...]:
    """Read addresses of alerts, separated by commas or blanks, with ``page=`` before those that get only urgent alerts.

    An invalid address is not refused here: a misspelt alert address must not stop a process.
    """
    return tuple(_alert_address(each) for each in _BETWEEN_ALERTS.split(text) if each)


def _alert_address(text: str) -> AlertAddress:
    url = text.removeprefix("page=")
    scheme, found, _ = url.partition("://")
    return AlertAddress(Secret(url), scheme.lower()[:20] if found and scheme.isalnum() else "?", url != text)


def _split_address(text: str, *, why_https: str = "", may_have_query: bool = False) -> SplitResult:
    """Split an http or https address with a host, and without credentials or a fragment.

    ``why_https``: why http is refused, except to this machine; empty if it is accepted.
    """
    is_clean = is_visible(text) and " " not in text  # urlsplit would remove tabs and line breaks first
    ensure(is_clean, "must hold no spaces, line breaks or invisible characters")
    parts = _split(text, {"http", "https"}, "must be an http or https address with a host")
    ensure(not (parts.username or parts.password or parts.fragment), "must hold neither credentials nor fragment")
    ensure(may_have_query or not parts.query, "must hold no query")
    is_safe = parts.scheme == "https" or parts.hostname in _LOOPBACK or not why_https
    ensure(is_safe, f"must be https, because {why_https} (http only to this machine)")
    return parts


def _split(text: str, schemes: Collection[str], problem: str) -> SplitResult:
    """Split an address with a host. The messages of ``urlsplit`` repeat the text, so they are not shown."""
    try:
        parts = urlsplit(text)
        has_host = (parts.hostname or "").encode("idna") and "\\" not in parts.netloc  # else no request can be made
        is_address = parts.scheme in schemes and has_host and (parts.port is None or parts.port)
    except ValueError:
        is_address = False
    ensure(is_address, problem)
    return parts

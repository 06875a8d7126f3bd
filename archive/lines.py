"""A line of the archive: what of a call goes where, and what its hash covers. Pure.

A call's body is its record and its trail as JSON, without what is personal: phone number, names, free text. Each of those is
a value of its own with a salt; the line holds a commitment, HMAC-SHA256 of path and value under the salt. Without the salt
nobody can tell whether a guessed number is the one, so deleting row and salt erases the value and leaves the line intact.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from calls.call_query import digits_of
from calls.record import Call, encode_call, without_unknown
from calls.trail import Entry, encode_entry, parse_trail

GENESIS: Final = "0" * 64
"""Stands for the hash before the first line."""

CALL: Final = "call"
AUDIT: Final = "audit"
"""An entry of the audit log; its id in Redis's stream stands where a call's line has the voice id."""

AUDIT_LOG: Final = "*audit"
"""The key of the audit log's chain. No institution has it."""

ERASED, RETIRED, HELD, RELEASED = "erased", "retired", "held", "released"
"""What was done to the archive itself is a line too."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The canonical line: its JSON, in this order of fields, is what the hash covers.

    Attributes:
        kind: A call's line, or one about the archive.
        at_ms: When it was written.
        version: 1 for a call's first line, 2 for the next.
        body_hash: SHA-256 of the body as stored.
        commitments: Path and commitment of each personal value.
        previous: The hash of the line before.
    """

    institution_key: str
    n: int
    kind: str
    at_ms: int
    voice_id: str | None
    version: int | None
    body_hash: str
    commitments: str
    previous: str

    @property
    def hash(self) -> str:
        """Return the line's hash."""
        return sha256(msgspec.json.encode(self))


def sha256(data: bytes) -> str:
    """Return SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def commitment(path: str, value: str, salt: str) -> str:
    """Return what commits to a value without telling it."""
    return hmac.new(bytes.fromhex(salt), f"{path}\n{value}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class PersonalValue:
    """One personal value: where in the body it belongs, whose it is, and by what it is found."""

    path: str
    value: str
    person_id: str | None = None
    terms: tuple[str, ...] = ()
    salt: str = field(default_factory=lambda: secrets.token_hex(16))


@dataclass(frozen=True, slots=True)
class Content:
    """A call as it is archived. ``terms`` are kinds and values that it is found by."""

    call: Call
    body: str
    trail: tuple[str, ...]
    personal: tuple[PersonalValue, ...]
    terms: frozenset[tuple[str, str]]


FOUND_BY: Final = ("voice_id", "alternate_id", "began_ms", "settled_ms")


def found_columns(call: Call) -> dict[str, Any]:
    """Return the columns of a line that its call is found by."""
    alternate_id = clean(call.alternate_id) if call.alternate_id else None
    began_ms = ms_of(call.started_at or call.first_seen_at or call.hinted_at)
    return dict(zip(FOUND_BY, (clean(call.voice_id), alternate_id, began_ms, ms_of(call.settled_at)), strict=True))


def ms_of(instant: datetime | None) -> int | None:
    """Return an instant as it is stored."""
    return None if instant is None else int(instant.timestamp() * 1000)


def clean(text: str) -> str:
    """Return a text without the one character that PostgreSQL stores in no text."""
    return text.replace("\0", "\ufffd")


def content_of(call: Call, trail: Sequence[Entry]) -> Content:
    """Take a call apart into what is kept and what is personal."""
    whole: dict[str, Any] = {
        "call": msgspec.json.decode(encode_call(without_unknown(call))),
        "trail": [msgspec.json.decode(encode_entry(line)) for line in trail],
    }
    personal = tuple(_taken_out(whole, call))
    lines = tuple(msgspec.json.encode(line, order="sorted").decode() for line in whole["trail"])
    terms = frozenset(_terms(call, trail))
    body = msgspec.json.encode({**whole, "terms": sorted(terms)}, order="sorted").decode()
    return Content(call, body, lines, personal, terms)


class _Stored(msgspec.Struct):
    call: Call
    trail: tuple[msgspec.Raw, ...]


_STORED: Final = msgspec.json.Decoder(_Stored)


def trail_of(body: str) -> tuple[str, ...]:
    """Return the lines of the trail in a stored body, each as it would be written now."""
    return tuple(msgspec.json.encode(line, order="sorted").decode() for line in msgspec.json.decode(body)["trail"])


def terms_of(body: str) -> set[tuple[str, str]]:
    """Return what a stored call is found by."""
    return {(kind, value) for kind, value in msgspec.json.decode(body)["terms"]}


def joined(body: str, values: Mapping[str, str]) -> tuple[Call, tuple[Entry, ...]]:
    """Put a call together again; ``values`` are those that were not erased, by path."""
    if values:
        parts = msgspec.json.decode(body)
        for path, value in values.items():
            place, name = _at(parts, path)
            if place is not None:
                place[name] = value
        body = msgspec.json.encode(parts).decode()
    whole = _STORED.decode(body)
    return whole.call, parse_trail(whole.trail)


def _taken_out(whole: dict[str, Any], call: Call) -> Iterator[PersonalValue]:
    """Remove what is personal from a body and yield it."""
    for path, person_id in _personal_paths(whole, call):
        place, name = _at(whole, path)
        value = place.pop(name, "") if place is not None else ""
        if value:
            yield PersonalValue(path, clean(value), person_id, _found_by(path, clean(value)))


def _personal_paths(whole: dict[str, Any], call: Call) -> Iterator[tuple[str, str | None]]:
    """Yield where something personal may stand, and whose it is."""
    yield "call/phone_number", call.person_id
    for n, candidate in enumerate(call.candidates):
        yield f"call/candidates/{n}/name", candidate.person_id
    yield "call/identity/remark", call.person_id
    for word in ("distrusted", "assign_wish", "check_wish"):
        yield f"call/{word}/reason", call.person_id
    for n, line in enumerate(whole["trail"]):
        if line.get("what") == "said" and line.get("kind") == "distrusted":
            yield f"trail/{n}/because", call.person_id


def _at(whole: Any, path: str) -> tuple[Any, str]:
    """Return what holds the end of a path (None: nothing), and the end's name."""
    *way, name = path.split("/")
    for step in way:
        whole = whole[int(step)] if isinstance(whole, list) else whole.get(step)
        if whole is None:
            return None, name
    return whole, name


def _found_by(path: str, value: str) -> tuple[str, ...]:
    """Return what a personal value is found by: a number from its end, a name by the beginning of each word."""
    if path.endswith("phone_number"):
        return (number_term(value),) if digits_of(value) else ()
    if path.endswith("name"):
        return tuple(dict.fromkeys(f"w{word}" for word in value.casefold().split()))
    return ()


def number_term(number: str) -> str:
    """Return how the end of a phone number is looked up: its digits from the last to the first."""
    return "d" + digits_of(number)[::-1]


def after(beginning: str) -> str:
    """Return what comes behind everything that begins so, byte by byte."""
    return beginning[:-1] + chr(ord(beginning[-1]) + 1)


def _terms(call: Call, trail: Iterable[Entry]) -> Iterator[tuple[str, str]]:
    """Yield what a call is found by, but for personal values."""
    yield "outcome", str(call.reason or call.phase)
    if call.reading is not None and call.reading.status:
        yield "status", clean(call.reading.status).casefold()
    for person_id in (call.person_id, *(candidate.person_id for candidate in call.candidates)):
        if person_id:
            yield "person", clean(person_id).casefold()
    for line in trail:
        if line.operator and line.what == "said":
            yield "operator", clean(line.operator)
        if line.what == "decided" and line.rule:
            yield "rule", clean(line.rule)
        if line.rules:
            yield "digest", line.rules

"""A line of the archive: how a call is split into columns, body and personal values, and what the hash covers. Pure.

A call's body is its record and its trail as JSON, without personal values: phone number, names, free text. Each of
these is stored in a separate row with a salt. The line contains a commitment: the HMAC-SHA256 of path and value with
the salt. Deleting the row and its salt erases the value: the commitment alone cannot confirm a guess, and the line
stays valid.
"""

import hashlib
import hmac
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from callkeeper.calls.call_query import search_terms, spellings_of
from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.phone_number import digits_of
from callkeeper.calls.record import Call, named_in
from callkeeper.calls.record_storage import encode_call, parse_call, without_unknown
from callkeeper.calls.trail import Entry, encode_entry, parse_trail

GENESIS: Final = "0" * 64
"""The previous hash of the first line."""

CALL: Final = "call"
AUDIT: Final = "audit"
"""An entry of the audit log. Its id in Redis's stream is stored in place of the voice id."""

AUDIT_LOG: Final = "*audit"
"""The key of the audit log's chain. No institution has it."""

RULES: Final = "*rules"
"""The key of the chain of the rules' texts. Each is a line as those of the audit log; its digest is in place of the id."""

ERASED, RETIRED, HELD, RELEASED = "erased", "retired", "held", "released"
"""Kinds of lines about changes to the archive itself."""


class ChainLine(msgspec.Struct, frozen=True, kw_only=True):
    """The canonical line. The hash covers its JSON with the fields in this order.

    Attributes:
        kind: A call's line, or one about the archive.
        version: 1 for a call's first line, 2 for the next.
        body_hash: SHA-256 of the body as stored.
        commitments: Path and commitment of each personal value.
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
        return sha256(msgspec.json.encode(self))


class StoredLine(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of lines."""

    institution_key: str
    n: int
    kind: str
    at_ms: int
    voice_id: str | None
    version: int | None
    body: str | None
    body_hash: str
    commitments: str
    previous: str
    hash: str
    alternate_id: str | None
    began_ms: int | None
    settled_ms: int | None

    @property
    def right_hash(self) -> str:
        """Return the hash that the line must have; empty if it holds a text that is none."""
        try:
            return ChainLine(**{name: getattr(self, name) for name in ChainLine.__struct_fields__}).hash
        except UnicodeError:
            return ""

    def place_fault(self, n: int, digest: str) -> tuple[int, str] | None:
        """Return which line is wrong, and why, if this one does not follow the line with a number and a hash."""
        if self.n <= n:
            return self.n, "is there twice"
        if self.n != n + 1:
            return n + 1, f"missing, up to line {self.n - 1}" if self.n > n + 2 else "missing"
        if self.previous != digest:
            return self.n, "does not follow the line before it: inserted, removed or reordered here"
        return None


def sha256(data: bytes) -> str:
    """Return SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def commitment(path: str, value: str, salt: str) -> str:
    """Return the commitment to a value."""
    return hmac.new(bytes.fromhex(salt), f"{path}\n{value}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class PersonalValue:
    """One personal value: its path in the body, whose it is, whom a note names, and its search terms."""

    path: str
    value: str
    person_id: str | None = None
    named: str | None = None
    terms: tuple[str, ...] = ()
    salt: str = field(default_factory=lambda: secrets.token_hex(16))


def people_rows(each: PersonalValue) -> list[dict[str, str | None]]:
    """Return the rows of a personal value: one for it and its first search term, and one for each further term."""
    first, *further = each.terms or (None,)
    person_id = clean(each.person_id) if each.person_id else None
    row = {"person_id": person_id, "path": each.path, "value": each.value, "salt": each.salt, "term": first}
    others = (
        {"path": f"{each.path}#{k}", "value": None, "salt": None, "term": term} for k, term in enumerate(further, 1)
    )
    return [row, *({**row, **other} for other in others)]


@dataclass(frozen=True, slots=True)
class Content:
    """A call or an audit entry in the form of the archive.

    ``columns`` are those of its line that are used for searches, ``terms`` its search terms: kinds and values.
    """

    kind: str
    body: str
    columns: dict[str, Any]
    trail: list[Any] = field(default_factory=list)
    personal: tuple[PersonalValue, ...] = ()
    terms: frozenset[tuple[str, str]] = frozenset()

    @property
    def voice_id(self) -> str:
        """Return the call's voice id, or the entry's id."""
        return str(self.columns["voice_id"])


FOUND_BY: Final = ("voice_id", "alternate_id", "began_ms", "settled_ms")


def found_columns(call: Call) -> dict[str, Any]:
    """Return the columns of a line that are used for searches."""
    alternate_id = clean(call.names.alternate_id) if call.names.alternate_id else None
    began_ms = ms_of(call.life.began_at)
    return dict(zip(FOUND_BY, (clean(call.voice_id), alternate_id, began_ms, ms_of(call.life.settled_at)), strict=True))


def ms_of(instant: datetime | None) -> int | None:
    """Return an instant in its stored form."""
    return None if instant is None else int(instant.timestamp() * 1000)


def clean(text: str) -> str:
    """Return a text without NUL, which PostgreSQL cannot store."""
    return text.replace("\0", "\ufffd")


def content_of(call: Call, trail: Sequence[Entry]) -> Content:
    """Split a call into its body and its personal values. Hashes of numbers stay out: nobody could erase them there."""
    call = replace(without_unknown(call), ledger=replace(call.ledger, marked_numbers=()))
    whole: dict[str, Any] = {
        "call": msgspec.json.decode(encode_call(call)),
        "trail": [msgspec.json.decode(encode_entry(line)) for line in trail],
    }
    personal = tuple(_taken_out(whole, call))
    terms = frozenset((kind, clean(value)) for kind, value in search_terms(call, trail))
    body = msgspec.json.encode({**whole, "terms": sorted(terms)}, order="sorted").decode()
    return Content(CALL, body, found_columns(call), whole["trail"], personal, terms)


def audit_content(entry_id: str, body: str) -> Content:
    """Return an entry of the audit log, as JSON, in the form of the archive."""
    return Content(AUDIT, body, dict.fromkeys(FOUND_BY) | {"voice_id": entry_id})


def rules_content(digest: str, text: bytes) -> Content:
    """Return the text of rules in the form of the archive."""
    body = msgspec.json.encode({"digest": digest, "text": text.decode(errors="replace")})
    return audit_content(digest, body.decode())


class _StoredRules(msgspec.Struct):
    text: str


def rules_of(body: str) -> str:
    """Return the text of rules that `rules_content` has stored.

    Raises:
        msgspec.MsgspecError: The body is none that it writes.
    """
    return msgspec.json.decode(body, type=_StoredRules).text


class _Stored(msgspec.Struct):
    call: msgspec.Raw
    trail: tuple[msgspec.Raw, ...]


_STORED: Final = msgspec.json.Decoder(_Stored)


def trail_of(body: str) -> list[Any]:
    """Return the entries of the trail in a stored body, without personal values; of an audit entry none."""
    trail: list[Any] = msgspec.json.decode(body).get("trail", [])
    return trail


class PersonalPath(NamedTuple):
    """A path that may hold a personal value, whose it is, and whom the note there names; None: nobody."""

    path: str
    person_id: str | None
    named: str | None = None


def paths_of(body: str) -> list[PersonalPath]:
    """Return where a stored call may have personal values, and whose they are."""
    return list(_personal_paths(msgspec.json.decode(body), call_of(body, {})))


_MEMBERS: Final = ("person_id", "member")
"""Fields of a stored call, and of its parts, that name a member."""


def spellings_in(body: str, person_id: str) -> set[str]:
    """Return how a stored call spells a member's id: in any capitals. A body that is not JSON spells it as it is."""
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):  # somebody has changed it: whoever asks tests the line
        return {person_id}
    return spellings_of(person_id, _members_in(whole))


def _members_in(part: Any) -> Iterator[str]:
    """Yield the ids of members in a part of a body, whichever release wrote it."""
    if isinstance(part, dict):
        yield from (part[name] for name in _MEMBERS if isinstance(part.get(name), str))
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _members_in(inner)


def terms_of(body: str) -> set[tuple[str, str]]:
    """Return the search terms of a stored call."""
    return {(kind, value) for kind, value in msgspec.json.decode(body)["terms"]}


def joined(body: str, values: Mapping[str, str]) -> tuple[Call, tuple[Entry, ...]]:
    """Rebuild a call; ``values`` are the personal values that were not erased, by path."""
    stored = _stored(body, values)
    return parse_call(bytes(stored.call), only_to_read=True), parse_trail(stored.trail)


def call_of(body: str, values: Mapping[str, str]) -> Call:
    """Rebuild a call's record alone."""
    return parse_call(bytes(_stored(body, values).call), only_to_read=True)


def _stored(body: str, values: Mapping[str, str]) -> _Stored:
    if not values:
        return _STORED.decode(body)
    whole = msgspec.json.decode(body)
    for path, value in values.items():
        place, name = _at(whole, path)
        if place is not None:
            place[name] = value
    return _STORED.decode(msgspec.json.encode(whole))


def _taken_out(whole: dict[str, Any], call: Call) -> Iterator[PersonalValue]:
    """Remove the personal values from a body and yield them."""
    for path, person_id, named in _personal_paths(whole, call):
        place, name = _at(whole, path)
        value = place.pop(name, "") if place is not None else ""
        if value:
            yield PersonalValue(path, clean(value), person_id, named, found_by(path, clean(value)))


def _personal_paths(whole: dict[str, Any], call: Call) -> Iterator[PersonalPath]:
    """Yield the paths that may hold personal values."""
    owner, said = call.seen.person_id, call.statements
    yield PersonalPath("call/phone_number", owner)
    for n, candidate in enumerate(call.seen.candidates):
        yield PersonalPath(f"call/candidates/{n}/name", candidate.person_id)
    notes = {
        "identity/remark": said.identity,
        **{f"{kind}/remark": call.effect(kind) for kind in EffectKind},
        **{f"{name}/reason": getattr(said, name) for name in ("distrusted", "assign_wish", "check_wish")},
    }
    for path, note in notes.items():
        yield PersonalPath(f"call/{path}", owner, named_in(note) if note is not None else None)
    for n, line in enumerate(whole["trail"]):
        if line.get("what") == "said":
            yield PersonalPath(f"trail/{n}/because", owner, line.get("person_id") or line.get("member"))


_WITH_REMARK: Final = ("identity", *EffectKind)
"""Parts of a record that may hold the notes of whoever verified the caller."""


def without_remarks(body: str) -> str | None:
    """Return the body of a call without the notes that releases up to 0.2.0 left in it; None if there are none."""
    whole = msgspec.json.decode(body)
    removed = [
        place.pop(name)
        for place, name in (_at(whole, f"call/{part}/remark") for part in _WITH_REMARK)
        if place is not None and name in place
    ]
    return msgspec.json.encode(whole, order="sorted").decode() if removed else None


def _at(whole: Any, path: str) -> tuple[Any, str]:
    """Return the container of a path's last part (None: there is none), and that part."""
    *way, name = path.split("/")
    for step in way:
        whole = whole[int(step)] if isinstance(whole, list) else whole.get(step)
        if whole is None:
            return None, name
    return whole, name


def found_by(path: str, value: str) -> tuple[str, ...]:
    """Return the search terms of a personal value: a number reversed, a name as its words."""
    if path.endswith("phone_number"):
        return (number_term(value),) if digits_of(value) else ()
    if path.endswith("name"):
        return tuple(dict.fromkeys(f"w{word}" for word in value.casefold().split()))
    return ()


def number_term(number: str) -> str:
    """Return the search term of a phone number: its digits reversed, so that its end is a prefix."""
    return "d" + digits_of(number)[::-1]


LAST: Final = chr(sys.maxunicode)


def end_of(beginning: str) -> str:
    """Return a text that sorts after everything with this prefix, byte by byte, and before everything else after it."""
    rest = beginning.rstrip(LAST)
    if not rest:
        return beginning + LAST  # nothing that is stored has another one
    following = ord(rest[-1]) + 1
    return rest[:-1] + chr(following if not 0xD800 <= following <= 0xDFFF else 0xE000)  # no surrogates: not in UTF-8

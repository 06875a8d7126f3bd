"""Tests what a line holds beside what its hash covers: its body, its personal values and its search data.

All of these follow from the body and from the commitments, but for values that were erased.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from callkeeper.archive.lines import (
    AUDIT,
    CALL,
    FOUND_BY,
    ChainLine,
    PersonalPath,
    PersonalValue,
    call_of,
    commitment,
    found_by,
    found_columns,
    paths_of,
    people_rows,
    terms_of,
)
from callkeeper.archive.statements import DONE, is_erased

UNREADABLE: Final = (
    *(msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, IndexError),
    *(OverflowError, RecursionError),
)
"""What reading a row can raise that the database's owner wrote."""


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


class PersonRow(NamedTuple):
    """A row of the table of personal values."""

    path: str
    person_id: str | None
    value: str | None
    salt: str | None
    term: str | None
    began_ms: int | None


class TermRow(NamedTuple):
    """A row of the table of search terms."""

    kind: str
    value: str
    began_ms: int | None


class Rows(NamedTuple):
    """The rows of other tables that belong to a line."""

    people: Sequence[PersonRow]
    terms: Sequence[TermRow]


def contents_faults(line: StoredLine, rows: Rows, gone: set[str]) -> Iterator[str]:
    """Yield what is wrong with a line beside its hash. ``gone`` are the persons whose values were erased, '' for all.

    Raises:
        UNREADABLE: It cannot be read.
    """
    if line.kind == CALL and line.body is not None:
        yield from _call(line, line.body, rows, gone)
        return
    if line.kind not in {CALL, AUDIT, *DONE}:
        yield f"is of the kind {line.kind[:20]!r}, which does not exist"
    columns = {name for name in FOUND_BY if getattr(line, name) is not None}
    if columns - {"voice_id"} or rows.people or rows.terms:
        yield "changed: it has search data or personal values, which such a line never has"


def missing_values(line: StoredLine, rows: Rows) -> int:
    """Return how many personal values of a line are not there. An emptied line counts as having none."""
    if line.body is None:
        return 0
    values = {row.path for row in rows.people if row.value is not None}
    return len(msgspec.json.decode(line.commitments, type=dict[str, str]).keys() - values)


def _call(line: StoredLine, body: str, rows: Rows, gone: set[str]) -> Iterator[str]:
    yield from _personal(line, body, rows.people, gone)
    terms = {(kind, value, line.began_ms) for kind, value in terms_of(body)}
    columns = {name: getattr(line, name) for name in FOUND_BY}
    if found_columns(call_of(body, {})) != columns or set(rows.terms) != terms or len(rows.terms) != len(terms):
        yield "changed: its search data does not match its body"


def _personal(line: StoredLine, body: str, people: Sequence[PersonRow], gone: set[str]) -> Iterator[str]:
    paths = {place.path: place for place in paths_of(body)}
    commitments = msgspec.json.decode(line.commitments, type=dict[str, str])
    stored: dict[str, dict[str, PersonRow]] = defaultdict(dict)
    for row in people:
        stored[row.path.partition("#")[0]][row.path] = row
    for path in stored.keys() - commitments.keys():
        yield f"changed: it has {path[:40]}, which was never written"
    for path, committed in commitments.items():
        place = paths.get(path, PersonalPath(path, None))
        if is_erased(gone, place.person_id, place.named):
            if path in stored:
                yield f"changed: {path} was erased, and is there again"
        elif path not in stored:
            yield f"changed: {path} is missing, but no erasure of it was recorded"
        else:
            yield from _value(place, committed, stored[path], line.began_ms)


def _value(place: PersonalPath, committed: str, rows: Mapping[str, PersonRow], began_ms: int | None) -> Iterator[str]:
    path = place.path
    row: Any = rows.get(path)
    if row is None or row.value is None or row.salt is None or commitment(path, row.value, row.salt) != committed:
        yield f"changed: {path} does not match its commitment"
        return
    value = PersonalValue(path, row.value, place.person_id, place.named, found_by(path, row.value), row.salt)
    right = {each["path"]: PersonRow(**each, began_ms=began_ms) for each in people_rows(value)}  # type: ignore[arg-type]
    if right != rows:
        yield f"changed: {path} belongs to another person or is found by other words"

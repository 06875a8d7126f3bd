"""Tests one line by itself: its hash, and what it holds beside that: its body, its personal values and its search data.

All of these follow from the body and from the commitments, but for values that were erased. The verification tests every
line like this, an erasure those that it changes, and retention those that it removes.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Table, select

from callkeeper.archive.lines import (
    AUDIT,
    CALL,
    FOUND_BY,
    PersonalPath,
    PersonalValue,
    StoredLine,
    call_of,
    commitment,
    found_by,
    found_columns,
    paths_of,
    people_rows,
    sha256,
    terms_of,
)
from callkeeper.archive.statements import DONE, Retired, Statements, body_signature, is_erased
from callkeeper.archive.tables import people, terms
from callkeeper.service.secret import Secret

UNREADABLE: Final = (
    *(msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, IndexError),
    *(OverflowError, RecursionError),
)
"""What reading a row can raise that the database's owner wrote."""

CHANGED: Final = "changed: its hash does not match"
UNKNOWN_VALUES: Final = "changed: it holds values that no worker writes"


class ChainFault(NamedTuple):
    """What is wrong with one line."""

    institution_key: str
    n: int
    what: str

    def __str__(self) -> str:
        return f"{self.institution_key} line {self.n}: {self.what}"


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


def rows_of(connection: Connection, key: str, numbers: Sequence[int]) -> dict[int, Rows]:
    """Return the rows of other tables that belong to lines, by number. The numbers lie close together."""
    persons, words = (_by_line(connection, key, numbers, kind, table) for kind, table in _ROWS)
    return {n: Rows(persons[n], words[n]) for n in numbers}


_ROWS: Final[tuple[tuple[Any, Table], ...]] = ((PersonRow, people), (TermRow, terms))


def _by_line(connection: Connection, key: str, numbers: Sequence[int], kind: Any, table: Table) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    within = table.c.n.between(min(numbers, default=0), max(numbers, default=0))
    asked = select(table.c.n, *(table.c[name] for name in kind._fields))
    for n, *row in connection.execute(asked.where(table.c.institution_key == key, within)):
        found[n].append(kind(*row))
    return found


@dataclass(slots=True)
class LineTest:
    """The tests of each line of one chain by itself.

    ``keys``: one of them signed what an erasure changed in a body. Without a key that is not checked, and ``unchecked``
    counts these bodies.
    """

    statements: Statements
    keys: Sequence[Secret] = ()
    unchecked: int = 0
    _emptied: list[tuple[int, int, Retired]] = field(default_factory=list)
    _earlier: list[Retired] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Sort the retirements by the lines that they emptied. Release 0.2.0 did not name these lines."""
        for each in self.statements.retirements:
            if each.content.emptied is None:
                self._earlier.append(each)
            else:
                self._emptied += [(first, last, each) for first, last in each.content.emptied]
        self._emptied.sort(key=lambda each: each[0])

    def faults(self, line: StoredLine, rows: Rows) -> Iterator[str]:
        """Yield what is wrong with a line: its hash, and whatever that does not cover."""
        if line.right_hash != line.hash:
            yield CHANGED
        if (what := self._emptying(line)) is not None:
            yield what
        try:
            if line.body is not None and (what := self._body(line, line.body)) is not None:
                yield what
            yield from contents_faults(line, rows, self._gone(line))
        except UNREADABLE:
            yield "changed: it cannot be read"

    def returned(self, line: StoredLine, rows: Rows) -> Iterator[str]:
        """Yield which values of a line were erased, and are there again.

        A worker of an earlier release beside ours may store them. Then the next erasure deletes them again.

        Raises:
            UNREADABLE: It cannot be read.
        """
        gone = self._gone(line)
        if line.kind == CALL and line.body is not None and gone:
            stored = {row.path.partition("#")[0] for row in rows.people}
            for place in paths_of(line.body):
                if place.path in stored and is_erased(gone, place.person_id, place.named):
                    yield f"changed: {place.path} was erased, and is there again"

    def _gone(self, line: StoredLine) -> set[str]:
        return self.statements.standing.erased.get(line.voice_id or "", set())

    def _emptying(self, line: StoredLine) -> str | None:
        """Return what is wrong with a line's body being there or not, if no retirement explains it."""
        by = self._emptied_by(line)
        if line.body is not None:
            is_named = any(each.content.emptied is not None for each in by)
            return "changed: retention emptied it, and its body is there again" if is_named else None
        if line.kind not in {CALL, AUDIT} or not by:
            return "its body is missing, and retention did not record its removal"
        if all(each.then.holds_call(line.voice_id) for each in by):
            return "its body is missing, although it was under a legal hold"
        return None

    def _emptied_by(self, line: StoredLine) -> list[Retired]:
        """Return the retirements that can have emptied a line."""
        place = bisect_right(self._emptied, line.n, key=lambda each: each[0])
        _, last, named = self._emptied[place - 1] if place else (0, 0, None)
        by = [named] if named is not None and line.n <= last else self._earlier
        return [each for each in by if each.n > line.n <= each.content.until_n and line.at_ms < each.content.before_ms]

    def _body(self, line: StoredLine, body: str) -> str | None:
        """Return what is wrong with a body's hash. An erasure may have taken notes out, and signed the new hash."""
        digest = sha256(body.encode())
        expected, signature = self.statements.rewritten.get(line.n, (line.body_hash, ""))
        if digest != expected:
            return "changed: its body does not match the hash"
        if digest == line.body_hash:
            return None
        if not self.keys:
            self.unchecked += 1
        elif signature not in {
            body_signature(line.institution_key, line.n, line.body_hash, digest, key) for key in self.keys
        }:
            return "changed: an erasure gave it another body, but the key did not sign that"
        return None


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
    words = {(kind, value, line.began_ms) for kind, value in terms_of(body)}
    columns = {name: getattr(line, name) for name in FOUND_BY}
    if found_columns(call_of(body, {})) != columns or set(rows.terms) != words or len(rows.terms) != len(words):
        yield "changed: its search data does not match its body"


def _personal(line: StoredLine, body: str, persons: Sequence[PersonRow], gone: set[str]) -> Iterator[str]:
    paths = {place.path: place for place in paths_of(body)}
    commitments = msgspec.json.decode(line.commitments, type=dict[str, str])
    stored: dict[str, dict[str, PersonRow]] = defaultdict(dict)
    for row in persons:
        stored[row.path.partition("#")[0]][row.path] = row
    for path in stored.keys() - commitments.keys():
        yield f"changed: it has {path[:40]}, which was never written"
    for path, committed in commitments.items():
        place = paths.get(path, PersonalPath(path, None))
        if is_erased(gone, place.person_id, place.named):
            continue
        if path not in stored:
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

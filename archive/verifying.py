"""Verifies every chain from its base to its head, and names each line that was changed, removed, inserted or moved."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import Column, Connection, Row, select

from archive.database import Database
from archive.lines import CALL, FOUND_BY, RETIRED, ChainLine, call_of, commitment, found_columns, sha256, terms_of
from archive.tables import chains, erased, lines, people, terms
from archive.writing import Head

CHUNK: Final = 500
MOST_FAULTS: Final = 1000


@dataclass(frozen=True, slots=True)
class ChainFault:
    """What is wrong with one line."""

    institution_key: str
    n: int
    what: str

    def __str__(self) -> str:
        return f"{self.institution_key} line {self.n}: {self.what}"


@dataclass(slots=True)
class Verification:
    """The result. ``erased`` counts personal values that were erased, ``emptied`` lines without their body."""

    lines: int = 0
    erased: int = 0
    emptied: int = 0
    heads: dict[str, Head] = field(default_factory=dict)
    faults: list[ChainFault] = field(default_factory=list)


def verify(
    database: Database,
    *,
    institution_key: str | None = None,
    logged: Mapping[tuple[str, int], str] | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Verification:
    """Verify the chains of one institution or of all.

    Args:
        database: The archive.
        institution_key: Only this one's.
        logged: Hashes from the log, by institution and line. They show that a chain was rewritten.
        progress: Called with the number of lines read since the last call.

    Raises:
        archive.errors.ArchiveAway: The database failed.
    """
    found = Verification()
    with database.reading(within_s=24 * 3600.0) as connection:
        asked = select(chains).order_by(chains.c.institution_key)
        if institution_key is not None:
            asked = asked.where(chains.c.institution_key == institution_key)
        for row in connection.execute(asked).all():
            _Chain(connection, row, found, dict(logged or {}), progress).verify()
        if institution_key is None:
            known = select(chains.c.institution_key)
            orphans = select(lines.c.institution_key).where(lines.c.institution_key.not_in(known)).distinct()
            for (key,) in connection.execute(orphans):
                found.faults.append(ChainFault(key, 0, "there are lines, but no chain"))
    return found


@dataclass(slots=True)
class _Chain:
    connection: Connection
    row: Row[Any]
    found: Verification
    logged: dict[tuple[str, int], str]
    progress: Callable[[int], object]
    retired_to: int = 0
    base_is_told: bool = False

    @property
    def key(self) -> str:
        return str(self.row.institution_key)

    def verify(self) -> None:
        n, previous = int(self.row.base_n), str(self.row.base_hash)
        emptied: list[int] = []
        for chunk in self._chunks(n):
            values = self._rows_of(chunk, people.c.path, people.c.value, people.c.salt)
            found_by = self._rows_of(chunk, terms.c.kind, terms.c.value)
            for row in chunk:
                if row.n != n + 1:
                    self._fault(n + 1, f"missing, up to line {row.n - 1}" if row.n > n + 2 else "missing")
                    previous = row.previous  # continue from here: one gap is one fault
                self._line(row, previous)
                if row.body is None:
                    emptied.append(row.n)
                    self.found.emptied += 1
                else:
                    self._body(row, values[row.n], set(found_by[row.n]))
                n, previous = row.n, row.hash
            self.found.lines += len(chunk)
            self.progress(len(chunk))
        self._end(n, previous)
        for line in emptied:
            if line > self.retired_to:
                self._fault(line, "its body is missing, and retention did not record its removal")

    def _end(self, n: int, previous: str) -> None:
        head = Head(self.row.head_n, self.row.head_hash)
        if head.n > n:
            self._fault(n + 1, f"missing: the chain ended at line {head.n}")
        elif head != (n, previous):
            self._fault(n, "the stored head of the chain is a different line")
        if self.row.base_n and not self.base_is_told:
            self._fault(self.row.base_n + 1, "earlier lines are missing, and retention did not record their removal")
        self.found.heads[self.key] = Head(n, previous)
        for key, at in sorted(self.logged):
            if key == self.key and at > n:
                self._fault(at, "is in the log, but missing")

    def _line(self, row: Row[Any], previous: str) -> None:
        if row.previous != previous:
            self._fault(row.n, "does not follow the line before it: inserted, removed or reordered here")
        line = ChainLine(**{name: getattr(row, name) for name in ChainLine.__struct_fields__})
        if line.hash != row.hash:
            self._fault(row.n, "changed: its hash does not match")
        if self.logged.get((self.key, row.n), row.hash) != row.hash:
            self._fault(row.n, "its hash differs from the logged one")
        if row.kind == RETIRED and row.body:
            told = msgspec.json.decode(row.body)
            self.retired_to = max(self.retired_to, told["until_n"])
            self.base_is_told |= (told["base_n"], told["base_hash"]) == (self.row.base_n, self.row.base_hash)

    def _body(self, row: Row[Any], personal: list[tuple[Any, ...]], found_by: set[tuple[Any, ...]]) -> None:
        if sha256(row.body.encode()) != row.body_hash:
            self._fault(row.n, "changed: its body does not match the hash")
            return
        if row.kind != CALL:
            return
        commitments = msgspec.json.decode(row.commitments)
        values = [each for each in personal if each[1] is not None]  # the others are only search terms
        for path, value, salt in values:
            if commitments.get(path) != commitment(path, value, salt):
                self._fault(row.n, f"changed: {path} does not match its commitment")
        gone = len(commitments) - len(values)
        self.found.erased += gone
        if gone and not self._is_erased(row.voice_id):
            self._fault(row.n, "personal values are missing, but no erasure was recorded")
        if found_columns(call_of(row.body, {})) != {name: getattr(row, name) for name in FOUND_BY} or (
            terms_of(row.body) != found_by
        ):
            self._fault(row.n, "changed: its search data does not match its body")

    def _is_erased(self, voice_id: str) -> bool:
        asked = select(erased.c.voice_id).where(erased.c.institution_key == self.key, erased.c.voice_id == voice_id)
        return self.connection.execute(asked.limit(1)).first() is not None

    def _chunks(self, n: int) -> Iterator[Sequence[Row[Any]]]:
        asked = select(lines).where(lines.c.institution_key == self.key, lines.c.n > n).order_by(lines.c.n)
        return self.connection.execute(asked, execution_options={"yield_per": CHUNK}).partitions()

    def _rows_of(self, chunk: Sequence[Row[Any]], *columns: Column[Any]) -> dict[int, list[tuple[Any, ...]]]:
        """Return columns of another table's rows by the number of the line that they belong to."""
        table = columns[0].table
        found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        asked = select(table.c.n, *columns).where(
            table.c.institution_key == self.key, table.c.n.between(chunk[0].n, chunk[-1].n)
        )
        for n, *row in self.connection.execute(asked):
            found[n].append(tuple(row))
        return found

    def _fault(self, n: int, what: str) -> None:
        if len(self.found.faults) < MOST_FAULTS:
            self.found.faults.append(ChainFault(self.key, n, what))

"""Verifies every chain from its base to its head, and names each line that was changed, removed, inserted or moved.

The database's owner can change every table and compute every hash anew. So each line is compared with the heads that were
logged elsewhere. What the tables hold beside the hashes is compared with the lines, and what lines say about the archive
with the audit log in Redis.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import time_ns
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, func, select

from callkeeper.archive.about_the_archive import CLOCKS_MS, AboutTheArchive, Commands, HeadTimes
from callkeeper.archive.contents import (
    UNKNOWN_VALUES,
    UNREADABLE,
    ChainFault,
    LineTest,
    Rows,
    missing_values,
    rows_of,
)
from callkeeper.archive.database import Database
from callkeeper.archive.lines import StoredLine
from callkeeper.archive.statements import Statements
from callkeeper.archive.tables import chains, columns_of, erased, holds, lines, people, record_of, terms
from callkeeper.archive.writing import Head
from callkeeper.service.secret import Secret

CHUNK: Final = 500
MOST_FAULTS: Final = 1000
NEW_MS: Final = 15 * 60_000
"""How long after its first line the head of a new chain is logged at the latest, while a worker runs."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Lines that no logged head proves yet: how many, and when the first of them was written (0: there are none)."""

    lines: int
    since_ms: int


@dataclass(slots=True)
class Verification:
    """The result.

    ``erased`` counts personal values that were erased, ``emptied`` lines without their body, ``unchecked`` bodies that an
    erasure changed while there is no key to check that, ``unlisted`` faults beyond the first thousand.
    """

    lines: int = 0
    erased: int = 0
    emptied: int = 0
    unchecked: int = 0
    heads: dict[str, Head] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    faults: list[ChainFault] = field(default_factory=list)
    unlisted: int = 0

    def fault(self, key: str, n: int, what: str) -> None:
        """Note a fault. What the owner wrote may be no text."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(ChainFault(_printable(key), n, _printable(what)))
        else:
            self.unlisted += 1


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known from outside the database.

    Attributes:
        logged: Hashes from the log, by institution and line. They show that a chain was rewritten or removed.
        logged_at: When some of these heads were read, in ms.
        keep_ms: How long an institution's lines must be kept; None: for ever. Without it retention is not checked by age.
        keys: One of them signed what an erasure changed in a body. Without a key that is not checked.
        commands: What the audit log in Redis has of commands that changed the archive. Without it that is not compared.
        now_ms: The present instant.
    """

    logged: Mapping[tuple[str, int], str] = field(default_factory=dict)
    logged_at: Mapping[tuple[str, int], int] = field(default_factory=dict)
    keep_ms: Callable[[str], int | None] | None = None
    keys: Sequence[Secret] = ()
    commands: Commands | None = None
    now_ms: int = field(default_factory=lambda: time_ns() // 1_000_000)


def verify(
    database: Database,
    *,
    institution_key: str | None = None,
    evidence: Evidence | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Verification:
    """Verify the chains of one institution or of all; ``evidence`` is from outside the database.

    Raises:
        callkeeper.archive.errors.ArchiveAway: The database failed.
    """
    found = Verification()
    known = Evidence() if evidence is None else evidence
    with database.reading(within_s=24 * 3600.0) as connection, _any_text(database, connection):
        rows: dict[str, Row[Any]] = {}
        for row in connection.execute(select(*columns_of(chains, _ChainRow)).order_by(*chains.c)).all():
            key = str(row.institution_key)
            if key in rows:
                found.fault(key, 0, "is twice in the list of chains")
            elif institution_key in {None, key}:
                try:
                    _Chain(connection, record_of(row, _ChainRow), found, known, progress).verify()
                except UNREADABLE as error:
                    found.fault(key, 0, f"the chain cannot be read further: {type(error).__name__}")
            rows.setdefault(key, row)
        logged_keys = {key for key, _ in known.logged}
        for key in sorted(logged_keys):
            if institution_key in {None, key} and key not in rows:
                last = max((n for other, n in known.logged if other == key), default=0)
                found.fault(key, last, "is in the log, but its whole chain is missing")
        if institution_key is None:
            _orphans(connection, found, set(rows))
    return found


def _orphans(connection: Connection, found: Verification, keys: set[str]) -> None:
    """Name rows of chains that are not in the list of chains."""
    for table in (lines, people, terms, erased, holds):
        for (key,) in connection.execute(select(table.c.institution_key).distinct()):
            if str(key) not in keys:
                found.fault(str(key), 0, f"there are rows of {table.name}, but no chain")


@contextmanager
def _any_text(database: Database, connection: Connection) -> Iterator[None]:
    """Read also what is no UTF-8 from SQLite, which stores any bytes as a text."""
    raw: Any = connection.connection.driver_connection
    if database.is_sqlite:
        raw.text_factory = lambda data: data.decode(errors="surrogateescape")
    try:
        yield
    finally:
        if database.is_sqlite:
            raw.text_factory = str


class _ChainRow(msgspec.Struct, frozen=True):
    institution_key: str
    base_n: int
    base_hash: str
    head_n: int
    head_hash: str


@dataclass(slots=True)
class _Chain:
    connection: Connection
    row: _ChainRow
    found: Verification
    known: Evidence
    progress: Callable[[int], object]
    key: str = ""
    n: int = 0
    previous: str = ""
    latest_ms: int = 0
    """The latest time of the lines so far, and of the heads that were logged before the present line."""
    first_unlogged_ms: int = 0
    last_logged: int = 0
    logged: dict[int, str] = field(default_factory=dict)
    belonging: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many rows of other tables belong to lines."""

    def verify(self) -> None:
        self.key, base = self.row.institution_key, Head(self.row.base_n, self.row.base_hash)
        self.n, self.previous = base
        self.logged = {n: digest for (key, n), digest in self.known.logged.items() if key == self.key}
        self.last_logged = max(self.logged, default=0)
        times = HeadTimes((n, ms) for (key, n), ms in self.known.logged_at.items() if key == self.key)
        statements = Statements(self.connection, self.key, base.n)
        about = AboutTheArchive(
            self.connection, self.key, base, statements, times, self.known.keep_ms, self.known.commands
        )
        test = LineTest(statements, self.known.keys)
        first_ms, count = 0, 0
        if self.logged.get(base.n, base.hash) != base.hash:
            self._fault(base.n, "its hash differs from the logged one")
        for chunk in self._chunks():
            rows = rows_of(self.connection, self.key, [row.n for row in chunk if isinstance(row.n, int)])
            for row in chunk:
                line = self._read(row)
                if line is not None:
                    self._follows(line, times)
                    self._contents(line, rows[line.n], test)
                    first_ms, count = first_ms or line.at_ms, count + 1
            self.found.lines += len(chunk)
            self.progress(len(chunk))
        self._end(base, first_ms)
        self.found.unchecked += test.unchecked
        for n, what in about.faults():
            self._fault(n, what)
        unproved = max(0, self.n - self.last_logged) if self.logged else count
        self.found.tails[self.key] = Tail(unproved, self.first_unlogged_ms if unproved else 0)

    def _read(self, row: Row[Any]) -> StoredLine | None:
        """Return a row as a line; None if it cannot be one, or if it has the place of another one."""
        try:
            line = record_of(row, StoredLine)
        except UNREADABLE:
            n = row.n if isinstance(row.n, int) else self.n + 1
            self._fault(n, UNKNOWN_VALUES)
            if isinstance(row.n, int) and isinstance(row.hash, str):
                self.n, self.previous = max(self.n, row.n), row.hash
            return None
        if line.n <= self.row.base_n:
            self._fault(line.n, "lies before the beginning of the chain: inserted")
        elif line.n <= self.n:
            self._fault(line.n, "is there twice")
        else:
            return line
        return None

    def _follows(self, line: StoredLine, times: HeadTimes) -> None:
        """Test a line's place in the chain: the line before it, the logged hash, and its time."""
        if (fault := line.place_fault(self.n, self.previous)) is not None:
            self._fault(*fault)
        if self.logged.get(line.n, line.hash) != line.hash:
            self._fault(line.n, "its hash differs from the logged one")
        if line.n > self.last_logged and not self.first_unlogged_ms:
            self.first_unlogged_ms = line.at_ms
        self.latest_ms = max(self.latest_ms, times.before(line.n))
        if line.at_ms < self.latest_ms - CLOCKS_MS:
            self._fault(line.n, "is dated back: what was written before it has a later time, or a clock was wrong")
        if line.at_ms > self.known.now_ms + CLOCKS_MS:
            self._fault(line.n, "is dated in the future, or a clock was wrong")
        else:
            self.latest_ms = max(self.latest_ms, line.at_ms)
        self.n, self.previous = line.n, line.hash

    def _contents(self, line: StoredLine, rows: Rows, test: LineTest) -> None:
        """Test a line by itself, and whether what is missing was erased or retired."""
        self.belonging["people"] += len(rows.people)
        self.belonging["terms"] += len(rows.terms)
        self.found.emptied += line.body is None
        for what in test.faults(line, rows):
            self._fault(line.n, what)
        with suppress(*UNREADABLE):  # the test has named it
            for what in test.returned(line, rows):
                self._fault(line.n, what)
            self.found.erased += missing_values(line, rows)

    def _end(self, base: Head, first_ms: int) -> None:
        head = Head(self.row.head_n, self.row.head_hash)
        if head.n > self.n:
            self._fault(self.n + 1, f"missing: the chain ended at line {head.n}")
        elif head != (self.n, self.previous):
            self._fault(self.n, "the stored head of the chain is a different line")
        self.found.heads[self.key] = Head(self.n, self.previous)
        for at in sorted(self.logged):
            if at > self.n:
                self._fault(at, "is in the log, but missing")
        if self.logged and self.last_logged < base.n:
            self._fault(base.n + 1, "the chain begins after every logged head, so that none proves it")
        if self.known.logged and not self.logged and 0 < first_ms < self.known.now_ms - NEW_MS:
            self._fault(base.n + 1, "no head of this chain was ever logged, although it is not new")
        for table in (people, terms):
            asked = select(func.count()).select_from(table).where(table.c.institution_key == self.key)
            alone = self.connection.execute(asked).scalar_one() - self.belonging[table.name.removeprefix("archive_")]
            if alone:
                self._fault(0, f"{alone} rows of {table.name} belong to no line")

    def _chunks(self) -> Iterator[Sequence[Row[Any]]]:
        asked = select(*columns_of(lines, StoredLine)).where(lines.c.institution_key == self.key).order_by(lines.c.n)
        return self.connection.execute(asked, execution_options={"yield_per": CHUNK}).partitions()

    def _fault(self, n: int, what: str) -> None:
        self.found.fault(self.key, n, what)

"""Verifies every chain from its base to its head, and names each line that was changed, removed, inserted or moved.

What the tables say of erasures, legal holds and retention must follow from lines of the chain, because the database's owner
can change tables. Lines about the archive itself must agree with the audit log, as far as its chain reaches.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import Column, Connection, Row, select

from archive.database import Database
from archive.lines import (
    AUDIT_LOG,
    CALL,
    ERASED,
    FOUND_BY,
    HELD,
    RELEASED,
    RETIRED,
    ChainLine,
    call_of,
    commitment,
    found_columns,
    sha256,
    terms_of,
)
from archive.tables import chains, erased, holds, lines, people, terms
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


@dataclass(frozen=True, slots=True)
class Tail:
    """Lines that no logged head proves yet: how many, and when the first of them was written (0: there are none)."""

    lines: int
    since_ms: int


@dataclass(slots=True)
class Verification:
    """The result. ``erased`` counts personal values that were erased, ``emptied`` lines without their body."""

    lines: int = 0
    erased: int = 0
    emptied: int = 0
    heads: dict[str, Head] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    """Of the chains whose heads were logged: the lines since."""
    faults: list[ChainFault] = field(default_factory=list)


def verify(
    database: Database,
    *,
    institution_key: str | None = None,
    logged: Mapping[tuple[str, int], str] | None = None,
    keep_ms: Callable[[str], int | None] | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Verification:
    """Verify the chains of one institution or of all.

    Args:
        database: The archive.
        institution_key: Only this one's.
        logged: Hashes from the log, by institution and line. They show that a chain was rewritten or removed.
        keep_ms: How long an institution's lines must be kept; None: for ever. Without it retention is not checked by age.
        progress: Called with the number of lines read since the last call.

    Raises:
        archive.errors.ArchiveAway: The database failed.
    """
    found = Verification()
    with database.reading(within_s=24 * 3600.0) as connection:
        asked = select(chains).order_by(chains.c.institution_key)
        if institution_key is not None:
            asked = asked.where(chains.c.institution_key == institution_key)
        audited = _Audited.of(connection)
        for row in connection.execute(asked).all():
            _Chain(connection, row, found, dict(logged or {}), progress, audited, keep_ms).verify()
        for key in sorted({key for key, _ in logged or {} if institution_key in {None, key}} - found.heads.keys()):
            last = max(n for other, n in logged or {} if other == key)
            found.faults.append(ChainFault(key, last, "is in the log, but its whole chain is missing"))
        if institution_key is None:
            known = select(chains.c.institution_key)
            orphans = select(lines.c.institution_key).where(lines.c.institution_key.not_in(known)).distinct()
            for (key,) in connection.execute(orphans):
                found.faults.append(ChainFault(key, 0, "there are lines, but no chain"))
    return found


_DONE: Final = {ERASED: "erase", HELD: "hold", RELEASED: "release", RETIRED: "retire"}
"""What the audit log calls the lines about the archive itself."""

_NEAR_MS: Final = 15 * 60_000
"""How far a line may be from its entry in the audit log. A retirement of much data takes minutes."""

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class _Audited:
    """The commands that changed the archive, as the audit log's chain has them: what, where and when in ms."""

    commands: list[tuple[str, str, int]]
    begins_ms: int
    ends_ms: int

    @classmethod
    def of(cls, connection: Connection) -> "_Audited":
        ours = (lines.c.institution_key == AUDIT_LOG) & lines.c.body.is_not(None)
        asked = select(lines.c.body).where(ours, lines.c.body.contains("archive_changed", autoescape=True))
        told = [msgspec.json.decode(body) for (body,) in connection.execute(asked)]
        commands = [
            (each["entry"].get("detail", ""), each["entry"].get("institution", ""), _ms_of_id(each["id"]))
            for each in told
        ]
        span = select(lines.c.voice_id).where(ours).limit(1)
        ends = (connection.execute(span.order_by(n)).scalar() or "" for n in (lines.c.n, lines.c.n.desc()))
        return cls(commands, *map(_ms_of_id, ends))

    def lacks(self, kind: str, key: str, at_ms: int) -> bool:
        """Tell whether the audit log covers an instant and has no such command near it.

        Each command accounts for one line, but a retirement for several: it is written in parts.
        """
        if self.begins_ms > at_ms - _NEAR_MS or self.ends_ms < at_ms + _NEAR_MS:
            return False
        for command in self.commands:
            done, where, when = command
            if (done, where) == (_DONE[kind], key) and abs(when - at_ms) <= _NEAR_MS:
                if kind != RETIRED:
                    self.commands.remove(command)
                return False
        return True


def _ms_of_id(entry_id: str) -> int:
    """Return when an entry was written to the audit log. Its id in Redis's stream begins with that."""
    digits = str(entry_id).partition("-")[0]
    return int(digits) if digits.isdigit() else 0


@dataclass(slots=True)
class _Chain:
    connection: Connection
    row: Row[Any]
    found: Verification
    logged: dict[tuple[str, int], str]
    progress: Callable[[int], object]
    audited: _Audited
    keep_ms: Callable[[str], int | None] | None = None
    retired_to: int = 0
    base_is_told: bool = False
    erased_lines: set[int] = field(default_factory=set)
    voice_ids: dict[int, str] = field(default_factory=dict)
    """Of the lines that lack values or that an erasure names."""
    incomplete: list[int] = field(default_factory=list)
    differing: dict[int, str] = field(default_factory=dict)
    """Hashes of the bodies that are not those of their lines, by line, and which hashes erasures gave them."""
    rewritten: dict[int, str] = field(default_factory=dict)
    held: set[tuple[str, str]] = field(default_factory=set)
    first_unlogged_ms: int = 0
    last_logged: int = 0

    @property
    def key(self) -> str:
        return str(self.row.institution_key)

    def verify(self) -> None:
        n, previous = int(self.row.base_n), str(self.row.base_hash)
        self.last_logged = max((at for key, at in self.logged if key == self.key), default=0)
        if self.logged.get((self.key, n), previous) != previous:
            self._fault(n, "its hash differs from the logged one")
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
        self._erasures()
        self._holds()
        if self.last_logged:
            self.found.tails[self.key] = Tail(max(0, n - self.last_logged), self.first_unlogged_ms)

    def _erasures(self) -> None:
        """What is missing or recorded as erased must be named by lines of the chain."""
        told = {self.voice_ids[n] for n in self.erased_lines if n in self.voice_ids}
        for n, digest in self.differing.items():
            if self.rewritten.get(n) != digest:
                self._fault(n, "changed: its body does not match the hash")
        for n in self.incomplete:
            if n not in self.erased_lines and self.voice_ids[n] not in told:
                self._fault(n, "personal values are missing, but no erasure was recorded")
        asked = select(erased.c.voice_id).where(erased.c.institution_key == self.key).distinct()
        stored = set(self.connection.execute(asked).scalars())
        for voice_id in sorted(told - stored):
            self._fault(0, f"the erasure of {voice_id} was taken back, so that its values can be stored again")
        for voice_id in sorted(stored - told) if not self.row.base_n else ():
            self._fault(0, f"an erasure of {voice_id} is recorded that no line of the chain names")

    def _holds(self) -> None:
        """The legal holds in force must be those that lines of the chain began and did not end."""
        asked = select(holds.c.kind, holds.c.value).where(holds.c.institution_key == self.key)
        stored = {(kind, value) for kind, value in self.connection.execute(asked)}
        for kind, _ in sorted(self.held - stored):
            self._fault(0, f"a legal hold of a {kind} was removed, and its release was not recorded")
        if not self.row.base_n:  # retention may have removed the line of an old one
            for kind, _ in sorted(stored - self.held):
                self._fault(0, f"a legal hold of a {kind} is in force that no line of the chain began")

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
        if row.n > self.last_logged and not self.first_unlogged_ms:
            self.first_unlogged_ms = row.at_ms
        if row.voice_id is not None:
            self.voice_ids[row.n] = row.voice_id
        if row.kind in _DONE and row.body and sha256(row.body.encode()) == row.body_hash:
            self._about_the_archive(row, msgspec.json.decode(row.body))

    def _about_the_archive(self, row: Row[Any], told: dict[str, Any]) -> None:
        match row.kind:
            case "retired":
                self.retired_to = max(self.retired_to, told["until_n"])
                self.base_is_told |= (told["base_n"], told["base_hash"]) == (self.row.base_n, self.row.base_hash)
                self._retired(row, told["before_ms"])
            case "erased":
                self.erased_lines.update(told["lines"])
                self.rewritten |= {int(n): digest for n, digest in told.get("rewritten", {}).items()}
            case "held":
                self.held.add((told["kind"], told["value"]))
            case "released":
                self.held.discard((told["kind"], told["value"]))
        if self.audited.lacks(row.kind, self.key, row.at_ms):
            self._fault(row.n, f"the audit log has no command `archive {_DONE[row.kind]}` of that time")

    def _retired(self, row: Row[Any], before_ms: int) -> None:
        if self.keep_ms is None:
            return
        keep_ms = self.keep_ms(self.key)
        if keep_ms is None:
            self._fault(row.n, "retention removed lines, but CALLKEEPER_ARCHIVE_KEEP keeps them for ever")
        elif row.at_ms - before_ms < keep_ms - _DAY_MS:
            self._fault(row.n, "retention removed lines that are younger than CALLKEEPER_ARCHIVE_KEEP")

    def _body(self, row: Row[Any], personal: list[tuple[Any, ...]], found_by: set[tuple[Any, ...]]) -> None:
        if (digest := sha256(row.body.encode())) != row.body_hash:
            self.differing[row.n] = digest
        if row.kind == CALL:
            try:
                self._call(row, personal, found_by)
            except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
                self._fault(row.n, "changed: it cannot be read")

    def _call(self, row: Row[Any], personal: list[tuple[Any, ...]], found_by: set[tuple[Any, ...]]) -> None:
        commitments = msgspec.json.decode(row.commitments)
        values = [each for each in personal if each[1] is not None]  # the others are only search terms
        for path, value, salt in values:
            if salt is None or commitments.get(path) != commitment(path, value, salt):
                self._fault(row.n, f"changed: {path} does not match its commitment")
        gone = len(commitments) - len(values)
        self.found.erased += gone
        if gone:
            self.incomplete.append(row.n)
        if found_columns(call_of(row.body, {})) != {name: getattr(row, name) for name in FOUND_BY} or (
            terms_of(row.body) != found_by
        ):
            self._fault(row.n, "changed: its search data does not match its body")

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

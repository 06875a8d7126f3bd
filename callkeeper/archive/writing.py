"""Writes calls and the audit log into the archive: one transaction per institution, with its chain locked.

Writing a call again changes nothing. If its trail is a prefix of the stored one, it is the same or an older state and
is ignored. Every other trail is a new version.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Insert, Table, Text, bindparam, cast, column, func, null, select, update
from sqlalchemy.dialects import postgresql, sqlite

from callkeeper.archive.database import Database
from callkeeper.archive.lines import (
    GENESIS,
    ChainLine,
    Content,
    StoredLine,
    commitment,
    people_rows,
    sha256,
    trail_of,
)
from callkeeper.archive.statements import is_erased
from callkeeper.archive.tables import chains, columns_of, erased, has_later_version, lines, people, record_of, terms

MOST_PATHS: Final = 200
"""Most personal values of one call that are stored. Further ones repeat the same words."""


MOST_WALKED: Final = 20_000
"""Lines up to a new head that are tested in one transaction. That takes less than its deadline allows."""

_WALKED_AT_ONCE: Final = 500


class Head(NamedTuple):
    """The head of a chain: the number of its last line and that line's hash."""

    n: int
    hash: str


@dataclass(slots=True)
class ChainEnd:
    """The end of one institution's chain, locked until the transaction ends, and the rows to insert."""

    connection: Connection
    institution_key: str
    head: Head
    lines: list[dict[str, Any]] = field(default_factory=list)
    people: list[dict[str, Any]] = field(default_factory=list)
    terms: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def lock(cls, connection: Connection, institution_key: str) -> "ChainEnd":
        """Lock a chain, or create it if there is none. Other writers wait."""
        asked = select(chains.c.head_n, chains.c.head_hash).where(chains.c.institution_key == institution_key)
        end = connection.execute(asked.with_for_update()).first()
        if end is None:
            start = {"base_n": 0, "base_hash": GENESIS, "head_n": 0, "head_hash": GENESIS}
            insert_once(connection, chains, institution_key=institution_key, **start)
            end = connection.execute(asked.with_for_update()).one()
        return cls(connection, institution_key, Head(*end))

    def append(self, kind: str, body: str, at_ms: int, *, commitments: Mapping[str, str], **columns: Any) -> int:
        """Add a line; return its number. ``write`` stores it."""
        line = ChainLine(
            institution_key=self.institution_key,
            n=self.head.n + 1,
            kind=kind,
            at_ms=at_ms,
            voice_id=columns.get("voice_id"),
            version=columns.get("version"),
            body_hash=sha256(body.encode()),
            commitments=msgspec.json.encode(commitments, order="sorted").decode(),
            previous=self.head.hash,
        )
        row = {"alternate_id": None, "began_ms": None, "settled_ms": None, **columns}
        self.head = Head(line.n, line.hash)
        self.lines.append({**row, **msgspec.structs.asdict(line), "body": body, "hash": line.hash})
        return line.n

    def add(self, content: Content, version: int, at_ms: int, gone: set[str]) -> None:
        """Append a version of a call, or an audit entry; ``gone`` are the persons whose values were erased, '' for all."""
        personal = content.personal[:MOST_PATHS]
        commitments = {each.path: commitment(each.path, each.value, each.salt) for each in personal}
        n = self.append(content.kind, content.body, at_ms, commitments=commitments, version=version, **content.columns)
        place = {"institution_key": self.institution_key, "n": n, "began_ms": content.columns["began_ms"]}
        for each in personal:
            if is_erased(gone, each.person_id, each.named):
                continue
            self.people += [{**place, **row} for row in people_rows(each)]
        self.terms += [{**place, "kind": kind, "value": value} for kind, value in sorted(content.terms)]

    def write(self) -> None:
        """Store the appended lines and the new head. Call it once."""
        for table, rows in ((lines, self.lines), (people, self.people), (terms, self.terms)):
            if rows:
                _insert(self.connection, table, rows)
        if self.lines:
            ours = update(chains).where(chains.c.institution_key == self.institution_key)
            self.connection.execute(ours.values(head_n=self.head.n, head_hash=self.head.hash))


class Writer:
    """Appends calls and audit entries. Use it in one thread at a time."""

    def __init__(
        self,
        database: Database,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        most_walked: int = MOST_WALKED,
    ) -> None:
        self._database = database
        self._now_ms = now_ms
        self._most_walked = most_walked

    def write(self, institution_key: str, contents: Sequence[Content]) -> int:
        """Write calls of one institution, or entries of the audit log, all or none; return how many were new.

        Raises:
            callkeeper.archive.errors.ArchiveAway: The database failed; whether they were written may be unknown.
            callkeeper.archive.errors.ValueRefused: One of them cannot be stored.
        """
        with self._database.writing() as connection:
            chain = ChainEnd.lock(connection, institution_key)
            voice_ids = [content.voice_id for content in contents]
            known = _versions(connection, institution_key, voice_ids)
            gone = _erased(connection, institution_key, voice_ids)
            at_ms = self._now_ms()
            for content in contents:
                voice_id = content.voice_id
                version, before = known.get(voice_id, (0, []))
                if version and before[: len(content.trail)] == content.trail:
                    continue
                chain.add(content, version + 1, at_ms, gone.get(voice_id, set()))
                known[voice_id] = (version + 1, content.trail)
            written = len(chain.lines)
            chain.write()
            return written

    def heads(self) -> dict[str, Head]:
        with self._database.reading() as connection:
            asked = select(chains.c.institution_key, chains.c.head_n, chains.c.head_hash)
            return {key: Head(n, head) for key, n, head in connection.execute(asked)}

    def led_to(self, institution_key: str, before: Head | None, head: Head) -> Head | None:
        """Return where a chain's lines lead after an earlier head: to the new one, or to one on the way if it is long.

        None: they do not lead there, or the line of the earlier head is another one. Without an earlier head only the line
        of the new one is tested. Each line has to have its right hash, so that no single row can stand for the others.
        """
        with self._database.reading() as connection:
            if before is None:
                return _walked(connection, institution_key, None, head, 1)
            if not _holds(connection, institution_key, before):
                return None
            return _walked(connection, institution_key, before, head, self._most_walked)

    def close(self) -> None:
        self._database.close()


def _holds(connection: Connection, institution_key: str, head: Head) -> bool:
    """Tell whether a chain still has a line with the number and hash of an earlier head, or begins right after it."""
    chain = chains.c.institution_key == institution_key
    base = connection.execute(select(chains.c.base_n, chains.c.base_hash).where(chain)).first()
    if base is None:
        return False
    if head.n == base.base_n:
        return bool(head.hash == base.base_hash)
    line = (lines.c.institution_key == institution_key) & (lines.c.n == head.n)
    return bool(connection.execute(select(lines.c.hash).where(line)).scalar() == head.hash)


def _walked(connection: Connection, key: str, last: Head | None, head: Head, most: int) -> Head | None:
    """Walk lines to a head, each of which follows the one before and has its right hash. Bodies are not read."""
    first = head.n if last is None else last.n + 1
    columns = [null().label("body") if each.name == "body" else each for each in columns_of(lines, StoredLine)]
    asked = select(*columns).where(lines.c.institution_key == key, lines.c.n.between(first, head.n))
    asked, walked = asked.order_by(lines.c.n).limit(most), 0
    for row in connection.execute(asked, execution_options={"yield_per": _WALKED_AT_ONCE}):
        try:
            line = record_of(row, StoredLine)
        except msgspec.ValidationError:
            return None
        is_next = last is None or line.place_fault(*last) is None
        if not is_next or line.right_hash != line.hash:
            return None
        last, walked = Head(line.n, line.hash), walked + 1
    is_part = walked == most and last is not None and last.n < head.n
    return last if last == head or is_part else None


def insert_once(connection: Connection, table: Table, **row: object) -> None:
    """Insert a row unless it exists."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    connection.execute(insert(table).values(row).on_conflict_do_nothing())


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows with the same columns. PostgreSQL gets them as one value, which is faster than many statements."""
    if connection.dialect.name == "sqlite":
        connection.execute(table.insert(), rows)
    else:
        connection.execute(_from_json(table, tuple(rows[0])), {"rows": msgspec.json.encode(rows).decode()})


@cache
def _from_json(table: Table, names: tuple[str, ...]) -> Insert:
    columns = [column(name, table.c[name].type) for name in names]
    given = func.json_to_recordset(cast(bindparam("rows", type_=Text), postgresql.JSON))
    return table.insert().from_select(names, select(given.table_valued(*columns).render_derived(with_types=True)))


def _versions(
    connection: Connection, institution_key: str, voice_ids: Sequence[str]
) -> dict[str, tuple[int, list[Any]]]:
    """Return the last version of each stored call, and its trail (empty: retention removed it)."""
    asked = select(lines.c.voice_id, lines.c.version, lines.c.body).where(
        lines.c.institution_key == institution_key, lines.c.voice_id.in_(voice_ids), ~has_later_version()
    )
    rows = connection.execute(asked)
    return {voice_id: (version, trail_of(body) if body else []) for voice_id, version, body in rows}


def _erased(connection: Connection, institution_key: str, voice_ids: Sequence[str]) -> dict[str, set[str]]:
    """Return whose values were erased, by call; '' stands for all."""
    asked = select(erased.c.voice_id, erased.c.person_id).where(
        erased.c.institution_key == institution_key, erased.c.voice_id.in_(voice_ids)
    )
    found: dict[str, set[str]] = {}
    for voice_id, person_id in connection.execute(asked):
        found.setdefault(voice_id, set()).add(person_id)
    return found

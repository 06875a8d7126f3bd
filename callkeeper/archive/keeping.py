"""Removes data from the archive: a person's values, and calls older than the retention. A legal hold prevents both.

Every removal, hold and release is recorded as a line of the chain, which vouches for what was removed. So only lines that
the verification finds right are removed or changed. A line that somebody has changed stays, and is named.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from callkeeper.archive.contents import UNKNOWN_VALUES, UNREADABLE, ChainFault, LineTest, rows_of
from callkeeper.archive.database import Database
from callkeeper.archive.errors import HoldsUnknown
from callkeeper.archive.lines import (
    AUDIT,
    CALL,
    ERASED,
    FOUND_BY,
    GENESIS,
    HELD,
    RELEASED,
    RETIRED,
    StoredLine,
    end_of,
    number_term,
    paths_of,
    sha256,
    spellings_in,
    without_remarks,
)
from callkeeper.archive.old_lines import OldLines
from callkeeper.archive.statements import (
    EVERYBODY,
    UNKNOWN,
    Statements,
    body_signature,
    erased_of,
    holds_of,
    mentions_of,
    ranges_of,
)
from callkeeper.archive.tables import (
    chains,
    columns_of,
    erased,
    holds,
    in_parts,
    is_same_line,
    is_whole,
    lines,
    people,
    record_of,
    terms,
)
from callkeeper.archive.writing import ChainEnd, Head, insert_once
from callkeeper.calls.phone_number import COMPARED, digits_of, same_number
from callkeeper.calls.store.erasing import Holds
from callkeeper.service.endpoints import is_same_id
from callkeeper.service.secret import Secret

WITHIN_S: Final = 3600.0
AT_ONCE: Final = 5000
"""Lines that retention handles in one transaction. Workers wait for the chain meanwhile."""


@dataclass(frozen=True, slots=True)
class ErasureResult:
    """Which calls were erased, how many values, which calls are under a hold, and which were erased whole.

    ``wrong``: the calls that were left as they are, because somebody has changed a line of theirs.
    """

    calls: frozenset[str]
    values: int
    held: frozenset[str]
    whole: frozenset[str]
    wrong: frozenset[str] = frozenset()


@dataclass(slots=True)
class Keeper:
    """Erases, holds, releases and retires. It needs a role that may delete.

    ``key`` signs bodies from which an erasure takes notes out, ``former_keys`` signed such bodies before. ``now_ms``
    replaces the clock. ``written`` are the lines of chains that this wrote, ``faults`` those that it left as wrong.
    """

    database: Database
    operator: str
    key: Secret | None = None
    now_ms: int | None = None
    former_keys: Sequence[Secret] = ()
    at_once: int = AT_ONCE
    written: list[int] = field(default_factory=list)
    faults: list[ChainFault] = field(default_factory=list)

    def erase(
        self,
        institution_key: str,
        *,
        reason: str,
        person_id: str | None = None,
        phone: str | None = None,
        country: str = "US",
        besides: Collection[str] = (),
    ) -> ErasureResult:
        """Erase a person's data: all personal values of their own calls, and their name and the notes about them in others.

        ``phone`` is complete, and stands instead of a member; numbers without a country code belong to ``country``. The
        reason is written into the chain: it must not name a person. ``besides``: calls that an erasure has just erased.

        Raises:
            HoldsUnknown: Nobody knows what is under a legal hold; ``faults`` name the lines.
        """
        with self.database.writing(within_s=WITHIN_S) as connection:
            chain = ChainEnd.lock(connection, institution_key)
            statements = Statements(connection, institution_key, _base(connection, institution_key).n)
            if self._is_unknown(statements):
                raise HoldsUnknown
            every = _calls_of(connection, institution_key, person_id, phone, country)
            found = {voice_id: whose for voice_id, whose in every.items() if voice_id not in besides}
            held = _under(connection, institution_key, sorted(found), statements.every_hold())
            wrong = self._wrong(connection, statements, sorted(found.keys() - held))
            found = {voice_id: whose for voice_id, whose in found.items() if voice_id not in wrong}
            numbers: list[int] = []
            rewritten: dict[str, tuple[str, str]] = {}
            values = 0
            for voice_id, whose in found.items():
                if voice_id in held:
                    continue
                ours = select(lines.c.n).where(lines.c.institution_key == institution_key, lines.c.voice_id == voice_id)
                which = list(connection.execute(ours).scalars())
                numbers += which
                gone = delete(people).where(people.c.institution_key == institution_key, people.c.n.in_(which))
                if whose == EVERYBODY:
                    rewritten |= _without_remarks(connection, institution_key, which)
                else:
                    notes = _notes_about(connection, institution_key, which, person_id or "")
                    rewritten |= _without_remarks(connection, institution_key, {n for n, _ in notes})
                    values += _delete_notes(connection, institution_key, notes)
                    gone = gone.where(people.c.person_id == person_id)
                values += connection.execute(gone.where(people.c.value.is_not(None))).rowcount
                connection.execute(gone)  # also the rows that are only search terms
                insert_once(connection, erased, institution_key=institution_key, voice_id=voice_id, person_id=whose)
            if numbers:
                calls = {voice_id: whose for voice_id, whose in found.items() if voice_id not in held}
                body = {"lines": sorted(numbers), "calls": calls, "reason": reason}
                self._append(chain, ERASED, {**body, **self._rewritten(institution_key, rewritten)})
            whole = {voice_id for voice_id, whose in found.items() if whose == EVERYBODY and voice_id not in held}
            return ErasureResult(frozenset(found) - held, values, frozenset(held), frozenset(whole), frozenset(wrong))

    def spellings_left(self, institution_key: str, person_id: str) -> set[str]:
        """Return the ids that differ from a member's only in capitals, and that were not erased in calls that name them.

        They may be the same member's or not, so an erasure of the one leaves the other alone.
        """
        with self.database.reading() as connection:
            gone = erased_of(connection, institution_key)
            return {
                other
                for voice_id, body in _naming(connection, institution_key, person_id)
                for other in spellings_in(body, person_id) - {person_id}
                if gone.isdisjoint({(voice_id, EVERYBODY), (voice_id, mentions_of(other))})
            }

    def hold(self, institution_key: str, kind: str, value: str, reason: str, *, release: bool = False) -> bool:
        """Hold a call, a person's calls or an institution's (``value`` empty), or end the hold; return if that is new."""
        with self.database.writing(within_s=WITHIN_S) as connection:
            chain = ChainEnd.lock(connection, institution_key)
            known = holds_of(connection, institution_key)
            if release:  # the owner can have taken it out of the table
                base_n = _base(connection, institution_key).n
                known |= Statements(connection, institution_key, base_n).standing.holds
            same = next((each for of, each in known if of == kind and is_same_id(each, value)), None)
            if (same is not None) is not release:
                return False
            row = {"institution_key": institution_key, "kind": kind, "value": value if same is None else same}
            connection.execute(delete(holds).filter_by(**row) if release else insert(holds).values(row))
            body = {"kind": kind, "value": row["value"], "reason": reason}
            self._append(chain, RELEASED if release else HELD, body)
            return True

    def holds(self, institution_key: str) -> Holds:
        """Return what is under a legal hold at an institution, by the table or by the chain."""
        with self.database.reading() as connection:
            base_n = _base(connection, institution_key).n
            return Statements(connection, institution_key, base_n).every_hold()

    def covered(self, institution_key: str, kind: str, value: str) -> int:
        """Return how many archived calls a hold covers. It also covers those that are archived later."""
        of_this = Holds.of([(kind, value)])
        with self.database.reading() as connection:
            asked = select(lines.c.voice_id).where(lines.c.institution_key == institution_key, lines.c.kind == CALL)
            every = list(connection.execute(asked.distinct()).scalars())
            return len(_under(connection, institution_key, every, of_this))

    def retire(self, institution_key: str, before_ms: int) -> int:
        """Remove calls written before an instant; return how many lines lost their body.

        Lines before the first call under a hold are deleted. Lines after it keep their place in the chain and lose only
        their body. The first line that is wrong ends it, and ``faults`` name that. If nobody knows what is under a legal
        hold, nothing is removed.
        """
        removed, last = 0, None
        while True:
            with self.database.writing(within_s=WITHIN_S) as connection:
                count, last = self._retire_some(connection, institution_key, before_ms, last)
            removed += count
            if last is None:
                return removed

    def institutions(self) -> list[str]:
        with self.database.reading() as connection:
            return list(connection.execute(select(chains.c.institution_key)).scalars())

    def _retire_some(
        self, connection: Connection, key: str, before_ms: int, after: Head | None
    ) -> tuple[int, Head | None]:
        """Retire some lines after one, or from the beginning; return how many, and the last one if there may be more."""
        chain = ChainEnd.lock(connection, key)
        began = _base(connection, key)
        statements = Statements(connection, key, began.n)
        if self._is_unknown(statements) or self._begins_wrong(statements, began):
            return 0, None
        old = OldLines(connection, self._test(statements), before_ms, began if after is None else after)
        old.read(self.at_once, chain.head)
        self.faults += [] if old.fault is None else [old.fault]
        rows = old.lines
        if not rows:
            return 0, None
        held = _under(connection, key, [row.voice_id for row in rows if row.voice_id], statements.every_hold())
        base = began
        for row in rows:
            if row.n != base.n + 1 or row.voice_id in held:
                break
            base = Head(row.n, row.hash)
        gone = [row.n for row in rows if row.voice_id not in held and row.kind in {CALL, AUDIT} and row.is_whole]
        if gone or base != began:
            still = statements.up_to(base.n)
            _remove(connection, key, base, gone)
            self._append(
                chain,
                RETIRED,
                {
                    "base_n": base.n,
                    "base_hash": base.hash,
                    "until_n": rows[-1].n,
                    "before_ms": before_ms,
                    "emptied": ranges_of(n for n in gone if n > base.n),
                    "holds": sorted(still.holds),
                    "erased": {v: sorted(still.erased[v]) for v in _with_lines(connection, key, still.erased)},
                },
            )
            _forget_erasures(connection, key, base.n)
        return len(gone), None if old.are_all else old.last

    def _is_unknown(self, statements: Statements) -> bool:
        """Note the lines about the archive that somebody has changed. If there is one, nobody knows what is held."""
        unknown = statements.unknown()
        self.faults += [ChainFault(statements.institution_key, n, UNKNOWN) for n in unknown]
        return bool(unknown)

    def _begins_wrong(self, statements: Statements, base: Head) -> bool:
        """Note if the chain begins at another line than the last retirement said."""
        what = statements.base_fault(*base)
        self.faults += [] if what is None else [ChainFault(statements.institution_key, base.n + 1, what)]
        return what is not None

    def _test(self, statements: Statements) -> LineTest:
        return LineTest(statements, [key for key in (self.key, *self.former_keys) if key is not None])

    def _wrong(self, connection: Connection, statements: Statements, voice_ids: Sequence[str]) -> set[str]:
        """Return the calls of which somebody has changed a line: an erasure would sign it. The other lines are locked."""
        test, wrong = self._test(statements), set[str]()
        asked = select(*columns_of(lines, StoredLine)).where(lines.c.institution_key == statements.institution_key)
        for voice_id in voice_ids:
            here = asked.where(lines.c.voice_id == voice_id).order_by(lines.c.n).with_for_update()
            rows = connection.execute(here).all()
            faults = filter(None, (_fault(connection, row, test) for row in rows))
            if (fault := next(faults, None)) is not None:
                self.faults.append(fault)
                wrong.add(voice_id)
        return wrong

    def _append(self, chain: ChainEnd, kind: str, what: dict[str, Any]) -> None:
        body = msgspec.json.encode({**what, "operator": self.operator}, order="sorted").decode()
        now_ms = time.time_ns() // 1_000_000 if self.now_ms is None else self.now_ms
        self.written.append(chain.append(kind, body, now_ms, commitments={}))
        chain.write()

    def _rewritten(self, institution_key: str, bodies: dict[str, tuple[str, str]]) -> dict[str, dict[str, str]]:
        """Return the hashes of changed bodies for the line about an erasure, and their signatures if there is a key."""
        if not bodies:
            return {}
        about = {"rewritten": {n: after for n, (_, after) in bodies.items()}}
        if self.key is not None:
            key = self.key
            about["signatures"] = {
                n: body_signature(institution_key, int(n), *hashes, key) for n, hashes in bodies.items()
            }
        return about


def _remove(connection: Connection, key: str, base: Head, gone: Sequence[int]) -> None:
    """Empty lines, and delete those up to the chain's new beginning. Nothing could prove an empty line's search data."""
    for table in (people, terms):
        connection.execute(delete(table).where(table.c.institution_key == key, table.c.n.in_(gone)))
    ours, searched = lines.c.institution_key == key, dict.fromkeys(set(FOUND_BY) - {"voice_id"})
    connection.execute(update(lines).where(ours, lines.c.n.in_(gone)).values(body=None, **searched))
    connection.execute(delete(lines).where(ours, lines.c.n <= base.n))
    connection.execute(update(chains).where(chains.c.institution_key == key).values(base_n=base.n, base_hash=base.hash))


def _with_lines(connection: Connection, key: str, voice_ids: Iterable[str]) -> list[str]:
    """Return those of some calls of which the chain has a line, in order."""
    found: set[str] = set()
    for some in in_parts(sorted(voice_ids)):
        which = (lines.c.institution_key == key) & lines.c.voice_id.in_(some)
        found.update(connection.execute(select(lines.c.voice_id).where(which)).scalars())
    return sorted(found)


def _forget_erasures(connection: Connection, key: str, base_n: int) -> None:
    """Delete what the table of erasures says of calls that no line mentions any more."""
    erased_now = Statements(connection, key, base_n).standing.erased
    stored = {voice_id for voice_id, _ in erased_of(connection, key)}
    for voice_id in stored - erased_now.keys() - set(_with_lines(connection, key, stored)):
        connection.execute(delete(erased).filter_by(institution_key=key, voice_id=voice_id))


def _without_remarks(connection: Connection, key: str, which: Collection[int]) -> dict[str, tuple[str, str]]:
    """Take the notes out of bodies that releases up to 0.2.0 wrote. Return each body's hash in the line, and the new one."""
    ours = (lines.c.institution_key == key) & lines.c.n.in_(which)
    changed: dict[str, tuple[str, str]] = {}
    asked = select(lines.c.n, lines.c.body, lines.c.body_hash).where(ours, is_whole())
    for n, body, before in connection.execute(asked).all():
        bare = without_remarks(body)
        if bare is not None:
            here = (lines.c.institution_key == key) & (lines.c.n == n)
            connection.execute(update(lines).where(here).values(body=bare))
            changed[str(n)] = (before, sha256(bare.encode()))
    return changed


def _calls_of(
    connection: Connection, key: str, person_id: str | None, phone: str | None, country: str
) -> dict[str, str]:
    """Return the calls that concern a person, and whose values to erase in each; '' for all, if the call was theirs."""
    found: dict[str, str] = {}
    if phone is not None:
        least = number_term(digits_of(phone)[-COMPARED:])
        asked = select(lines.c.voice_id, people.c.value).join(people, is_same_line(people, lines))
        asked = asked.where(lines.c.institution_key == key, people.c.term >= least, people.c.term < end_of(least))
        rows = connection.execute(asked)
        found.update((voice_id, EVERYBODY) for voice_id, value in rows if same_number(value, phone, country))
    if person_id is not None:
        for voice_id, body in _naming(connection, key, person_id):
            if person_id not in spellings_in(body, person_id):
                continue
            is_theirs = _is_of(body, person_id)
            if is_theirs or voice_id not in found:
                found[voice_id] = EVERYBODY if is_theirs else mentions_of(person_id)
    return found


def _is_of(body: str, person_id: str) -> bool:
    """Tell whether a call ended as a member's. False if it cannot be read: the test of its line finds that."""
    try:
        return bool(msgspec.json.decode(body)["call"].get("person_id") == person_id)
    except UNREADABLE:
        return False


def _naming(connection: Connection, key: str, person_id: str) -> Iterator[tuple[str, str]]:
    """Yield the call and the body of each line that names a member, in any capitals; "" if somebody took the body out."""
    asked = select(lines.c.voice_id, lines.c.body).join(terms, is_same_line(terms, lines))
    whose = (terms.c.kind == "person") & (terms.c.value == person_id.casefold())
    for voice_id, body in connection.execute(asked.where(terms.c.institution_key == key, whose)):
        yield voice_id, body or ""


def _notes_about(connection: Connection, key: str, which: Collection[int], person_id: str) -> list[tuple[int, str]]:
    """Return the lines and paths of the notes that name a member."""
    asked = select(lines.c.n, lines.c.body).where(lines.c.institution_key == key, lines.c.n.in_(which), is_whole())
    return [(n, one.path) for n, body in connection.execute(asked) for one in paths_of(body) if one.named == person_id]


def _delete_notes(connection: Connection, key: str, notes: list[tuple[int, str]]) -> int:
    here = (people.c.institution_key == key) & (people.c.n == bindparam("line")) & (people.c.path == bindparam("at"))
    rows = [{"line": n, "at": path} for n, path in notes]
    return connection.execute(delete(people).where(here), rows).rowcount if rows else 0


def _base(connection: Connection, key: str) -> Head:
    """Return after which line a chain begins. One that does not exist yet begins with its first line."""
    row = connection.execute(select(chains.c.base_n, chains.c.base_hash).filter_by(institution_key=key)).first()
    return Head(0, GENESIS) if row is None else Head(*row)


def _fault(connection: Connection, row: Row[Any], test: LineTest) -> ChainFault | None:
    """Return what is wrong with a line, by itself."""
    try:
        line = record_of(row, StoredLine)
    except UNREADABLE:
        return ChainFault(row.institution_key, row.n, UNKNOWN_VALUES)
    what = next(test.faults(line, rows_of(connection, line.institution_key, [line.n])[line.n]), None)
    return None if what is None else ChainFault(line.institution_key, line.n, what)


def _under(connection: Connection, key: str, voice_ids: Sequence[str], of: Holds) -> set[str]:
    """Return which of some calls holds cover, by any of their ids, or by a member whom any version names.

    Ids are compared here and not in SQL, which knows neither the spellings of a GUID nor, in SQLite, letters beyond ASCII.
    """
    if of == Holds():
        return set()
    members = is_same_line(terms, lines) & (terms.c.kind == "person")
    asked = select(lines.c.voice_id, lines.c.alternate_id, terms.c.value).outerjoin(terms, members)
    asked = asked.where(lines.c.institution_key == key).distinct()
    found: set[str] = set()
    for some in in_parts(voice_ids):
        rows = connection.execute(asked.where(lines.c.voice_id.in_(some)))
        found.update(row.voice_id for row in rows if of.cover(row[:2], row[2:]))
    return found

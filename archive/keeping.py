"""Removes data from the archive: a person's values, and calls older than the retention. A legal hold prevents both.

Every removal, hold and release is recorded as a line of the chain.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, exists, insert, select, update

from archive.database import Database
from archive.lines import (
    AUDIT,
    CALL,
    ERASED,
    HELD,
    RELEASED,
    RETIRED,
    end_of,
    number_term,
    sha256,
    without_remarks,
)
from archive.tables import chains, erased, holds, is_same_line, is_whole, lines, people, terms
from archive.writing import ChainEnd, insert_once
from calls.call_query import COMPARED, digits_of, same_number
from calls.store.erasing import Holds
from reseller.endpoints import is_same_id

WITHIN_S: Final = 3600.0
AT_ONCE: Final = 5000
"""Lines that retention handles in one transaction. Workers wait for the chain meanwhile."""

EVERYBODY: Final = ""


@dataclass(frozen=True, slots=True)
class Erasure:
    """How many calls were found, how many values were erased, which calls are under a hold, and which were erased whole."""

    calls: int
    values: int
    held: frozenset[str]
    whole: frozenset[str]


@dataclass(slots=True)
class Keeper:
    """Erases, holds, releases and retires. It needs a role that may delete."""

    database: Database
    operator: str
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def erase(
        self,
        institution_key: str,
        *,
        reason: str,
        person_id: str | None = None,
        phone: str | None = None,
        country: str = "US",
    ) -> Erasure:
        """Erase a person's data: all personal values of their own calls, and their name in other calls.

        Args:
            institution_key: At which institution.
            person_id: The member, by the institution's id.
            phone: Instead of a member: the number, complete, whose calls are erased.
            country: Where stored numbers without a country code belong.
            reason: Written into the chain; it must not name a person.
        """
        with self.database.writing(within_s=WITHIN_S) as connection:
            chain = ChainEnd.lock(connection, institution_key)
            found = _calls_of(connection, institution_key, person_id, phone, country)
            held = _held(connection, institution_key, sorted(found))
            numbers: list[int] = []
            rewritten: dict[str, str] = {}
            values = 0
            for voice_id, whose in found.items():
                if voice_id in held:
                    continue
                ours = select(lines.c.n).where(lines.c.institution_key == institution_key, lines.c.voice_id == voice_id)
                which = list(connection.execute(ours).scalars())
                numbers += which
                gone = delete(people).where(people.c.institution_key == institution_key, people.c.n.in_(which))
                if whose != EVERYBODY:
                    gone = gone.where(people.c.person_id == whose)
                else:
                    rewritten |= _without_remarks(connection, institution_key, which)
                values += connection.execute(gone.where(people.c.value.is_not(None))).rowcount
                connection.execute(gone)  # also the rows that are only search terms
                insert_once(connection, erased, institution_key=institution_key, voice_id=voice_id, person_id=whose)
            if numbers:
                told = {"lines": sorted(numbers), "reason": reason}
                self._append(chain, ERASED, {**told, "rewritten": rewritten} if rewritten else told)
            whole = {voice_id for voice_id, whose in found.items() if whose == EVERYBODY and voice_id not in held}
            return Erasure(len(found) - len(held), values, frozenset(held), frozenset(whole))

    def hold(self, institution_key: str, kind: str, value: str, reason: str, *, release: bool = False) -> bool:
        """Hold a call, a person's calls or an institution's (``value`` empty), or end the hold; return if that is new."""
        with self.database.writing(within_s=WITHIN_S) as connection:
            chain = ChainEnd.lock(connection, institution_key)
            known = connection.execute(select(holds.c.value).filter_by(institution_key=institution_key, kind=kind))
            same = next((each for each in known.scalars() if is_same_id(each, value)), None)
            if (same is not None) is not release:
                return False
            row = {"institution_key": institution_key, "kind": kind, "value": value if same is None else same}
            connection.execute(delete(holds).filter_by(**row) if release else insert(holds).values(row))
            told = {"kind": kind, "value": row["value"], "reason": reason}
            self._append(chain, RELEASED if release else HELD, told)
            return True

    def holds(self, institution_key: str) -> Holds:
        """Return what is under a legal hold at an institution."""
        with self.database.reading() as connection:
            return _holds(connection, institution_key)

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
        their body.
        """
        removed, begin = 0, 0
        while True:
            with self.database.writing(within_s=WITHIN_S) as connection:
                count, begin = self._retire_some(connection, institution_key, before_ms, begin)
            removed += count
            if not begin:
                return removed

    def institutions(self) -> list[str]:
        """Return the institutions that have a chain."""
        with self.database.reading() as connection:
            return list(connection.execute(select(chains.c.institution_key)).scalars())

    def _retire_some(self, connection: Connection, key: str, before_ms: int, begin: int) -> tuple[int, int]:
        """Retire some lines after ``begin``; return how many, and the number of the last one (0: there are no more)."""
        chain = ChainEnd.lock(connection, key)
        ours, whole = lines.c.institution_key == key, lines.c.body.is_not(None).label("whole")
        asked = select(lines.c.n, lines.c.at_ms, lines.c.kind, lines.c.voice_id, lines.c.hash, whole)
        some = connection.execute(asked.where(ours, lines.c.n > begin).order_by(lines.c.n).limit(AT_ONCE))
        rows = list(takewhile(lambda row: row.at_ms < before_ms, some))
        if not rows:
            return 0, 0
        held = _held(connection, key, [row.voice_id for row in rows if row.voice_id])
        base = connection.execute(select(chains).where(chains.c.institution_key == key)).one()
        base_n, base_hash = base.base_n, base.base_hash
        for row in rows:
            if row.n != base_n + 1 or row.voice_id in held:
                break
            base_n, base_hash = row.n, row.hash
        gone = [row.n for row in rows if row.voice_id not in held and row.kind in {CALL, AUDIT} and row.whole]
        for table in (people, terms):
            connection.execute(delete(table).where(table.c.institution_key == key, table.c.n.in_(gone)))
        connection.execute(update(lines).where(ours, lines.c.n.in_(gone)).values(body=None))
        connection.execute(delete(lines).where(ours, lines.c.n <= base_n))
        kept = exists().where(lines.c.institution_key == key, lines.c.voice_id == erased.c.voice_id)
        connection.execute(delete(erased).where(erased.c.institution_key == key, ~kept))
        if gone or base_n != base.base_n:
            connection.execute(
                update(chains).where(chains.c.institution_key == key).values(base_n=base_n, base_hash=base_hash)
            )
            told = {"base_n": base_n, "base_hash": base_hash, "until_n": rows[-1].n, "before_ms": before_ms}
            self._append(chain, RETIRED, told)
        return len(gone), rows[-1].n if len(rows) == AT_ONCE else 0

    def _append(self, chain: ChainEnd, kind: str, what: dict[str, Any]) -> None:
        body = msgspec.json.encode({**what, "operator": self.operator}, order="sorted").decode()
        chain.append(kind, body, self.now_ms, commitments={})
        chain.write()


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a chain about the archive itself: what was done, when, by whom, and to what or why, in words."""

    at: datetime
    institution_key: str
    kind: str
    operator: str
    words: str


def changes_of(database: Database, institution_key: str | None = None) -> list[Change]:
    """Return what was erased, held, released and retired, oldest first."""
    asked = select(lines.c.at_ms, lines.c.institution_key, lines.c.kind, lines.c.body).order_by(lines.c.at_ms)
    asked = asked.where(lines.c.kind.in_((ERASED, HELD, RELEASED, RETIRED)), lines.c.body.is_not(None))
    if institution_key is not None:
        asked = asked.where(lines.c.institution_key == institution_key)
    found = []
    with database.reading() as connection:
        for at_ms, key, kind, body in connection.execute(asked):
            told = msgspec.json.decode(body)
            at = datetime.fromtimestamp(at_ms / 1000, UTC)
            found.append(Change(at, key, kind, told.get("operator", ""), _words_of(kind, told)))
    return found


def _words_of(kind: str, told: dict[str, Any]) -> str:
    match kind:
        case "erased":
            return f"{len(told['lines'])} lines, {told['reason']}"
        case "retired":
            before = datetime.fromtimestamp(told["before_ms"] / 1000, UTC)
            return f"lines written before {before:%Y-%m-%d}, up to line {told['until_n']}"
        case _:
            return f"{told['kind']} {told['value']}, {told['reason']}".replace("  ", " ")


def _without_remarks(connection: Connection, key: str, which: Sequence[int]) -> dict[str, str]:
    """Take the notes out of bodies that releases up to 0.2.0 wrote. Return the hash of each new body by line."""
    ours = (lines.c.institution_key == key) & lines.c.n.in_(which)
    changed: dict[str, str] = {}
    for n, body in connection.execute(select(lines.c.n, lines.c.body).where(ours, is_whole())).all():
        bare = without_remarks(body)
        if bare is not None:
            here = (lines.c.institution_key == key) & (lines.c.n == n)
            connection.execute(update(lines).where(here).values(body=bare))
            changed[str(n)] = sha256(bare.encode())
    return changed


def _calls_of(
    connection: Connection, key: str, person_id: str | None, phone: str | None, country: str
) -> dict[str, str]:
    """Return the calls of a person, each with the id of whose values to erase; '' for all, if the call was theirs."""
    found: dict[str, str] = {}
    if phone is not None:
        least = number_term(digits_of(phone)[-COMPARED:])
        asked = select(lines.c.voice_id, people.c.value).join(people, is_same_line(people, lines))
        asked = asked.where(lines.c.institution_key == key, people.c.term >= least, people.c.term < end_of(least))
        rows = connection.execute(asked)
        found.update((voice_id, EVERYBODY) for voice_id, value in rows if same_number(value, phone, country))
    if person_id is not None:
        told = select(lines.c.voice_id, lines.c.body).join(terms, is_same_line(terms, lines))
        told = told.where(
            terms.c.institution_key == key, terms.c.kind == "person", terms.c.value == person_id.casefold()
        )
        for voice_id, body in connection.execute(told):
            is_theirs = body is not None and msgspec.json.decode(body)["call"].get("person_id") == person_id
            if is_theirs or voice_id not in found:
                found[voice_id] = EVERYBODY if is_theirs else person_id
    return found


def _held(connection: Connection, key: str, voice_ids: Sequence[str]) -> set[str]:
    """Return which of some calls are under a hold."""
    return _under(connection, key, voice_ids, _holds(connection, key))


def _holds(connection: Connection, key: str) -> Holds:
    asked = select(holds.c.kind, holds.c.value).where(holds.c.institution_key == key)
    return Holds.of((kind, value) for kind, value in connection.execute(asked))


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
    for start in range(0, len(voice_ids), 500):
        rows = connection.execute(asked.where(lines.c.voice_id.in_(voice_ids[start : start + 500])))
        found.update(row.voice_id for row in rows if of.cover(row[:2], row[2:]))
    return found

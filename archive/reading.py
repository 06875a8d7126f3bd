"""Reads the archive: searches for calls, pages through them, and streams all of them.

A query has several criteria, each an index range. One of them leads: the smallest, or, if all have many lines, one whose
index is in the order of time. Its lines are read in pages, the newest first, and tested for the other criteria. After
many lines the search ends, and the answer is marked as partial.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Subquery,
    Table,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    true,
    tuple_,
    union,
)

from archive.database import Database
from archive.lines import AUDIT, AUDIT_LOG, CALL, call_of, end_of, joined, ms_of, number_term
from archive.tables import chains, has_later_version, lines, people, terms
from calls.call_query import AROUND, FEWEST_DIGITS, FEWEST_LETTERS, CallQuery, digits_of
from calls.record import Call, Reason
from calls.trail import Entry, Recorded, recorded
from reseller.endpoints import is_institution_key

FEW: Final = 15_000
"""A criterion with fewer lines may lead although they have to be sorted."""

PAGE: Final = 150
"""Lines of the first page. Each further page is twice as long, up to `LONGEST`."""

LONGEST: Final = 1200

MANY: Final = 5000
"""Lines that are tested for one answer."""

READ: Final = 300
"""Calls that are parsed for one answer. What has no index is tested there."""

STREAMED: Final = 1000
DAY_MS: Final = 86_400_000
_MS: Final = timedelta(milliseconds=1)
_MOST: Final = 2**63
"""What the database's numbers are smaller than."""


class Place(NamedTuple):
    """The position of a line in lists, which begin with the newest call."""

    began_ms: int
    institution_key: str
    n: int

    def __str__(self) -> str:
        return f"{self.began_ms}:{self.n}:{self.institution_key}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Parse what ``str`` returned.

        Raises:
            ValueError: It is something else.
        """
        began_ms, n, key = text.split(":", 2)
        place = cls(int(began_ms), key, int(n))
        if not is_institution_key(key) or max(abs(place.began_ms), abs(place.n)) >= _MOST:
            raise ValueError(text)
        return place


@dataclass(frozen=True, slots=True)
class FoundLines:
    """Found calls, newest first. ``is_partial``: not all lines were tested. ``next``: the position of the next page."""

    calls: tuple[Call, ...]
    is_partial: bool = False
    next: str | None = None


class Part(NamedTuple):
    """A condition on the rows of a table, with an index. ``is_sorted``: the index has these rows in the order of time."""

    table: Table
    condition: ColumnElement[bool]
    is_sorted: bool = False


Criterion = list[Part]
"""A line fulfils a criterion if it fulfils one of its parts."""


class ArchiveReader:
    """Reads the archive. Use it in any thread: each method uses a separate transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._object = func.json_group_object if database.is_sqlite else func.json_object_agg

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def find(
        self,
        query: CallQuery,
        *,
        matches: Callable[[Call], bool],
        most: int,
        institutions: Sequence[str] | None = None,
        names: Mapping[str, str | None] | None = None,
        after: str = "",
    ) -> FoundLines:
        """Return the newest calls that match a query, each in its last version.

        Args:
            query: The query.
            matches: The final test of each call.
            most: Calls at most.
            institutions: Only calls of these.
            names: Display names of institutions by key, because a word may be one of them.
            after: Only calls after this position, as ``next`` of a result.

        Raises:
            ValueError: The position is not ours.
            archive.errors.ArchiveAway: The database failed.
        """
        found: list[Call] = []
        read, last = 0, Place.parse(after) if after else None
        with self._database.reading() as connection:
            search = _search(connection, query, institutions, names or {})
            for looked, (began_ms, key, n, body, personal) in enumerate(
                _walk(connection, search, last, self._personal)
            ):
                if looked == MANY or read == READ:
                    return FoundLines(tuple(found), is_partial=True, next=str(last))
                if body is not None:
                    read += 1
                    call = call_of(body, personal or {})
                    if matches(call):
                        if len(found) == most:
                            return FoundLines(tuple(found), next=str(last))
                        found.append(call)
                last = Place(began_ms, key, n)
        return FoundLines(tuple(found))

    def call(self, any_id: str, institution_key: str | None = None) -> tuple[Call, tuple[Entry, ...]] | None:
        """Return a call's last version by its voice id or alternate id; None if several institutions have one."""
        is_it = or_(lines.c.voice_id == any_id, lines.c.alternate_id == any_id)
        asked = select(lines.c.institution_key, lines.c.voice_id, lines.c.n, lines.c.body, self._personal(lines))
        asked = _only(asked.where(is_it, _is_whole()), institution_key)
        with self._database.reading() as connection:
            rows = connection.execute(asked).all()
        if len({row.institution_key for row in rows}) != 1:
            return None
        last = max(rows, key=lambda row: (row.voice_id == any_id, row.n))
        return joined(last.body, last.personal or {})

    def audit(self, since_ms: int = 0) -> Iterator[str]:
        """Yield entries of the audit log since an instant as JSON, newest first, read in pages."""
        asked = select(lines.c.voice_id, lines.c.body).order_by(lines.c.voice_id.desc()).limit(STREAMED)
        asked = _only(asked, AUDIT_LOG).where(lines.c.kind == AUDIT, lines.c.voice_id >= str(since_ms))
        before = "~"
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(asked.where(lines.c.voice_id < before)).all()
            if not rows:
                return
            yield from (row.body for row in rows)
            before = rows[-1].voice_id

    def count(self, *, since_ms: int = 0, institution_key: str | None = None) -> int:
        """Return how many lines a stream reads."""
        with self._database.reading(within_s=600.0) as connection:
            asked = _only(select(func.count()).where(lines.c.began_ms >= since_ms), institution_key)
            return int(connection.execute(asked).scalar_one())

    def stream(
        self,
        *,
        since_ms: int = 0,
        institution_key: str | None = None,
        progress: Callable[[int], object] = lambda _: None,
    ) -> Iterator[Recorded]:
        """Yield every call that began since an instant, oldest first, each in its last version.

        Calls are read in pages, each in a separate transaction, without the personal values of the record.

        Args:
            since_ms: Calls that began then or later.
            institution_key: Only this institution's.
            progress: Called with the number of lines read since the last call.
        """
        order = [lines.c.began_ms, lines.c.institution_key, lines.c.n]
        if institution_key is not None:
            order.remove(lines.c.institution_key)  # the index of an institution is in this order
        has_text = lines.c.commitments.contains('"trail/')
        personal = case((has_text, self._personal(lines, "trail/"))).label("personal")
        is_newer = has_later_version().label("is_newer")
        asked = select(lines.c.began_ms, lines.c.institution_key, lines.c.n, lines.c.body, is_newer, personal)
        asked = _only(asked.where(_is_whole()), institution_key).order_by(*order).limit(STREAMED)
        more = lines.c.began_ms >= since_ms
        while True:
            with self._database.reading(within_s=60.0) as connection:
                rows = connection.execute(asked.where(more)).all()
            if not rows:
                return
            for row in rows:
                if not row.is_newer:
                    yield recorded(*joined(row.body, row.personal or {}))
            progress(len(rows))
            more = tuple_(*order) > tuple_(*(literal(getattr(rows[-1], column.name)) for column in order))

    def _personal(self, line: FromClause, beginning: str = "") -> ColumnElement[Any]:
        """Return the personal values of a line that were not erased, by path, only of paths with this prefix."""
        asked = select(self._object(people.c.path, people.c.value, type_=JSON)).where(_same(people, line))
        asked = asked.where(people.c.value.is_not(None), people.c.path.startswith(beginning))
        return asked.correlate(line).scalar_subquery().label("personal")


def _only(asked: Select[Any], institution_key: str | None) -> Select[Any]:
    return asked if institution_key is None else asked.where(lines.c.institution_key == institution_key)


def _is_whole() -> ColumnElement[bool]:
    return (lines.c.kind == CALL) & lines.c.body.is_not(None)


class _Search(NamedTuple):
    """A query: the criterion that leads, the others, and what limits the lines of any table to times and institutions."""

    lead: Criterion
    others: list[Criterion]
    limits: Callable[[Table], Iterator[ColumnElement[bool]]]


def _search(
    connection: Connection, query: CallQuery, institutions: Sequence[str] | None, names: Mapping[str, str | None]
) -> _Search:
    keys = institutions
    if query.institution_key is not None:
        keys = [query.institution_key] if keys is None or query.institution_key in keys else []
    known = connection.execute(select(chains.c.institution_key)).scalars()
    typed = list(_criteria(query, {key: f"{key} {names.get(key) or ''}".casefold() for key in known}))
    here = lines.c.institution_key == keys[0] if keys is not None and len(keys) == 1 else true()
    criteria = [*typed, [Part(lines, here, is_sorted=True)]]
    counted = iter(connection.execute(select(*(_size(part) for each in criteria for part in each))).one())
    sizes = [[(next(counted), part.is_sorted) for part in each] for each in criteria]
    can_lead = [n for n, parts in enumerate(sizes) if all(size < FEW or is_sorted for size, is_sorted in parts)]
    lead = min(can_lead, key=lambda n: min(FEW, sum(size for size, _ in sizes[n])))
    others = [each for n, each in enumerate(typed) if n != lead]
    return _Search(criteria[lead], others, partial(_limits, query, keys))


def _size(part: Part) -> ColumnElement[int]:
    """Return the number of a part's lines, counted up to a limit."""
    few = select(literal(1)).select_from(part.table).where(part.condition).limit(FEW).subquery()
    return select(func.count()).select_from(few).scalar_subquery()


def _limits(query: CallQuery, keys: Sequence[str] | None, table: Table) -> Iterator[ColumnElement[bool]]:
    began = table.c.began_ms
    yield began.is_not(None)
    if keys is not None:
        yield table.c.institution_key == keys[0] if len(keys) == 1 else table.c.institution_key.in_(keys)
    if query.since is not None:
        yield began >= ms_of(query.since)
    if query.around is not None:
        yield began.between(ms_of(query.around - AROUND), ms_of(query.around + AROUND))
    ahead = query.zone.utcoffset(None) if query.at is not None and query.zone is not None else None
    if query.at is not None and ahead is not None:  # a zone with summer time has no fixed distance from UTC
        early = timedelta(days=-1, hours=query.at.hour, minutes=query.at.minute) - ahead - AROUND
        yield (began - early // _MS) % DAY_MS <= 2 * AROUND // _MS


def _walk(
    connection: Connection, search: _Search, before: Place | None, values: Callable[[FromClause], ColumnElement[Any]]
) -> Iterator[Row[Any]]:
    """Yield the lines of the leading criterion, newest first. Those that do not match have neither body nor values."""
    length = PAGE
    while True:
        parts = [
            _newest(part.table, [part.condition, *search.limits(part.table)], before, length) for part in search.lead
        ]
        leading = parts[0] if len(parts) == 1 else _newest(union(*map(select, parts)).subquery(), [], None, length)
        fits = [or_(*(_fits(part, leading) for part in each)) for each in search.others]
        body = select(lines.c.body).where(_same(lines, leading), _is_whole(), ~has_later_version()).scalar_subquery()
        # The limit keeps PostgreSQL from reading bodies before it has tested the lines.
        tested = select(leading, case((and_(true(), *fits), body)).label("body")).limit(length).subquery()
        personal = case((tested.c.body.is_not(None), values(tested))).label("personal")
        rows = connection.execute(select(tested, personal).order_by(*(each.desc() for each in tested.c[:3]))).all()
        yield from rows
        if len(rows) < length:
            return
        before = Place(rows[-1].began_ms, rows[-1].institution_key, rows[-1].n)
        length = min(2 * length, LONGEST)


def _newest(
    table: FromClause, conditions: Sequence[ColumnElement[bool]], before: Place | None, length: int
) -> Subquery:
    """Return the places of the newest lines of a table, each once."""
    place = [table.c.began_ms, table.c.institution_key, table.c.n]
    asked = select(*place).where(*conditions).distinct()
    if before is not None:
        asked = asked.where(place[0] <= before.began_ms, tuple_(*place) < tuple_(*map(literal, before)))
    return asked.order_by(*(each.desc() for each in place)).limit(length).subquery()


def _fits(part: Part, line: FromClause) -> ColumnElement[bool]:
    # Not EXISTS: for that PostgreSQL may read all rows of the part into a hash table.
    found = select(literal(1)).select_from(part.table).where(_same(part.table, line), part.condition).limit(1)
    return found.scalar_subquery().is_not(None)


def _same(one: FromClause, other: FromClause) -> ColumnElement[bool]:
    return and_(one.c.institution_key == other.c.institution_key, one.c.n == other.c.n)


def _criteria(query: CallQuery, called: Mapping[str, str]) -> Iterator[Criterion]:
    """Yield the criteria of a query that have an index. ``matches`` tests the others."""
    for number in query.numbers:
        digits = digits_of(number)
        if len(digits) >= FEWEST_DIGITS:
            yield [Part(people, _begins(people.c.term, number_term(digits[-_COMPARED:]))), *_ids(number)]
    for kind, value in query.terms:
        yield [_term(kind, value)]
    if query.id_prefix:
        yield _ids(query.id_prefix)
    for word in query.words:
        if len(word) < FEWEST_LETTERS:
            continue
        named = (
            Part(lines, lines.c.institution_key == key, is_sorted=True) for key, name in called.items() if word in name
        )
        states = (_term("outcome", str(reason)) for reason in Reason if word in reason)
        people_called = Part(people, _begins(people.c.term, f"w{word}"))
        persons = Part(terms, and_(terms.c.kind == "person", _begins(terms.c.value, word)))
        yield [people_called, *named, *states, persons, *_ids(word)]


_COMPARED: Final = 10
"""Number of last digits that are compared, because the country code may be missing."""


def _term(kind: str, value: str) -> Part:
    return Part(terms, and_(terms.c.kind == kind, terms.c.value == value), is_sorted=True)


def _ids(beginning: str) -> Criterion:
    return [Part(lines, _begins(column, beginning)) for column in (lines.c.voice_id, lines.c.alternate_id)]


def _begins(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    return and_(column >= text, column < end_of(text))

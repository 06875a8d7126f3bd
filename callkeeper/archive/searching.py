"""Finds the lines of the archive that match a query.

A query has several criteria, each an index range. One of them leads: the smallest, or, if all have many lines, one whose
index is in the order of time. Its lines are read in pages, the newest first, and tested for the other criteria.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    FromClause,
    Row,
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
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from callkeeper.archive.lines import end_of, ms_of, number_term
from callkeeper.archive.tables import chains, has_later_version, is_same_line, is_whole, lines, people, terms
from callkeeper.calls.call_query import AROUND, FEWEST_DIGITS, FEWEST_LETTERS, CallQuery
from callkeeper.calls.phone_number import COMPARED, digits_of
from callkeeper.calls.record import Reason
from callkeeper.service.endpoints import is_institution_key


class Sizes(NamedTuple):
    """How much is read for one answer.

    Attributes:
        few: A criterion with fewer lines may lead although they have to be sorted.
        counted: Lines of a criterion that are counted. The one with the fewest leads.
        page: Lines of the first page. Each further page is twice as long, up to ``longest``.
        many: Lines that are tested.
        read: Calls that are parsed. What has no index is tested there.
    """

    few: int = 15_000
    counted: int = 30_000
    page: int = 150
    longest: int = 1200
    many: int = 2500
    read: int = 300


SHIPPED: Final = Sizes()


_DAY_MS: Final = 86_400_000
_MS: Final = timedelta(milliseconds=1)
_MOST: Final = 2**63
"""The database's integers are smaller than this."""


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


class Part(NamedTuple):
    """A condition on the rows of a table, with an index. ``is_sorted``: the index has these rows in the order of time."""

    table: Table
    condition: ColumnElement[bool]
    is_sorted: bool = False


Criterion = list[Part]
"""A line fulfils a criterion if it fulfils one of its parts."""


class Search(NamedTuple):
    """A query: the criterion that leads, the others, and what limits the lines of any table to times and institutions."""

    lead: Criterion
    others: list[Criterion]
    limits: Callable[[Table], Iterator[ColumnElement[bool]]]


def search_of(
    connection: Connection,
    query: CallQuery,
    institutions: Sequence[str] | None,
    names: Mapping[str, str | None],
    read: Sizes,
) -> Search:
    """Choose the criterion that leads."""
    keys = institutions
    if query.institution_key is not None:
        keys = [query.institution_key] if keys is None or query.institution_key in keys else []
    known = connection.execute(select(chains.c.institution_key)).scalars()
    typed = list(_criteria(query, {key: f"{key} {names.get(key) or ''}".casefold() for key in known}))
    here = lines.c.institution_key == keys[0] if keys is not None and len(keys) == 1 else true()
    criteria = [*typed, [Part(lines, here, is_sorted=True)]]
    counted = iter(connection.execute(select(*(_size(part, read.counted) for each in criteria for part in each))).one())
    sizes = [[(next(counted), part.is_sorted) for part in each] for each in criteria]
    can_lead = [n for n, parts in enumerate(sizes) if all(size < read.few or is_sorted for size, is_sorted in parts)]
    lead = min(can_lead, key=lambda n: min(read.counted, sum(size for size, _ in sizes[n])))
    others = [each for n, each in enumerate(typed) if n != lead]
    return Search(criteria[lead], others, partial(_limits, query, keys))


def _size(part: Part, most: int) -> ColumnElement[int]:
    """Return the number of a part's lines, counted up to a limit."""
    some = select(literal(1)).select_from(part.table).where(part.condition).limit(most).subquery()
    return select(func.count()).select_from(some).scalar_subquery()


def _limits(query: CallQuery, keys: Sequence[str] | None, table: Table) -> Iterator[ColumnElement[bool]]:
    began = table.c.began_ms
    yield began.is_not(None)
    if keys is not None:
        yield table.c.institution_key == keys[0] if len(keys) == 1 else table.c.institution_key.in_(keys)
    if query.since is not None:
        yield began >= ms_of(query.since)
    if query.until is not None:
        yield began < ms_of(query.until)
    if query.around is not None:
        yield began.between(ms_of(query.around - AROUND), ms_of(query.around + AROUND))
    ahead = query.zone.utcoffset(None) if query.at is not None and query.zone is not None else None
    if query.at is not None and ahead is not None:  # a zone with summer time has no fixed distance from UTC
        early = timedelta(days=-1, hours=query.at.hour, minutes=query.at.minute) - ahead - AROUND
        yield (began - early // _MS) % _DAY_MS <= 2 * AROUND // _MS


def walk(connection: Connection, search: Search, before: Place | None, sizes: Sizes) -> Iterator[Row[Any]]:
    """Yield the lines of the leading criterion, newest first. Those that do not match have neither body nor values."""
    length = sizes.page
    while True:
        parts = [
            _newest(part.table, [part.condition, *search.limits(part.table)], before, length) for part in search.lead
        ]
        leading = parts[0] if len(parts) == 1 else _newest(union(*map(select, parts)).subquery(), [], None, length)
        fits = [or_(*(_fits(part, leading) for part in each)) for each in search.others]
        body = (
            select(lines.c.body).where(is_same_line(lines, leading), is_whole(), ~has_later_version()).scalar_subquery()
        )
        # The limit keeps PostgreSQL from reading bodies before it has tested the lines.
        tested = select(leading, case((and_(true(), *fits), body)).label("body")).limit(length).subquery()
        personal = case((tested.c.body.is_not(None), personal_values(tested))).label("personal")
        rows = connection.execute(select(tested, personal).order_by(*(each.desc() for each in tested.c[:3]))).all()
        yield from rows
        if len(rows) < length:
            return
        before = Place(rows[-1].began_ms, rows[-1].institution_key, rows[-1].n)
        length = min(2 * length, sizes.longest)


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
    found = select(literal(1)).select_from(part.table).where(is_same_line(part.table, line), part.condition).limit(1)
    return found.scalar_subquery().is_not(None)


def _criteria(query: CallQuery, called: Mapping[str, str]) -> Iterator[Criterion]:
    """Yield the criteria of a query that have an index. ``matches`` tests the others."""
    for number in query.numbers:
        digits = digits_of(number)
        if len(digits) >= FEWEST_DIGITS:
            yield [Part(people, _begins(people.c.term, number_term(digits[-COMPARED:]))), *_ids(number)]
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


def _term(kind: str, value: str) -> Part:
    return Part(terms, and_(terms.c.kind == kind, terms.c.value == value), is_sorted=True)


def _ids(beginning: str) -> Criterion:
    return [Part(lines, _begins(column, beginning)) for column in (lines.c.voice_id, lines.c.alternate_id)]


def _begins(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    return and_(column >= text, column < end_of(text))


def personal_values(line: FromClause, beginning: str = "") -> ColumnElement[Any]:
    """Return the personal values of a line that were not erased, by path, only of paths with this prefix."""
    asked = select(_JsonObject(people.c.path, people.c.value)).where(is_same_line(people, line))
    asked = asked.where(people.c.value.is_not(None), people.c.path.startswith(beginning))
    return asked.correlate(line).scalar_subquery().label("personal")


class _JsonObject(FunctionElement[Any]):
    """The keys and values of all rows as one JSON object."""

    type = JSON()
    inherit_cache = True


@compiles(_JsonObject)
def _compile(element: _JsonObject, compiler: SQLCompiler, **how: Any) -> str:
    name = "json_group_object" if compiler.dialect.name == "sqlite" else "json_object_agg"
    return f"{name}({compiler.process(element.clauses, **how)})"

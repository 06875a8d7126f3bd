"""Reads the archive: searches for calls, pages through them, and streams all of them.

Every criterion is an index range. The one with the fewest lines leads, and the others are tested for each of its lines.
If all have many lines, only the newest lines of the leading one are tested, and the answer is marked as partial.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    and_,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
    union_all,
)

from archive.database import Database
from archive.lines import AUDIT, AUDIT_LOG, CALL, after, joined, ms_of, number_term
from archive.tables import chains, has_later_version, lines, people, terms
from calls.call_query import AROUND, FEWEST_DIGITS, FEWEST_LETTERS, CallQuery, digits_of
from calls.record import Call, Reason
from calls.trail import Entry, Recorded, recorded

FEW: Final = 2000
"""If the leading criterion has fewer lines, all of them are tested."""

MANY: Final = 10_000
"""Lines that are tested if every criterion has many."""

READ: Final = 1000
"""Lines whose body is read for one answer. Words without an index are tested there."""

CHUNK: Final = 100
STREAMED: Final = 1000


class Place(NamedTuple):
    """The position of a line in lists, which begin with the newest call."""

    began_ms: int
    institution_key: str
    n: int


@dataclass(frozen=True, slots=True)
class FoundLines:
    """Found calls, newest first. ``is_partial``: not all lines were tested. ``next``: where the next page begins."""

    calls: tuple[Call, ...]
    is_cut: bool = False
    is_partial: bool = False
    next: Place | None = None


Part = tuple[Table, ColumnElement[bool]]
"""A table and a condition on its rows. A criterion is one or several of these."""


class ArchiveReader:
    """Reads the archive. Use it in any thread: each method uses a separate transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        before: Place | None = None,
    ) -> FoundLines:
        """Return the newest calls that match a query, each in its last version.

        Args:
            query: The query.
            matches: The final test of each call.
            most: Calls at most.
            institutions: Only calls of these.
            names: Display names of institutions by key, because a word may be one of them.
            before: Only calls after this position.

        Raises:
            archive.errors.ArchiveAway: The database failed.
        """
        with self._database.reading() as connection:
            places, is_partial = _places(connection, query, institutions, names or {}, before)
            read = places[:READ]
            found: list[Call] = []
            last: Place | None = None
            for start in range(0, len(read), CHUNK):
                for place, call in _last_versions(connection, read[start : start + CHUNK]):
                    if not matches(call):
                        continue
                    if len(found) == most:
                        return FoundLines(tuple(found), is_cut=True, is_partial=is_partial, next=last)
                    found.append(call)
                    last = place
            is_partial = is_partial or len(places) > READ
            return FoundLines(tuple(found), is_partial=is_partial, next=read[-1] if is_partial and read else None)

    def call(self, institution_key: str, any_id: str) -> tuple[Call, tuple[Entry, ...]] | None:
        """Return a call's last version by its voice id or alternate id."""
        with self._database.reading() as connection:
            for column in (lines.c.voice_id, lines.c.alternate_id):
                asked = select(lines.c.n, lines.c.body).where(column == any_id, _is_whole())
                asked = _only(asked, institution_key).order_by(lines.c.n.desc()).limit(1)
                row = connection.execute(asked).first()
                if row is not None:
                    key = institution_key, row.n
                    return joined(row.body, _values(connection, [key]).get(key, {}))
        return None

    def institutions_of(self, any_id: str) -> list[str]:
        """Return the institutions that have a call of this id."""
        with self._database.reading() as connection:
            is_it = or_(lines.c.voice_id == any_id, lines.c.alternate_id == any_id)
            asked = select(lines.c.institution_key).where(is_it, _is_whole()).distinct()
            return sorted(connection.execute(asked).scalars())

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
        asked = select(lines.c.began_ms, lines.c.institution_key, lines.c.n, lines.c.body).where(_is_whole())
        asked = _only(asked.order_by(*order).limit(STREAMED), institution_key)
        is_newer, has_text = (
            has_later_version().label("is_newer"),
            lines.c.commitments.contains('"trail/').label("has_text"),
        )
        asked = asked.add_columns(is_newer, has_text)
        more = lines.c.began_ms >= since_ms
        while True:
            with self._database.reading(within_s=60.0) as connection:
                rows = connection.execute(asked.where(more)).all()
                texts = _values(connection, [(row.institution_key, row.n) for row in rows if row.has_text], "trail/")
            if not rows:
                return
            for row in rows:
                if not row.is_newer:
                    yield recorded(*joined(row.body, texts.get((row.institution_key, row.n), {})))
            progress(len(rows))
            more = tuple_(*order) > tuple_(*(literal(getattr(rows[-1], column.name)) for column in order))


def _only(asked: Select[Any], institution_key: str | None) -> Select[Any]:
    return asked if institution_key is None else asked.where(lines.c.institution_key == institution_key)


def _is_whole() -> ColumnElement[bool]:
    return (lines.c.kind == CALL) & lines.c.body.is_not(None)


def _places(
    connection: Connection,
    query: CallQuery,
    institutions: Sequence[str] | None,
    names: Mapping[str, str | None],
    before: Place | None,
) -> tuple[list[Place], bool]:
    """Return the lines that may match, newest first, and whether there may be more."""
    keys = connection.execute(select(chains.c.institution_key)).scalars()
    criteria = list(_criteria(query, {key: f"{key} {names.get(key) or ''}".casefold() for key in keys}))
    sizes = [_size(connection, criterion) for criterion in criteria]
    order = sorted(range(len(criteria)), key=lambda n: sizes[n])
    lead: Sequence[Part] = criteria[order[0]] if order else [(lines, _is_whole())]
    is_few = bool(order) and sizes[order[0]] < FEW
    most = None if is_few else MANY if len(order) > 1 or query.at is not None else READ + 1
    parts = [_part(part, institutions, query, before, most) for part in lead]
    leading = (parts[0] if len(parts) == 1 else union_all(*parts)).cte("leading")
    if connection.dialect.name == "postgresql":
        leading = leading.prefix_with("MATERIALIZED")
    asked = select(leading.c.began_ms, leading.c.institution_key, leading.c.n).distinct()
    for n in order[1:]:
        asked = asked.where(or_(*(_also(part, leading) for part in criteria[n])))
    rows = connection.execute(
        asked.order_by(leading.c.began_ms.desc(), leading.c.institution_key.desc(), leading.c.n.desc()).limit(most)
    ).all()
    looked_at = connection.execute(select(func.count()).select_from(leading)).scalar_one() if most else 0
    return [Place(*row) for row in rows], bool(most and looked_at >= most)


def _part(
    part: Part, institutions: Sequence[str] | None, query: CallQuery, before: Place | None, most: int | None
) -> Select[Any]:
    table, condition = part
    began = table.c.began_ms
    asked = select(began.label("began_ms"), table.c.institution_key, table.c.n).where(condition, began.is_not(None))
    keys = institutions if query.institution_key is None else [query.institution_key]
    if keys is not None:
        asked = asked.where(table.c.institution_key.in_(keys) if len(keys) != 1 else table.c.institution_key == keys[0])
    if query.since is not None:
        asked = asked.where(began >= ms_of(query.since))
    if query.around is not None:
        asked = asked.where(began.between(ms_of(query.around - AROUND), ms_of(query.around + AROUND)))
    if before is not None:
        asked = asked.where(tuple_(began, table.c.institution_key, table.c.n) < tuple_(*map(literal, before)))
    if most is None:
        return asked
    newest = asked.order_by(began.desc(), table.c.institution_key.desc(), table.c.n.desc()).limit(most)
    return select(newest.subquery())


def _also(part: Part, leading: FromClause) -> ColumnElement[bool]:
    table, condition = part
    return exists().where(table.c.institution_key == leading.c.institution_key, table.c.n == leading.c.n, condition)


def _size(connection: Connection, criterion: Sequence[Part]) -> int:
    """Return the number of a criterion's lines, counted up to a limit."""
    size = 0
    for part in criterion:
        table, condition = part
        few = select(literal(1)).select_from(table).where(condition).limit(FEW).subquery()
        size += connection.execute(select(func.count()).select_from(few)).scalar_one()
    return size


def _criteria(query: CallQuery, called: Mapping[str, str]) -> Iterator[list[Part]]:
    """Yield the criteria of a query that have an index. ``matches`` tests the others."""
    for number in query.numbers:
        digits = digits_of(number)
        if len(digits) >= FEWEST_DIGITS:
            ends = _begins(people.c.term, number_term(digits[-_COMPARED:]))
            yield [(people, ends), *_ids(number)]
    for kind, value in query.terms:
        yield [(terms, and_(terms.c.kind == kind, terms.c.value == value))]
    if query.id_prefix:
        yield _ids(query.id_prefix)
    for word in query.words:
        if len(word) < FEWEST_LETTERS:
            continue
        states = [str(reason) for reason in Reason if word in reason]
        found: list[Part] = [(people, _begins(people.c.term, f"w{word}"))]
        found += [(lines, lines.c.institution_key == key) for key, name in called.items() if word in name]
        found += [(terms, and_(terms.c.kind == "outcome", terms.c.value == state)) for state in states]
        yield [*found, (terms, and_(terms.c.kind == "person", _begins(terms.c.value, word))), *_ids(word)]


_COMPARED: Final = 10
"""Number of last digits that are compared, because the country code may be missing."""


def _ids(beginning: str) -> list[Part]:
    return [(lines, _begins(column, beginning)) for column in (lines.c.voice_id, lines.c.alternate_id)]


def _begins(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    return and_(column >= text, column < after(text))


def _last_versions(connection: Connection, places: Sequence[Place]) -> Iterator[tuple[Place, Call]]:
    """Yield calls with their personal values, without lines that have a later version."""
    keys = [(place.institution_key, place.n) for place in places]
    values = _values(connection, keys)
    asked = select(lines.c.institution_key, lines.c.n, lines.c.body).where(
        tuple_(lines.c.institution_key, lines.c.n).in_(keys), _is_whole(), ~has_later_version()
    )
    bodies = {(key, n): body for key, n, body in connection.execute(asked)}
    for place, key in zip(places, keys, strict=True):
        if key in bodies:
            yield place, joined(bodies[key], values.get(key, {}))[0]


def _values(
    connection: Connection, keys: Sequence[tuple[str, int]], beginning: str = ""
) -> dict[tuple[str, int], dict[str, str]]:
    """Return the personal values of lines by path, only of paths with this prefix."""
    if not keys:
        return {}
    asked = select(people.c.institution_key, people.c.n, people.c.path, people.c.value).where(
        tuple_(people.c.institution_key, people.c.n).in_(keys), people.c.value.is_not(None)
    )
    if beginning:
        asked = asked.where(people.c.path.startswith(beginning))
    found: dict[tuple[str, int], dict[str, str]] = {}
    for key, n, path, value in connection.execute(asked):
        found.setdefault((key, n), {})[path] = value
    return found

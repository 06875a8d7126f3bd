"""Reads the archive: searches for calls, pages through them, and streams all of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, Select, case, func, literal, or_, select, tuple_

from callkeeper.archive.contents import UNREADABLE
from callkeeper.archive.database import Database
from callkeeper.archive.errors import LineUnreadable
from callkeeper.archive.lines import AUDIT, AUDIT_LOG, CALL, RULES, call_of, clean, joined, rules_of, sha256
from callkeeper.archive.searching import SHIPPED, Place, Sizes, personal_values, search_of, walk
from callkeeper.archive.tables import has_later_version, is_same_line, is_whole, lines, terms
from callkeeper.calls.call_query import CallQuery
from callkeeper.calls.record import Call
from callkeeper.calls.trail import Entry, Recorded, recorded
from callkeeper.service.endpoints import canonical_id

STREAMED: Final = 1000
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class FoundLines:
    """Found calls, newest first. ``is_partial``: not all lines were tested. ``next``: the position of the next page.

    ``tested``: how many calls were parsed and tested.
    """

    calls: tuple[Call, ...]
    is_partial: bool = False
    next: str | None = None
    tested: int = 0


class ArchiveReader:
    """Reads the archive. Use it in any thread: each method uses a separate transaction."""

    def __init__(self, database: Database, sizes: Sizes = SHIPPED) -> None:
        self._database = database
        self._sizes = sizes

    def close(self) -> None:
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

        ``matches`` is the final test of each call. ``names``: display names of institutions by key, because a word may be
        one of them. ``after``: the position that a result calls ``next``.

        Raises:
            ValueError: The position is not ours.
            callkeeper.archive.errors.ArchiveAway: The database failed.
        """
        found: list[Call] = []
        read, last = 0, Place.parse(after) if after else None
        with self._database.reading() as connection:
            search = search_of(connection, query, institutions, names or {}, self._sizes)
            for walked, (began_ms, key, n, body, personal) in enumerate(walk(connection, search, last, self._sizes)):
                if walked == self._sizes.many or read == self._sizes.read:
                    return FoundLines(tuple(found), is_partial=True, next=str(last), tested=read)
                if body is not None:
                    read += 1
                    call = _readable(body, personal or {})
                    if call is not None and matches(call):
                        if len(found) == most:
                            return FoundLines(tuple(found), next=str(last), tested=read)
                        found.append(call)
                last = Place(began_ms, key, n)
        return FoundLines(tuple(found), tested=read)

    def call(self, institution_key: str | None, any_id: str) -> tuple[Call, tuple[Entry, ...]] | None:
        """Return a call's last version by its voice id or alternate id; None unless exactly one institution has it.

        Raises:
            callkeeper.archive.errors.LineUnreadable: Somebody has changed it.
            callkeeper.archive.errors.ArchiveAway: The database failed.
        """
        spellings = {any_id, canonical_id(any_id)}
        is_it = or_(lines.c.voice_id.in_(spellings), lines.c.alternate_id.in_(spellings))
        asked = select(
            lines.c.institution_key,
            lines.c.voice_id,
            lines.c.n,
            lines.c.body,
            personal_values(lines),
        )
        asked = _only(asked.where(is_it, is_whole()), institution_key)
        with self._database.reading() as connection:
            rows = connection.execute(asked).all()
        if len({row.institution_key for row in rows}) != 1:
            return None
        last = max(rows, key=lambda row: (row.voice_id in spellings, row.n))
        return _whole(last)

    def audit(self, since_ms: int = 0) -> Iterator[str]:
        """Yield entries of the audit log since an instant as JSON, newest first, read in pages."""
        asked = select(lines.c.voice_id, lines.c.body).order_by(lines.c.voice_id.desc()).limit(STREAMED)
        asked = _only(asked, AUDIT_LOG).where(lines.c.kind == AUDIT, lines.c.body.is_not(None))
        asked = asked.where(lines.c.voice_id >= str(since_ms))
        before = "~"
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(asked.where(lines.c.voice_id < before)).all()
            if not rows:
                return
            yield from (row.body for row in rows)
            before = rows[-1].voice_id

    def rules_text(self, digest: str) -> bytes | None:
        """Return the text of rules; None if the archive does not have it.

        Raises:
            callkeeper.archive.errors.LineUnreadable: Somebody has changed it.
            callkeeper.archive.errors.ArchiveAway: The database failed.
        """
        is_it = lines.c.voice_id == clean(digest)
        asked = _only(select(lines.c.n, lines.c.body, lines.c.body_hash), RULES).where(is_it)
        with self._database.reading() as connection:
            row = connection.execute(asked.order_by(lines.c.n).limit(1)).first()
        if row is None or row.body is None:
            return None
        try:
            if sha256(row.body.encode()) == row.body_hash:
                return rules_of(row.body).encode()
        except UNREADABLE:
            pass
        raise LineUnreadable(f"line {row.n} of {RULES} was changed")

    def count(self, *, since_ms: int = 0, institution_key: str | None = None) -> int:
        with self._database.reading(within_s=600.0) as connection:
            asked = _only(select(func.count()).where(lines.c.began_ms >= since_ms), institution_key)
            return int(connection.execute(asked).scalar_one())

    def by_day(self, begin_ms: int, end_ms: int, institutions: Sequence[str] | None) -> Iterator[tuple[int, str, int]]:
        """Count archived calls in their last versions: day from 1970, outcome (empty: calls that began then), number.

        Raises:
            callkeeper.archive.errors.ArchiveAway: The database failed, or took longer than five seconds.
        """
        is_one = [lines.c.kind == CALL, lines.c.began_ms >= begin_ms, lines.c.began_ms < end_ms, ~has_later_version()]
        if institutions is not None:
            is_one.append(lines.c.institution_key.in_(institutions))
        began, settled = (column // _DAY_MS for column in (lines.c.began_ms, lines.c.settled_ms))
        is_outcome = is_same_line(lines, terms) & (terms.c.kind == "outcome")
        with self._database.reading(within_s=5.0) as connection:
            for day, n in connection.execute(select(began, func.count()).where(*is_one).group_by(began)):
                yield day, "", n
            results = select(settled, terms.c.value, func.count()).join(terms, is_outcome)
            for day, outcome, n in connection.execute(results.where(*is_one).group_by(settled, terms.c.value)):
                if day is not None:
                    yield day, outcome, n

    def stream(
        self,
        *,
        since_ms: int = 0,
        institution_key: str | None = None,
        progress: Callable[[int], object] = lambda _: None,
        unreadable: Callable[[LineUnreadable], object] = lambda _: None,
    ) -> Iterator[Recorded]:
        """Yield every call that began since an instant, oldest first, each in its last version.

        Calls are read in pages, each in a separate transaction, without the personal values of the record.
        ``progress`` is called with the number of lines read since the last call, ``unreadable`` with each line that is
        left out because somebody has changed it.
        """
        order = [lines.c.began_ms, lines.c.institution_key, lines.c.n]
        if institution_key is not None:
            order.remove(lines.c.institution_key)  # the index of an institution is in this order
        has_text = lines.c.commitments.contains('"trail/')
        personal = case((has_text, personal_values(lines, "trail/"))).label("personal")
        is_newer = has_later_version().label("is_newer")
        asked = select(lines.c.began_ms, lines.c.institution_key, lines.c.n, lines.c.body, is_newer, personal)
        asked = _only(asked.where(is_whole()), institution_key).order_by(*order).limit(STREAMED)
        more = lines.c.began_ms >= since_ms
        while True:
            with self._database.reading(within_s=60.0) as connection:
                rows = connection.execute(asked.where(more)).all()
            if not rows:
                return
            for row in rows:
                if row.is_newer:
                    continue
                try:
                    call = recorded(*_whole(row))
                except LineUnreadable as error:
                    unreadable(error)
                else:
                    yield call
            progress(len(rows))
            more = tuple_(*order) > tuple_(*(literal(getattr(rows[-1], column.name)) for column in order))


def _whole(row: Row[Any]) -> tuple[Call, tuple[Entry, ...]]:
    """Rebuild a line's call.

    Raises:
        LineUnreadable: Somebody has changed it.
    """
    try:
        return joined(row.body, row.personal or {})
    except UNREADABLE:
        raise LineUnreadable(f"line {row.n} of {row.institution_key} cannot be read") from None


def _readable(body: str, personal: Mapping[str, str]) -> Call | None:
    """Return a line's call for a list; None if it cannot be read. One changed line must not hide all others."""
    try:
        return call_of(body, personal)
    except UNREADABLE:
        return None


def _only(asked: Select[Any], institution_key: str | None) -> Select[Any]:
    return asked if institution_key is None else asked.where(lines.c.institution_key == institution_key)

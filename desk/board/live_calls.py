"""The live calls as this process knows them: read all at once, then kept up to date by the feed."""

from collections.abc import Iterator

from calls.keys import CallId
from calls.queries import Queries
from calls.record import Call
from calls.rules.book import RuleBook
from desk.board.rows import Row, row_of
from desk.feed import Change


class LiveCalls:
    """Lines of the live calls, by member."""

    def __init__(self, queries: Queries, book: RuleBook) -> None:
        self._queries = queries
        self._book = book
        self._rows: dict[str, Row] = {}

    async def load(self) -> None:
        """Read every live call; a line that is the same stays the same object."""
        rows: dict[str, Row] = {}
        async for call in self._queries.live():
            member, row = _member(call), row_of(call, self._book)
            known = self._rows.get(member)
            rows[member] = known if known == row else row
        self._rows = rows

    def heard(self, change: Change) -> None:
        """Take a change in."""
        call = change.call
        if call is None or call.is_settled:
            self._rows.pop(change.call_id.member, None)
        if call is None:
            return
        if call.is_settled:
            self._rows.pop(_member(call), None)
        else:
            self._rows[_member(call)] = row_of(call, self._book)
        if _member(call) != change.call_id.member:  # a tombstone: the two records are one now
            self._rows.pop(change.call_id.member, None)

    def __iter__(self) -> Iterator[Row]:
        """Yield the lines in no order."""
        return iter(self._rows.values())

    def __len__(self) -> int:
        """Count the live calls."""
        return len(self._rows)


def _member(call: Call) -> str:
    return CallId(call.institution_key, call.voice_id).member

"""Tests what a chain says about the archive itself: against the tables, the retention, the audit log and logged heads.

The database's owner can write such lines with right hashes, but neither into Redis's audit log nor into the log of heads.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from sqlalchemy import Connection

from callkeeper.archive.audited import ChangingCommands
from callkeeper.archive.contents import StoredLine
from callkeeper.archive.lines import AUDIT, CALL
from callkeeper.archive.statements import DONE, Retired, Statement, Statements, erased_of, holds_of
from callkeeper.archive.writing import Head

Found = Iterator[tuple[int, str]]
"""Numbers of lines, and what is wrong with each."""

CLOCKS_MS: Final = 3_600_000
"""How far the clocks of those who write may be apart."""

_DAY_MS: Final = 86_400_000


class HeadTimes:
    """When the heads of a chain were read that were logged: later lines were written later."""

    def __init__(self, times: Iterable[tuple[int, int]]) -> None:
        """Take numbers of lines, and instants in ms."""
        known = sorted(times)
        self._numbers = [n for n, _ in known]
        self._latest = list(accumulate((ms for _, ms in known), max))

    def before(self, n: int) -> int:
        """Return when the last head below a line was read; 0: unknown."""
        place = bisect_left(self._numbers, n)
        return self._latest[place - 1] if place else 0


@dataclass(slots=True)
class AboutTheArchive:
    """The tests of one chain's lines about the archive. ``keep_ms``: how long an institution's lines are kept."""

    connection: Connection
    key: str
    base: Head
    statements: Statements
    audited: ChangingCommands
    head_times: HeadTimes
    keep_ms: Callable[[str], int | None] | None
    _emptied: list[tuple[int, int, Retired]] = field(default_factory=list)
    _earlier: list[Retired] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Sort the retirements by the lines that they emptied. Release 0.2.0 did not name these lines."""
        for each in self.statements.retirements:
            if each.content.emptied is None:
                self._earlier.append(each)
            else:
                self._emptied += [(first, last, each) for first, last in each.content.emptied]
        self._emptied.sort(key=lambda each: each[0])

    def faults(self) -> Found:
        """Yield what is wrong with the lines, and with the tables that follow from them."""
        kinds = {each.n: each.kind for each in self.statements.all}
        for each in self.statements.all:
            yield from self._statement(each)
        for n, done in self.audited.expected.get(self.key, {}).items():
            if n > self.base.n and DONE.get(kinds.get(n, "")) != done:
                yield n, f"is missing or changed: the audit log has the command `archive {done[:20]}` of this line"
        for retired in self.statements.retirements:
            yield from self._retirement(retired)
        yield from self._base()
        yield from self._erasures()
        yield from self._holds()

    def emptied(self, line: StoredLine) -> str | None:
        """Return what is wrong with a line's body being there or not, if no retirement explains it."""
        by = self._emptied_by(line)
        if line.body is not None:
            is_named = any(each.content.emptied is not None for each in by)
            return "changed: retention emptied it, and its body is there again" if is_named else None
        if line.kind not in {CALL, AUDIT} or not by:
            return "its body is missing, and retention did not record its removal"
        if all(each.then.holds_call(line.voice_id) for each in by):
            return "its body is missing, although it was under a legal hold"
        return None

    def _emptied_by(self, line: StoredLine) -> list[Retired]:
        """Return the retirements that can have emptied a line."""
        place = bisect_right(self._emptied, line.n, key=lambda each: each[0])
        _, last, named = self._emptied[place - 1] if place else (0, 0, None)
        by = [named] if named is not None and line.n <= last else self._earlier
        return [each for each in by if each.n > line.n <= each.content.until_n and line.at_ms < each.content.before_ms]

    def _statement(self, each: Statement) -> Found:
        if each.content is None:
            yield each.n, "changed: what it says about the archive cannot be read"
        if self.audited.lacks(each.kind, self.key, each.n, each.at_ms):
            yield each.n, f"the audit log has no command `archive {DONE[each.kind]}` of that time for it"

    def _retirement(self, retired: Retired) -> Found:
        content = retired.content
        if content.base_n > content.until_n or content.until_n >= retired.n:
            yield retired.n, "retention removed lines that were not there yet"
        if content.before_ms < self.head_times.before(content.base_n) - CLOCKS_MS:
            yield retired.n, "retention removed lines that are younger than it says, by the heads that were logged"
        if self.keep_ms is None:
            return
        keep_ms = self.keep_ms(self.key)
        if keep_ms is None:
            yield retired.n, "retention removed lines, but CALLKEEPER_ARCHIVE_KEEP keeps them for ever"
        elif retired.at_ms - content.before_ms < keep_ms - _DAY_MS:
            yield retired.n, "retention removed lines that are younger than CALLKEEPER_ARCHIVE_KEEP"

    def _base(self) -> Found:
        if self.statements.base is None:
            if self.base.n:
                yield self.base.n + 1, "earlier lines are missing, and retention did not record their removal"
        elif self.statements.base != self.base:
            yield self.base.n + 1, "the chain begins at another line than retention recorded last"

    def _erasures(self) -> Found:
        stored, standing = erased_of(self.connection, self.key), self.statements.standing
        stated = {(voice_id, whose) for voice_id, persons in standing.erased.items() for whose in persons}
        for voice_id, _ in sorted(stated - stored):
            yield 0, f"the erasure of {voice_id} was taken back, so that its values can be stored again"
        for voice_id, _ in sorted(stored - stated, key=repr) if standing.is_complete else ():
            yield 0, f"an erasure of {voice_id} is recorded that no line of the chain names"

    def _holds(self) -> Found:
        stored = holds_of(self.connection, self.key)
        standing = self.statements.standing
        for kind, _ in sorted(standing.holds - stored):
            yield 0, f"a legal hold of a {kind} was removed, and its release was not recorded"
        for kind, _ in sorted(stored - standing.holds, key=repr) if standing.is_complete else ():
            yield 0, f"a legal hold of a {kind} is in force that no line of the chain began"

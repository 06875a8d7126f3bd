"""Tests what a chain says about the archive itself: against the tables, the retention, logged heads and the audit log."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from sqlalchemy import Connection

from callkeeper.archive.statements import DONE, UNKNOWN, Retired, Statement, Statements, erased_of, holds_of
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


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands that changed the archive, by the audit log in Redis, where the database's owner cannot write.

    ``done`` has institution, number of the line and what was done of each; the log is complete from ``since_ms`` on.
    """

    done: set[tuple[str, int, str]]
    since_ms: int


@dataclass(slots=True)
class AboutTheArchive:
    """The tests of one chain's lines about the archive. ``keep_ms``: how long an institution's lines are kept."""

    connection: Connection
    key: str
    base: Head
    statements: Statements
    head_times: HeadTimes
    keep_ms: Callable[[str], int | None] | None
    commands: Commands | None

    def faults(self) -> Found:
        """Yield what is wrong with the lines, and with the tables that follow from them."""
        for each in self.statements.all:
            yield from self._statement(each)
        for retired in self.statements.retirements:
            yield from self._retirement(retired)
        yield from self._base()
        yield from self._erasures()
        yield from self._holds()

    def _statement(self, each: Statement) -> Found:
        if each.content is None:
            yield each.n, UNKNOWN
        known, done = self.commands, DONE[each.kind]
        if known and each.at_ms >= known.since_ms + CLOCKS_MS and (self.key, each.n, done) not in known.done:
            yield each.n, f"the audit log in Redis has no command `archive {done}` for it"

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
        if (what := self.statements.base_fault(*self.base)) is not None:
            yield self.base.n + 1, what

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

"""The oldest lines of a chain, tested as the verification does: retention removes no line that somebody has changed.

The database's owner can set the time of a young line back, or take a held call's body away, just before retention runs. The
line about the retirement would account for that, and the changed line would be gone.
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, Row, select

from callkeeper.archive.contents import CHANGED, UNKNOWN_VALUES, UNREADABLE, ChainFault, LineTest, Rows, rows_of
from callkeeper.archive.lines import StoredLine
from callkeeper.archive.tables import columns_of, lines, record_of
from callkeeper.archive.writing import Head

_CHUNK: Final = 500


class OldLine(NamedTuple):
    """What retention needs of a line. ``is_whole``: it has its body."""

    n: int
    hash: str
    kind: str
    voice_id: str | None
    is_whole: bool


@dataclass(slots=True)
class OldLines:
    """Lines of one chain that were written before an instant: right, and one after the other from a line on.

    ``fault``: what is wrong with the line after them; it ends them. ``are_all``: no further line is so old.
    """

    connection: Connection
    test: LineTest
    before_ms: int
    last: Head
    lines: list[OldLine] = field(default_factory=list)
    fault: ChainFault | None = None
    are_all: bool = True

    def read(self, most: int, head: Head) -> None:
        """Read lines after ``last``. The line after them has to follow; if there is none, they must end with the head."""
        with closing(self._rows(most + 1)) as some:
            is_over = any(self._ends_with(row, rows, most) for row, rows in some)
        if not is_over and self.last != head:
            self._fault(self.last.n + 1, f"missing: the chain ended at line {head.n}")

    def _ends_with(self, row: Row[Any], rows: Rows, most: int) -> bool:
        """Take one more line, unless it is the first that is wrong, young or too many."""
        try:
            line = record_of(row, StoredLine)
        except UNREADABLE:
            return self._fault(self.last.n + 1, UNKNOWN_VALUES)
        if (misplaced := line.place_fault(*self.last)) is not None:
            return self._fault(*misplaced)
        is_young = line.at_ms >= self.before_ms
        if is_young or len(self.lines) == most:
            self.are_all = is_young
            return line.right_hash == line.hash or self._fault(line.n, CHANGED)
        if (what := next(self.test.faults(line, rows), None)) is not None:
            return self._fault(line.n, what)
        self.lines.append(OldLine(line.n, line.hash, line.kind, line.voice_id, line.body is not None))
        self.last = Head(line.n, line.hash)
        return False

    def _fault(self, n: int, what: str) -> Literal[True]:
        self.fault, self.are_all = ChainFault(self.test.statements.institution_key, n, what), True
        return True

    def _rows(self, most: int) -> Generator[tuple[Row[Any], Rows]]:
        """Yield lines with the rows of other tables that belong to them."""
        key = self.test.statements.institution_key
        asked = select(*columns_of(lines, StoredLine)).where(lines.c.institution_key == key, lines.c.n > self.last.n)
        some = self.connection.execute(asked.order_by(lines.c.n).limit(most), execution_options={"yield_per": _CHUNK})
        with closing(some):
            for chunk in some.partitions():
                rows = rows_of(self.connection, key, [row.n for row in chunk if isinstance(row.n, int)])
                yield from ((row, rows.get(row.n, Rows((), ()))) for row in chunk)

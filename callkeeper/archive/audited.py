"""What the audit log's own chain knows of the others: the commands that changed them, and that their heads were logged.

Redis keeps the audit log where the database's owner cannot change it, and workers copy it. Entries that the owner appends
to the copy are not told from ours here: docs/archive.md says so.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from sqlalchemy import Connection, or_, select

from callkeeper.archive.lines import AUDIT_LOG
from callkeeper.archive.statements import DONE, Erasure, Retirement, Statement
from callkeeper.archive.tables import lines

NEAR_MS: Final = 15 * 60_000
"""How far a line may be from its entry in the audit log, and a new chain from the first log of its head."""

FILLED: Final = "fill"
"""The command after a restore. What earlier commands wrote may be lost since then."""

LINE: Final = "line="
"""What an entry about a changed archive begins with: the number of the line that says the same; 0 if there is none."""


class _Entry(msgspec.Struct, frozen=True):
    event: str
    institution: str = ""
    detail: str = ""
    asked: str = ""


class _Stored(msgspec.Struct, frozen=True):
    id: str
    entry: _Entry


@dataclass(slots=True)
class ChangingCommands:
    """The commands that changed the archive: what was done, by chain and line.

    ``expected`` are those since the last restore, and ``chains`` the chains that they or logged heads name. ``earlier`` are
    those of release 0.2.0, which knew no line: what, where and when in ms. Up to release 0.4.0 an erasure that found nothing
    left such an entry, too. ``with_heads`` are the chains whose heads were ever logged.
    """

    commands: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    expected: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    chains: set[str] = field(default_factory=set)
    earlier: list[tuple[str, str, int]] = field(default_factory=list)
    with_heads: set[str] = field(default_factory=set)
    begins_ms: int = 0
    ends_ms: int = 0

    @classmethod
    def of(cls, connection: Connection) -> "ChangingCommands":
        """Read the audit log's chain. Entries that cannot be read are left out: its own verification names them."""
        found = cls()
        for stored in _entries(connection):
            entry, n = stored.entry, stored.entry.asked.removeprefix(LINE)
            if entry.event == "archive_head":
                found.with_heads.add(entry.institution)
                found.chains.add(entry.institution)
            elif entry.event == "archive_changed" and n != entry.asked and n.isdecimal():
                found.commands[entry.institution][int(n)] = entry.detail
                if int(n):
                    found.expected[entry.institution][int(n)] = entry.detail
                    found.chains.add(entry.institution)
            elif entry.event == "archive_changed" and entry.detail == FILLED:
                found.expected.clear()
                found.chains.clear()
            elif entry.event == "archive_changed" and not found.commands:
                found.earlier.append((entry.detail, entry.institution, _ms_of_id(stored.id)))
        ours = (lines.c.institution_key == AUDIT_LOG) & (lines.c.kind == "audit") & lines.c.body.is_not(None)
        span = select(lines.c.voice_id).where(ours).limit(1)
        ends = (connection.execute(span.order_by(n)).scalar() for n in (lines.c.n, lines.c.n.desc()))
        found.begins_ms, found.ends_ms = map(_ms_of_id, ends)
        return found

    def covers(self, at_ms: int) -> bool:
        """Tell whether the audit log reaches from before an instant to after it."""
        return self.begins_ms <= at_ms - NEAR_MS and self.ends_ms >= at_ms + NEAR_MS

    def lacks(self, key: str, line: Statement) -> bool:
        """Tell whether the audit log covers the time of a line about the archive, and has no command for it.

        A command of release 0.2.0 accounts for one line of that release near its time, but a retirement for several.
        """
        done = DONE[line.kind]
        if not self.covers(line.at_ms) or self.commands[key].get(line.n) == done:
            return False
        for command in self.earlier if _may_be_earlier(line) else ():
            what, where, when = command
            if (what, where) == (done, key) and abs(when - line.at_ms) <= NEAR_MS:
                if not isinstance(line.content, Retirement):
                    self.earlier.remove(command)
                return False
        return True


def _may_be_earlier(line: Statement) -> bool:
    """Tell whether release 0.2.0 can have written a line: it named neither calls nor emptied lines."""
    match line.content:
        case Erasure(calls=calls):
            return calls is None
        case Retirement(emptied=emptied):
            return emptied is None
        case content:
            return content is not None


def _entries(connection: Connection) -> Iterator[_Stored]:
    named = (lines.c.body.contains(event, autoescape=True) for event in ("archive_changed", "archive_head"))
    asked = select(lines.c.body).where(lines.c.institution_key == AUDIT_LOG, lines.c.kind == "audit", or_(*named))
    for (body,) in connection.execute(asked.order_by(lines.c.n), execution_options={"yield_per": 500}):
        try:
            yield msgspec.json.decode(body, type=_Stored)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue


def _ms_of_id(entry_id: object) -> int:
    """Return when an entry was written to the audit log. Its id in Redis's stream begins with that."""
    digits = str(entry_id).partition("-")[0]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else 0

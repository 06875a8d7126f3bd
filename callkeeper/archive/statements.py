"""What the lines of a chain say about the archive itself: erasures, legal holds and retirements.

Tables can be changed by the database's owner, so the verification and the retention read these lines instead. A retirement
deletes lines; it repeats what the deleted ones said and still holds, and names the lines that it emptied.
"""

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, select

from callkeeper.archive.lines import ERASED, HELD, RELEASED, RETIRED, StoredLine, sha256
from callkeeper.archive.tables import columns_of, erased, holds, in_parts, lines, record_of
from callkeeper.calls.store.erasing import Holds
from callkeeper.service.secret import Secret

DONE: Final = {ERASED: "erase", HELD: "hold", RELEASED: "release", RETIRED: "retire"}
"""Kinds of lines about the archive, and what the audit log calls them."""

UNKNOWN: Final = "changed: what it says about the archive cannot be read"

EVERYBODY: Final = ""
"""In place of a person's id: all personal values of a call."""


def mentions_of(person_id: str) -> str:
    """Return what stands for a member's name and the notes about them in a call that is not theirs.

    Releases up to 0.4.0 wrote the id alone, and erased the name only. No id begins with a blank.
    """
    return f" {person_id}"


def is_erased(gone: Collection[str], person_id: str | None, named: str | None) -> bool:
    """Tell whether a value was erased.

    ``gone``: whose values of the call were erased. ``named``: whom the value names, if it is a note.
    """
    is_theirs = person_id is not None and not {person_id, mentions_of(person_id)}.isdisjoint(gone)
    return EVERYBODY in gone or is_theirs or (named is not None and mentions_of(named) in gone)


class Erasure(msgspec.Struct, frozen=True):
    """Personal values were erased.

    ``calls``: whose values, by voice id; None in lines of release 0.2.0. ``rewritten``: the hashes of bodies from which
    notes were taken out, by line, and ``signatures`` of them.
    """

    lines: list[int]
    calls: dict[str, str] | None = None
    rewritten: dict[str, str] = {}
    signatures: dict[str, str] = {}


class Hold(msgspec.Struct, frozen=True):
    """A legal hold began, or it ended."""

    kind: str
    value: str


class Retirement(msgspec.Struct, frozen=True):
    """Retention removed lines.

    ``emptied``: the first and the last number of each range of lines that lost their body. ``holds`` and ``erased``: what
    lines up to the new beginning of the chain said and still holds. None in lines of release 0.2.0.
    """

    base_n: int
    base_hash: str
    until_n: int
    before_ms: int
    emptied: list[tuple[int, int]] | None = None
    holds: list[tuple[str, str]] | None = None
    erased: dict[str, list[str]] | None = None


_TYPES: Final = {ERASED: Erasure, HELD: Hold, RELEASED: Hold, RETIRED: Retirement}


@dataclass(frozen=True, slots=True)
class Statement:
    """A line about the archive. ``content`` is None if it cannot be read, or if somebody has changed it."""

    n: int
    kind: str
    at_ms: int
    content: Erasure | Hold | Retirement | None


@dataclass(slots=True)
class InForce:
    """What is under a hold (kinds and values), and whose values of which call are erased.

    ``is_complete``: everything that ever began is known. Otherwise release 0.2.0 deleted lines without repeating them, and
    the tables were believed instead.
    """

    holds: set[tuple[str, str]] = field(default_factory=set)
    erased: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    is_complete: bool = True

    def holds_call(self, voice_id: str | None) -> bool:
        """Tell whether a call is held by its id, or with its institution. Holds of persons are not looked at."""
        return ("call", voice_id) in self.holds or any(kind == "institution" for kind, _ in self.holds)


@dataclass(frozen=True, slots=True)
class Retired:
    """A retirement, the number of its line, and what was under a hold then."""

    n: int
    at_ms: int
    content: Retirement
    then: InForce


class Statements:
    """The lines about the archive of one chain, in their order."""

    def __init__(self, connection: Connection, institution_key: str, base_n: int) -> None:
        """Read them. ``base_n`` is where the chain begins."""
        self._connection = connection
        self.institution_key = institution_key
        self._base_n = base_n
        ours = (lines.c.institution_key == institution_key) & lines.c.kind.in_(DONE)
        asked = select(*columns_of(lines, StoredLine)).where(ours)
        self.all = [_parsed(row) for row in connection.execute(asked.order_by(lines.c.n)) if type(row.n) is int]
        self.retirements: list[Retired] = []
        self.rewritten: dict[int, tuple[str, str]] = {}
        """The hash and signature of each body from which notes were taken out, by line."""
        self.standing = self._fold(self.all, self.retirements, self.rewritten)

    @property
    def base(self) -> tuple[int, str] | None:
        """Return where the last retirement made the chain begin."""
        last = self._last_retirement()
        return None if last is None else (last.base_n, last.base_hash)

    def base_fault(self, n: int, digest: str) -> str | None:
        """Return what is wrong with a chain that begins after the line with a number and a hash."""
        if self.base is None:
            return "earlier lines are missing, and retention did not record their removal" if n else None
        return None if self.base == (n, digest) else "the chain begins at another line than retention recorded last"

    def unknown(self) -> list[int]:
        """Return the numbers of lines that somebody has changed, so that what they said about the archive is unknown."""
        return [each.n for each in self.all if each.content is None]

    def every_hold(self) -> Holds:
        """Return what is under a legal hold by the chain or by the table. The owner can empty the table for a moment."""
        return Holds.of(self.standing.holds | holds_of(self._connection, self.institution_key))

    def up_to(self, n: int) -> InForce:
        """Return what lines up to a number say, and those that were deleted."""
        return self._fold([each for each in self.all if each.n <= n], [], {})

    def _last_retirement(self) -> Retirement | None:
        return next((each.content for each in reversed(self.all) if isinstance(each.content, Retirement)), None)

    def _fold(
        self, statements: Sequence[Statement], retirements: list[Retired], rewritten: dict[int, tuple[str, str]]
    ) -> InForce:
        standing = self._beginning()
        for each in statements:
            match each.content:
                case Erasure() as content:
                    for voice_id, whose in self._whose(content):
                        standing.erased[voice_id].add(whose)
                    for n, digest in content.rewritten.items():
                        if n.isdecimal():
                            rewritten[int(n)] = (digest, content.signatures.get(n, ""))
                case Hold() as content if each.kind == HELD:
                    standing.holds.add((content.kind, content.value))
                case Hold() as content:
                    standing.holds.discard((content.kind, content.value))
                case Retirement() as content:
                    then = InForce(set(standing.holds))
                    retirements.append(Retired(each.n, each.at_ms, content, then))
        return standing

    def _beginning(self) -> InForce:
        """Return what deleted lines said: as the last retirement repeats it, or of release 0.2.0 as the tables have it."""
        last = self._last_retirement()
        standing = InForce()
        if last is not None and last.holds is not None and last.erased is not None:
            standing.holds = set(last.holds)
            standing.erased.update({voice_id: set(whose) for voice_id, whose in last.erased.items()})
        elif last is not None or self._base_n:
            standing.is_complete = False
            standing.holds = holds_of(self._connection, self.institution_key)
            for voice_id, whose in erased_of(self._connection, self.institution_key):
                standing.erased[voice_id].add(whose)
        return standing

    def _whose(self, erasure: Erasure) -> Iterator[tuple[str, str]]:
        """Yield the calls of an erasure, and whose values it erased. Release 0.2.0 named only the lines."""
        if erasure.calls is not None:
            yield from erasure.calls.items()
            return
        stored = erased_of(self._connection, self.institution_key)
        for some in in_parts(erasure.lines):
            which = (lines.c.institution_key == self.institution_key) & lines.c.n.in_(some)
            asked = select(lines.c.voice_id).where(which).distinct()
            for voice_id in self._connection.execute(asked).scalars():
                yield from ((voice_id, whose) for each, whose in stored if each == voice_id)


def erased_of(connection: Connection, institution_key: str) -> set[tuple[str, str]]:
    """Return the calls whose values must not be stored again, and whose, as the table has them."""
    asked = select(erased.c.voice_id, erased.c.person_id).where(erased.c.institution_key == institution_key)
    return {(voice_id, whose) for voice_id, whose in connection.execute(asked)}


def holds_of(connection: Connection, institution_key: str) -> set[tuple[str, str]]:
    """Return the legal holds in force, as the table has them."""
    asked = select(holds.c.kind, holds.c.value).where(holds.c.institution_key == institution_key)
    return {(kind, value) for kind, value in connection.execute(asked)}


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges: the first and the last of each."""
    found: list[tuple[int, int]] = []
    for n in numbers:
        if found and found[-1][1] == n - 1:
            found[-1] = (found[-1][0], n)
        else:
            found.append((n, n))
    return found


def body_signature(institution_key: str, n: int, before: str, after: str, key: Secret) -> str:
    """Return the signature of a body that an erasure changed: of its hashes before and after."""
    text = f"body\n{institution_key}\n{n}\n{before}\n{after}"
    return hmac.new(key.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()


def _parsed(row: Row[Any]) -> Statement:
    content = None
    try:
        line = record_of(row, StoredLine)
        if line.body is not None and sha256(line.body.encode()) == line.body_hash and line.right_hash == line.hash:
            content = msgspec.json.decode(line.body, type=_TYPES[line.kind])
    except (msgspec.MsgspecError, ValueError, AttributeError, RecursionError):  # the owner can write anything
        content = None
    return Statement(row.n, row.kind, row.at_ms if type(row.at_ms) is int else 0, content)

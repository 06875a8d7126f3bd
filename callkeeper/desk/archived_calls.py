"""Reads calls and audit entries from the archive, for the desk, the board and the commands."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from redis.asyncio import Redis

from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.hourly import Hours, Slot, Sums, slot_of_reason
from callkeeper.calls.record import Reason
from callkeeper.calls.store.audit_log import Audited, AuditFilter, AuditLog
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Known, Lookup
from callkeeper.calls.store.rules_in_force import read_rules_texts

if TYPE_CHECKING:  # without an archive SQLAlchemy is not imported
    from callkeeper.archive.reading import ArchiveReader

T = TypeVar("T")

_AT_ONCE: Final = 4
"""How many questions are asked at once, by one process. The reader has a connection for each."""

_PLACE: Final = re.compile(r"[0-9]{1,15}-[0-9]{1,10}")
"""The id of an entry in a stream of Redis."""

_AUDITED: Final = msgspec.json.Decoder(Audited)


@dataclass(frozen=True, slots=True)
class ArchivedCalls:
    """Names the reader of the archive without importing it.

    It is asked in threads of its own: a slow database must not take those that pushes and logins need.
    """

    reader: "ArchiveReader"
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, "archive"))

    async def ask(self, question: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function that reads the archive, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(question, *arguments, **named))

    def close(self) -> None:
        """Close the connections. Threads end with what they read."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.reader.close()


async def audited_or_archived(
    log: AuditLog, archive: ArchivedCalls | None, wanted: AuditFilter, *, most: int
) -> tuple[list[Audited], bool]:
    """Return the newest wanted entries of the audit log, from Redis and the archive, and whether all of both were read."""
    unreadable = False

    def readable(stored: Iterable[str]) -> Iterator[Audited]:
        nonlocal unreadable
        for body in stored:
            try:
                audited = _AUDITED.decode(body)
                if _PLACE.fullmatch(audited.id) is None:
                    raise ValueError(audited.id)  # noqa: TRY301  (no id of Redis's: the same fault as no JSON)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                unreadable = True  # somebody has changed it; `callkeeper archive verify` names the line
            else:
                yield audited

    def archived(reader: "ArchiveReader") -> list[Audited]:
        return list(islice(filter(wanted.matches, readable(reader.audit(wanted.since_ms))), most))

    found = {each.id: each for each in await log.read(wanted, most=most)}
    answered = True
    if archive is not None:  # also if Redis has enough: a restored Redis lacks what only the archive still knows
        try:
            others = [each for each in await archive.ask(archived, archive.reader) if each.id not in found]
            # Of an entry that both have, Redis is believed: the database's owner cannot change it there.
            held = await log.held([each.id for each in others])
            found |= {each.id: each for each in others if each.id not in held}
            answered = not unreadable
        except ArchiveAway:
            answered = False
    return sorted(found.values(), key=lambda each: each.place, reverse=True)[:most], answered


async def archived_days(
    archive: ArchivedCalls, begin: datetime, end: datetime, institutions: Collection[str] | None
) -> Hours | None:
    """Return what archived calls did on each day of UTC, at its first hour; None if the archive does not answer.

    A call is in the day on which it began, and its result in the day on which it was settled. Nothing else is known of it.
    """

    def counted(reader: "ArchiveReader") -> list[tuple[int, str, int]]:
        begin_ms, end_ms = int(begin.timestamp() * 1000), int(end.timestamp() * 1000)
        return list(reader.by_day(begin_ms, end_ms, None if institutions is None else list(institutions)))

    try:
        found = await archive.ask(counted, archive.reader)
    except ArchiveAway:
        return None
    first, last = (int(at.timestamp() // 86400) for at in (begin, end))
    by_day = {day: Sums() for day in range(first, last)}
    for day, outcome, n in found:
        if day in by_day and outcome != Reason.UNCONFIRMED:
            by_day[day].numbers[slot_of_reason(outcome) if outcome else Slot.STARTED] += n
    since = min((day for day, _, _ in found), default=None)
    return Hours(
        {datetime.fromtimestamp(day * 86400, UTC): sums for day, sums in by_day.items()},
        None if since is None else datetime.fromtimestamp(since * 86400, UTC),
    )


async def kept_or_archived_rules(redis: Redis, keys: Keys, archive: ArchivedCalls | None, digest: str) -> bytes | None:
    """Return the text of rules, from Redis or from the archive; None if neither has it.

    Raises:
        LineUnreadable: Redis does not have it, and somebody has changed it in the archive.
        ArchiveAway: Redis does not have it, and the archive does not answer.
    """
    text = (await read_rules_texts(redis, keys, [digest])).get(digest)
    if text is not None or archive is None:
        return text
    return await archive.ask(archive.reader.rules_text, digest)


async def known_or_archived(lookup: Lookup, archive: ArchivedCalls | None, place: CallId) -> Known | None:
    """Return a call with its trail, from Redis or from the archive; None if nothing is known of it.

    Raises:
        ArchiveAway: Redis does not know the call, and the archive does not answer.
    """
    known = await lookup.known(*place)
    if known is not None or archive is None:
        return known
    found = await archive.ask(archive.reader.call, *place)
    if found is None:
        return None
    call, trail = found
    return Known(CallId(call.institution_key, call.voice_id), call, trail, is_certain=True, is_merging=False)

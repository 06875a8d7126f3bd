"""Reads calls and audit entries from the archive, for the desk, the board and the commands."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.store.audit_log import Audited, AuditFilter, AuditLog
from callkeeper.calls.store.keys import CallId
from callkeeper.calls.store.queries import Known, Lookup

if TYPE_CHECKING:  # without an archive SQLAlchemy is not imported
    from callkeeper.archive.reading import ArchiveReader

POSITION: Final = "archive:"
"""Prefix of a position in a list that is in the archive."""

_AUDITED: Final = msgspec.json.Decoder(Audited)


@dataclass(frozen=True, slots=True)
class ArchivedCalls:
    """Names the reader of the archive without importing it. Query it in a thread."""

    reader: "ArchiveReader"


async def audited_or_archived(
    log: AuditLog, archive: ArchivedCalls | None, wanted: AuditFilter, *, most: int
) -> tuple[list[Audited], bool]:
    """Return the newest wanted entries of the audit log, from Redis and the archive, and whether the archive answered."""

    def archived(reader: "ArchiveReader") -> list[Audited]:
        return list(islice(filter(wanted.matches, map(_AUDITED.decode, reader.audit(wanted.since_ms))), most))

    found = {each.id: each for each in await log.read(wanted, most=most)}
    answered = True
    if archive is not None:  # also if Redis has enough: a restored Redis lacks what only the archive still knows
        try:
            found |= {each.id: each for each in await asyncio.to_thread(archived, archive.reader)}
        except ArchiveAway:
            answered = False
    return sorted(found.values(), key=lambda each: each.place, reverse=True)[:most], answered


async def known_or_archived(lookup: Lookup, archive: ArchivedCalls | None, place: CallId) -> Known | None:
    """Return a call with its trail, from Redis or from the archive; None if nothing is known of it."""
    known = await lookup.known(*place)
    if known is not None or archive is None:
        return known
    with suppress(ArchiveAway):
        found = await asyncio.to_thread(archive.reader.call, *place)
        if found is not None:
            call, trail = found
            return Known(CallId(call.institution_key, call.voice_id), call, trail, is_certain=True, is_merging=False)
    return None

"""Reads calls and audit entries from the archive, for the desk, the board and the commands."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from archive.errors import ArchiveAway
from calls.call_query import CallQuery
from calls.record import Call
from calls.store.audit_log import Audited, AuditFilter, AuditLog
from calls.store.keys import CallId
from calls.store.queries import Known, Lookup
from reseller.endpoints import is_institution_key

if TYPE_CHECKING:  # without an archive SQLAlchemy is not imported
    from archive.reading import ArchiveReader

POSITION: Final = "archive:"
"""Prefix of a position in a list that is in the archive."""

_MOST: Final = 2**63
"""What the database's numbers are smaller than."""

_AUDITED: Final = msgspec.json.Decoder(Audited)


@dataclass(frozen=True, slots=True)
class ArchivedCalls:
    """Queries the database in threads."""

    reader: "ArchiveReader"

    async def page(
        self,
        query: CallQuery,
        position: str,
        *,
        matches: Callable[[Call], bool],
        limit: int,
        institutions: Sequence[str] | None,
        names: Mapping[str, str | None],
    ) -> tuple[tuple[Call, ...], str | None]:
        """Return a page of a list, and where the next one begins.

        Raises:
            ValueError: The position is not ours.
            archive.errors.ArchiveAway: The database failed.
        """
        from archive.reading import Place  # noqa: PLC0415

        before = None
        if position != POSITION:
            began_ms, n, key = position.removeprefix(POSITION).split(":", 2)
            before = Place(int(began_ms), key, int(n))
            if not (is_institution_key(key) and max(abs(before.began_ms), abs(before.n)) < _MOST):
                raise ValueError(position)
        found = await asyncio.to_thread(
            self.reader.find,
            query,
            matches=matches,
            most=limit,
            institutions=institutions,
            names=names,
            before=before,
        )
        place = found.next
        return found.calls, None if place is None else f"{POSITION}{place.began_ms}:{place.n}:{place.institution_key}"

    async def known(self, place: CallId) -> Known | None:
        """Return a call with its trail, None if there is none.

        Raises:
            archive.errors.ArchiveAway: The database failed.
        """
        found = await asyncio.to_thread(self.reader.call, *place)
        if found is None:
            return None
        call, trail = found
        return Known(CallId(call.institution_key, call.voice_id), call, trail, is_certain=True, is_merging=False)

    async def audited(self, wanted: AuditFilter, *, most: int) -> list[Audited]:
        """Return the newest wanted entries of the audit log, newest first.

        Raises:
            archive.errors.ArchiveAway: The database failed.
        """

        def read() -> list[Audited]:
            entries = map(_AUDITED.decode, self.reader.audit(wanted.since_ms))
            return list(islice(filter(wanted.matches, entries), most))

        return await asyncio.to_thread(read)


async def audited_or_archived(
    log: AuditLog, archive: ArchivedCalls | None, wanted: AuditFilter, *, most: int
) -> tuple[list[Audited], bool]:
    """Return the newest wanted entries of the audit log, from Redis and the archive, and whether the archive answered."""
    found = {each.id: each for each in await log.read(wanted, most=most)}
    answered = True
    if archive is not None:  # also if Redis has enough: a restored Redis lacks what only the archive still knows
        try:
            found |= {each.id: each for each in await archive.audited(wanted, most=most)}
        except ArchiveAway:
            answered = False
    return sorted(found.values(), key=lambda each: each.place, reverse=True)[:most], answered


async def known_or_archived(lookup: Lookup, archive: ArchivedCalls | None, place: CallId) -> Known | None:
    """Return a call with its trail, from Redis or from the archive; None if nothing is known of it."""
    known = await lookup.known(*place)
    if known is not None or archive is None:
        return known
    with suppress(ArchiveAway):
        return await archive.known(place)
    return None

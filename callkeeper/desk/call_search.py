"""Finds calls for an operator: live ones first, then recently settled ones, then archived ones."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.call_query import CallQuery
from callkeeper.calls.institutions import KnownInstitutions
from callkeeper.calls.record import Call
from callkeeper.calls.store.keys import CallId
from callkeeper.calls.store.queries import Queries
from callkeeper.desk.archived_calls import ArchivedCalls

SEARCHED: Final = 20_000
"""How many settled calls are read, newest first."""

SHOWN: Final = 100

SEARCH_S: Final = 5.0
"""How long calls in Redis are read for one search, in seconds. A busier process finds fewer of the old ones."""


@dataclass(frozen=True, slots=True)
class FoundCalls:
    """What was found, live calls first. ``is_cut``: there are more; ``is_partial``: not all settled calls were read.

    ``is_archive_missing``: the archive does not answer.
    """

    calls: Sequence[Call]
    known: KnownInstitutions
    is_cut: bool
    is_partial: bool
    is_archive_missing: bool = False


async def find_calls(
    queries: Queries,
    query: CallQuery,
    *,
    any_id: str = "",
    state: Callable[[Call], str],
    states: Callable[[Call], Collection[str]] = lambda _call: (),
    archive: ArchivedCalls | None = None,
    most: int = SHOWN,
    is_live: bool = True,
    settled: int = SEARCHED,
    may_see: Callable[[str], bool] = lambda _institution_key: True,
    sees_people: bool = True,
) -> FoundCalls:
    """Return the calls that match a query.

    Args:
        queries: Read the calls.
        query: What is looked for.
        any_id: The typed text, if it may be a whole id. Such a call is found however old it is.
        state: Returns the words by which a call's state is shown.
        states: Returns the names by which calls can be filtered by state.
        archive: Where to go on looking; None: in Redis alone.
        most: How many calls are returned at most.
        is_live: Look among the live calls.
        settled: How many of the settled calls to look among, the newest first.
        may_see: Tells whether an institution's calls may be found.
        sees_people: Whether names, numbers and operators may be searched.
    """
    known = await queries.institutions()
    if not (sees_people or is_for_viewers(query)):
        return FoundCalls((), known, is_cut=False, is_partial=False)
    found: dict[CallId, Call] = {}
    for call_id in await queries.find(any_id) if any_id else ():
        if may_see(call_id.institution_key) and (call := await queries.load(call_id)) is not None:
            found[CallId(call.institution_key, call.voice_id)] = call
    read_settled = 0

    def matches(call: Call) -> bool:
        name, seen = known.names.get(call.institution_key) or "", call if sees_people else without_people(call)
        words, names = state(call) if query.words else "", states(call) if query.state else ()
        return may_see(call.institution_key) and query.matches(seen, name=name, state=words, states=names)

    until_s, is_late = time.monotonic() + SEARCH_S, False
    reading = queries.searched(is_live=is_live, settled=settled, with_trails=query.needs_trail)
    async with aclosing(reading) as calls:
        async for call, trail in calls:
            read_settled += call.is_settled
            if query.has_terms(call, trail) and matches(call):
                found.setdefault(CallId(call.institution_key, call.voice_id), call)
            is_late = time.monotonic() > until_s
            if is_late or len(found) > most:
                break
    is_partial = is_late or (read_settled >= SEARCHED and archive is None)
    is_missing = False
    if archive is not None and len(found) <= most:
        visible = [key for key in known.names if may_see(key)]
        try:
            more = await asyncio.to_thread(
                archive.reader.find,
                query,
                matches=lambda call: CallId(call.institution_key, call.voice_id) not in found and matches(call),
                most=most + 1 - len(found),
                institutions=None if len(visible) == len(known.names) else visible,
                names=known.names,
            )
            found |= {CallId(call.institution_key, call.voice_id): call for call in more.calls}
            is_partial = is_late or more.is_partial
        except ArchiveAway:
            is_missing = True
    return FoundCalls(tuple(found.values())[:most], known, len(found) > most, is_partial, is_missing)


def is_for_viewers(query: CallQuery) -> bool:
    """Tell whether viewers may ask this: not who acted, which viewers do not see."""
    return all(kind != "operator" for kind, _ in query.terms)


def without_people(call: Call) -> Call:
    """Return a call without names and numbers, for viewers: a search by them would reveal them."""
    return replace(call, names=replace(call.names, phone_number=None), seen=replace(call.seen, candidates=()))

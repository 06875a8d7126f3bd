"""Finds the calls that an operator means: live ones, and the settled ones that were settled last."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from calls.finding import CallQuery
from calls.institutions import KnownInstitutions
from calls.record import Call
from calls.store.keys import CallId
from calls.store.queries import Queries

SEARCHED: Final = 20_000
"""Settled calls that are read, the newest first."""

SHOWN: Final = 100

_BREATH: Final = 50


@dataclass(frozen=True, slots=True)
class FoundCalls:
    """What was found, live calls first. ``is_cut``: there are more; ``is_partial``: not all settled calls were read."""

    calls: Sequence[Call]
    known: KnownInstitutions
    is_cut: bool
    is_partial: bool


async def find_calls(
    queries: Queries, query: CallQuery, *, any_id: str = "", state: Callable[[Call], str], most: int = SHOWN
) -> FoundCalls:
    """Return the calls that a query means.

    Args:
        queries: Read the calls.
        query: What is looked for.
        any_id: What was typed, where it may be a whole id: such a call is found however old it is.
        state: Returns the words by which a call's state is shown.
        most: Calls at most.
    """
    known = await queries.institutions()
    found: dict[CallId, Call] = {}
    for call_id in await queries.find(any_id) if any_id else ():
        if (call := await queries.load(call_id)) is not None:
            found[CallId(call.institution_key, call.voice_id)] = call
    read = settled = 0
    async for call in _all(queries):
        read += 1
        settled += call.is_settled
        if read % _BREATH == 0:
            await asyncio.sleep(0)
        name = known.names.get(call.institution_key) or ""
        if query.matches(call, name=name, state=state(call)):
            found.setdefault(CallId(call.institution_key, call.voice_id), call)
            if len(found) > most:
                break
    return FoundCalls(tuple(found.values())[:most], known, len(found) > most, settled >= SEARCHED)


async def _all(queries: Queries) -> AsyncIterator[Call]:
    async for call in queries.live():
        yield call
    async for call in queries.settled(SEARCHED):
        yield call

"""What the service says of institutions, asked for by its list and by their keys, for workers and for the doctor.

The list is read first. Each key that it does not name is asked for by itself, so that one failing key affects only its own
institution.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from callkeeper.calls.store.last_listing import Standing
from callkeeper.service import (
    Institution,
    InstitutionSummary,
    ResellerError,
    ServiceBusy,
    ServiceUnavailable,
)
from callkeeper.service.client import Reseller

IN_A_ROW = 3
"""If none of the first three keys is answered, the service is taken to be down, and the rest is not asked for. If three in
a row get no permit, the rest is asked for later. One without a permit proves nothing: its institution may have a limit of
its own."""

AT_ONCE = 8
"""How many keys are asked for at the same time."""

LIST = ""
"""Stands for the service's list among the keys that are asked for."""


@dataclass(slots=True)
class Standings:
    """The standing of each institution, and the errors for those that could not be read."""

    known: dict[str, Standing] = field(default_factory=dict)
    named: frozenset[str] | None = None
    """The keys of those that the list names; None if it was not read. The others were asked for by key."""
    unreadable: dict[str, ResellerError] = field(default_factory=dict)
    list_error: ResellerError | None = None
    left: list[str] = field(default_factory=list)
    """What is asked for later: it was not allowed yet, or something else was answered by 429."""

    async def ask(self, service: Reseller, key: str) -> ResellerError | None:
        """Ask for an institution or for the `LIST`; return the error if there is no answer."""
        try:
            if key == LIST:
                self.known |= {one.key: standing_of(one) for one in await service.institutions() if one.key}
                self.named = frozenset(self.known)
            else:
                self.known[key] = standing_of(await service.institution(key), key)
        except ResellerError as error:
            if key == LIST:
                self.list_error = error
            else:
                self.unreadable[key] = error
            return error
        return None


MayAsk: TypeAlias = Callable[[str], Awaitable[bool]]


async def ask_standings(service: Reseller, keys: Iterable[str], *, may_ask: MayAsk | None = None) -> Standings:
    """Ask for the standing of institutions in this order. What the list has named is not asked for by key.

    With ``may_ask``, which is asked before each request, a 429 ends it.

    Spec: Endpoints 8 and 10. Assumed (`institution-by-key`): the wrapper of the list is not shown; see
    `callkeeper.service.answer_meaning`.
    """
    asked, rest = Standings(), deque(keys)
    while batch := await _next_batch(asked, rest, may_ask):
        errors = await asyncio.gather(*(asked.ask(service, key) for key in batch))
        if may_ask is not None and any(isinstance(error, ServiceBusy) for error in errors):
            asked.left += rest
            break
        is_silent = all(isinstance(error, ServiceUnavailable) for error in errors)
        if is_silent and batch != [LIST] and not asked.known:
            break
    return asked


async def _next_batch(asked: Standings, rest: deque[str], may_ask: MayAsk | None) -> list[str]:
    """Take the keys that are asked for next: the `LIST` alone, then few at a time until the service answers."""
    batch: list[str] = []
    held, most = 0, AT_ONCE if asked.known else IN_A_ROW
    while rest and len(batch) < most:
        key = rest.popleft()
        if key in asked.known:
            continue
        if may_ask is None or await may_ask(key):
            batch.append(key)
            held = 0
        else:
            asked.left.append(key)
            held += 1
        if held == IN_A_ROW or (held and key == LIST):
            asked.left += rest
            rest.clear()
        if key == LIST:
            break
    return batch


def standing_of(summary: InstitutionSummary | Institution, key: str | None = None) -> Standing:
    """Return the fields of an institution that we keep. ``key`` is the one it was asked for by, if any."""
    return Standing(
        key=key or summary.key or "",
        name=summary.name,
        status=summary.status,
        has_voice_auth=summary.has_voice_auth,
        is_test_mode=summary.is_test_mode,
    )


def handled_in_test(standings: Mapping[str, Standing], keys: frozenset[str]) -> dict[str, Standing]:
    """Return standings that say which institutions the settings name to be handled in test mode."""
    return {key: replace(one, is_handled_in_test=key in keys) for key, one in standings.items()}

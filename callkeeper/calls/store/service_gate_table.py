"""The gate's table as people see it: every scope whose requests may not simply go, and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from redis.asyncio import Redis

from callkeeper.calls.claimed_item import LEASE, instant
from callkeeper.calls.pause import EVERYWHERE, Pauses, PauseScope
from callkeeper.calls.store.breakers import ACCOUNT, CHECK_TURN_EVERY_MS, WHOLE, Breaker, EndpointKind, open_breakers
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.request_budget import BudgetUse, budget_use
from callkeeper.calls.store.sso_token import Barred, barred_scopes


class GateState(StrEnum):
    """The state of a scope. One that is open is not listed."""

    LIMITED = "limited"
    CLOSED = "closed"
    STOPPED = "stopped by a person"


@dataclass(frozen=True, slots=True)
class GateRow:
    """A scope whose requests may not simply go.

    Attributes:
        institution_key: Empty for all institutions.
        requests: Which of its requests: everything, calls, queue, check, effects, automatic, or one operation.
        state: Its state.
        words: Why, in one line.
        since: Since when; None if that is not kept.
        until: When it is tried again or ends by itself; None if nobody knows.
        per_s: The rate that it is limited to, in requests per second; None: to no rate.
    """

    institution_key: str
    requests: str
    state: GateState
    words: str
    since: datetime | None = None
    until: datetime | None = None
    per_s: float | None = None


async def gate_table(redis: Redis, keys: Keys = KEYS) -> list[GateRow]:
    """Return the rows of all institutions first, then those of each."""
    client = in_bytes(redis)
    seconds, micros = await client.time()
    rows = [
        *map(_of_breaker, await open_breakers(redis, keys)),
        *_of_new_redis(await client.hget(keys.epoch, "since"), datetime.fromtimestamp(seconds + micros / 1e6, UTC)),
        *map(_of_bar, await barred_scopes(redis, keys)),
        *map(_of_budget, await budget_use(redis, keys)),
        *_of_pauses(await Pausing(redis, keys=keys).pauses()),
    ]
    return sorted(rows, key=lambda row: row.institution_key)


def _of_breaker(breaker: Breaker) -> GateRow:
    requests = "everything" if breaker.scope == WHOLE else breaker.scope.kind
    is_tried = breaker.scope.kind is EndpointKind.CHECK
    state, per_s = (GateState.LIMITED, 1000 / CHECK_TURN_EVERY_MS) if is_tried else (GateState.CLOSED, None)
    key = breaker.institution_key
    return GateRow(key, requests, state, breaker.words, breaker.since, breaker.tried_at, per_s)


def _of_new_redis(since_ms: bytes | None, now: datetime) -> Iterable[GateRow]:
    """Return a row while effects wait because Redis was restarted or replaced."""
    if since_ms is None or not since_ms.isdigit():
        return
    since = instant(int(since_ms))
    if since <= now < since + LEASE.hold:
        words = "Redis is new: requests that it does not know of may still be under way"
        yield GateRow(ACCOUNT, "effects", GateState.CLOSED, words, since, since + LEASE.hold)


def _of_bar(barred: Barred) -> GateRow:
    words = "401 although the token is good; tried every few seconds"
    return GateRow(barred.institution_key, barred.operation, GateState.CLOSED, words, barred.since)


def _of_budget(use: BudgetUse) -> GateRow:
    return GateRow(use.institution_key, "everything", GateState.LIMITED, use.words, per_s=use.limit_per_s)


def _of_pauses(pauses: Pauses) -> Iterable[GateRow]:
    for key, pause in pauses.by_institution.items():
        requests = "automatic" if pause.scope is PauseScope.ALL else "effects"
        where = ACCOUNT if key == EVERYWHERE else key
        yield GateRow(where, requests, GateState.STOPPED, f"{pause.scope.words}, {pause.reason}", pause.at)

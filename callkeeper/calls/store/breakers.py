"""Circuit breakers for the service, shared by all workers: each stops the requests of one scope.

A scope is the account, an institution's calls, an institution's queue, the queue of all institutions, or an institution's
checks. While a breaker is open, nothing it covers is claimed, booked or sent.

- Five failures in a row, counted over all workers, open the breaker of an institution's calls or queue. A 429 with a time
  stops all requests for its institution.
  Assumed (`failing-institution`): what fails for one institution says nothing about others.
- If the queues of three institutions fail together, without an answer to any other since they began, or those of all, all
  listings stop. One kind of endpoint that fails does not stop the others: the account's breaker opens when both queues
  and calls fail, or when logins fail.
- If checks of three calls of an institution bring no result although stored details can be read, its checks wait, and
  one call at a time tries.

A probe tests an open breaker every few seconds, and the first success closes it (``workers.service_health``).
``BreakerBox`` is one worker's view. The webhook has a breaker of its own: the account's, under the outbox's keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple
from urllib.parse import unquote

from redis.asyncio import Redis

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.item_names import institution_part
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import KEYS, REMEMBERED_S, Keys
from callkeeper.calls.store.script_runner import Scripts

ACCOUNT: Final = ""
"""Used for the service account in place of an institution's key."""


class EndpointKind(StrEnum):
    """A kind of endpoint."""

    CALLS = "calls"  # details, assign, enroll, reject; for the account, everything
    QUEUE = "queue"
    CHECK = "check"  # details that ask the voice provider


class Scope(NamedTuple):
    """What a breaker covers: requests of a kind, for one institution or for all (`ACCOUNT`)."""

    kind: EndpointKind
    institution_key: str


WHOLE: Final = Scope(EndpointKind.CALLS, ACCOUNT)
"""Everything that is sent to the service."""

QUEUES: Final = Scope(EndpointKind.QUEUE, ACCOUNT)
"""The queues of all institutions."""


class RequestResult(StrEnum):
    """What a request says about the service."""

    ANSWER = "answer"
    FAILURE = "failure"
    PAUSE = "pause"
    """The service asks for a pause of a given length."""
    LOGIN = "login"
    """A login failed. This affects everybody once there is no token."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The breaker of a scope. ``since`` is None while closed. ``failures`` of checks are calls."""

    scope: Scope
    failures: int
    since: datetime | None
    tried_at: datetime
    why: RequestResult

    @property
    def institution_key(self) -> str:
        """Return the institution that it is about; empty if it is about all."""
        return self.scope.institution_key

    @property
    def is_open(self) -> bool:
        return self.since is not None

    def covers(self, kind: EndpointKind) -> bool:
        """Tell whether it covers requests of a kind: its own, or any during a pause or if it is the account's."""
        return kind is self.scope.kind or self.why is RequestResult.PAUSE or self.scope == WHOLE

    @property
    def words(self) -> str:
        """Describe in one line why it is open and when it is tested."""
        since = f"since {self.since:%H:%M:%S} UTC" if self.since else "not"
        if self.scope.kind is EndpointKind.CHECK:
            every_s = CHECK_TURN_EVERY_MS // 1000
            return f"checks bring no results {since} ({self.failures} calls); one call tries every {every_s} s"
        if self.scope.kind is EndpointKind.QUEUE:
            return f"the queue does not answer {since} ({self.failures} requests failed in a row); tried every 3 s"
        match self.why:
            case RequestResult.PAUSE:
                return f"paused {since} because the service asked for it (429), until {self.tried_at:%H:%M:%S}"
            case RequestResult.LOGIN:
                return f"away {since} (there is no token and logins fail); a login is tried every 3 s"
            case _:
                return f"away {since} ({self.failures} requests failed in a row); tried every 3 s"


def breakers_of(*stored: Mapping[bytes, bytes]) -> dict[Scope, Breaker]:
    """Read stored breakers by scope. One that cannot be read counts as closed."""
    pairs = ((scope_of(field), value) for each in stored for field, value in each.items())
    found = {scope: _breaker(scope, value) for scope, value in pairs if scope is not None}
    return {scope: breaker for scope, breaker in found.items() if breaker is not None}


async def open_breakers(redis: Redis, keys: Keys = KEYS) -> list[Breaker]:
    """Return the open breakers, the account's first."""
    client = in_bytes(redis)
    pipe = client.pipeline(transaction=False)
    return opened(*await pipe.hgetall(keys.breakers).hgetall(keys.endpoints).execute())


async def service_away(redis: Redis, keys: Keys = KEYS) -> Breaker | None:
    """Return the account's breaker if it is open: no requests are sent to the service at all."""
    return account_of(await open_breakers(redis, keys))


def opened(*stored: Mapping[bytes, bytes]) -> list[Breaker]:
    """Return the open ones of the stored breakers, the account's first."""
    return [breaker for _, breaker in sorted(breakers_of(*stored).items()) if breaker.is_open]


def account_of(breakers: Iterable[Breaker]) -> Breaker | None:
    """Return the account's breaker if it is among the open ones: then no requests are sent to the service at all."""
    return next((breaker for breaker in breakers if breaker.scope == WHOLE), None)


def _breaker(scope: Scope, value: bytes) -> Breaker | None:
    try:
        failures, since, tried, why = value.decode().split(" ")
        since_at = instant(int(since)) if since != "0" else None
        return Breaker(scope, int(failures), since_at, instant(int(tried)), RequestResult(why))
    except (ValueError, OverflowError):
        return None


def scope_of(field: bytes) -> Scope | None:
    """Return the scope of a stored breaker; None if this release does not know its kind.

    Those of account and institutions are stored under the institution. The others have their kind in front.
    """
    kind, blank, institution = field.decode(errors="replace").rpartition(" ")
    if not blank:
        return Scope(EndpointKind.CALLS, unquote(institution))
    return Scope(EndpointKind(kind), unquote(institution)) if kind in {EndpointKind.QUEUE, EndpointKind.CHECK} else None


FAILURES_THAT_OPEN: Final = 5
"""Requests in a row without a usable answer, over all workers, that open a breaker."""

THREE: Final = 3
"""If this many institutions' queues fail within ``TOGETHER_MS``, all do. If checks of this many calls of an institution
bring no result, those of its other calls will not either."""

CHECK_TURN_EVERY_MS: Final = 8000
"""How often one call makes a check while checks bring no results, in milliseconds."""

YIELDS_S: Final = 2.0
"""How much later a call asks for this turn if its own last check brought no result, in seconds."""

TOGETHER_MS: Final = 15_000

FIRST_PROBE_MS: Final = 1000
PROBE_EVERY_MS: Final = 3000
"""How often an open breaker is tested, in milliseconds."""

PROBES_AT_ONCE: Final = 16


class BreakerBox:
    """One process's view of the breakers, and its reports to the others."""

    def __init__(self, scripts: Scripts, keys: Keys, reporter: str, *, longest_pause_s: float) -> None:
        """Start with all breakers closed.

        ``reporter`` names this process. No longer pause than ``longest_pause_s`` is kept to.
        """
        self.scripts = scripts
        self._keys = keys
        self._reporter = reporter
        self._longest_pause_ms = round(longest_pause_s * 1000)
        self._reports = 0
        self._known: dict[Scope, Breaker] = {}
        self.acted_for: frozenset[str] = frozenset()
        """The institutions that we act for, to know when all of them fail."""

    def remember(self, *stored: Sequence[bytes]) -> None:
        """Remember what Redis returned: of both hashes, fields and values in turn."""
        self._known = breakers_of(*(dict(zip(one[::2], one[1::2], strict=True)) for one in stored))

    @property
    def opened(self) -> list[Breaker]:
        """Return the open breakers, the account's first."""
        return [breaker for _, breaker in sorted(self._known.items()) if breaker.is_open]

    def over(self, institution_key: str, kind: EndpointKind = EndpointKind.CALLS) -> Breaker | None:
        """Return the open breaker that covers an institution's requests of a kind; None if they may be sent."""
        if not self._known:
            return None
        known = (self._known.get(scope) for scope in _covering(institution_key, kind))
        covering = (breaker for breaker in known if breaker is not None and breaker.covers(kind))
        return next((breaker for breaker in covering if breaker.is_open), None)

    def has_failed(self, institution_key: str, kind: EndpointKind = EndpointKind.CALLS) -> bool:
        """Tell whether failures are stored that an answer for this institution would clear."""
        return bool(self._known) and any(scope in self._known for scope in _covering(institution_key, kind))

    async def report(
        self,
        result: RequestResult,
        institution_key: str = ACCOUNT,
        kind: EndpointKind = EndpointKind.CALLS,
        *,
        member: str = "",
        pause_s: float = 0.0,
        answered_s_ago: float = inf,
    ) -> tuple[list[Scope], list[Scope]]:
        """Report the result of a request to all workers. Return whose breakers opened and whose closed.

        ``member`` is the call whose check brought no result. ``pause_s``: for how long the service asked for no
        requests. ``answered_s_ago``: when this process last got an answer of this kind for any institution.
        """
        self._reports += 1
        breakers, endpoints, opened, closed = await self.scripts.call(
            "breaker_report",
            claimer_key=self._keys.claimer(self._reporter),
            number=self._reports,
            result=result,
            kind=kind,
            institution=institution_part(institution_key),
            checked_call=member,
            pause_ms=int(pause_s * 1000),
            answered_ms_ago="" if answered_s_ago == inf else int(answered_s_ago * 1000),
            failures_that_open=FAILURES_THAT_OPEN,
            together=THREE,
            within_ms=TOGETHER_MS,
            first_probe_ms=FIRST_PROBE_MS,
            number_kept_s=REMEMBERED_S,
            rest=list(map(institution_part, sorted(self.acted_for))),
        )
        self.remember(breakers, endpoints)
        return _scopes(opened), _scopes(closed)

    async def take_probes(self) -> list[Scope]:
        """Take the probes that are due now; return whose breakers they test.

        If Redis repeats the script, the repetition takes none. Those breakers are tested three seconds later.
        """
        taken = await self.scripts.call(
            "probe", every_ms=PROBE_EVERY_MS, most=PROBES_AT_ONCE, longest_pause_ms=self._longest_pause_ms
        )
        return _scopes(taken)

    def known_turn_wait_s(self, institution_key: str, now: datetime, *, yields: bool = False) -> float:
        """Return for how many seconds a call makes no check because checks bring no results, as far as is known here.

        ``yields``: its own last check brought no result, so calls that are not known to fail go first.
        """
        breaker = self.over(institution_key, EndpointKind.CHECK)
        if breaker is None:
            return 0.0
        later_s = YIELDS_S if yields else 0.0
        wait_s = (breaker.tried_at - now).total_seconds() + later_s
        return wait_s if 0.0 < wait_s <= CHECK_TURN_EVERY_MS / 1000 + later_s else 0.0

    async def turn_wait_s(self, institution_key: str) -> float:
        """Take the turn to make a check, if checks bring no results. Return 0.0 if it may be made, else seconds to wait.

        Only one call at a time gets the turn.
        """
        institution = institution_part(institution_key)
        wait_ms = await self.scripts.call("check_turn", institution=institution, every_ms=CHECK_TURN_EVERY_MS)
        return float(wait_ms) / 1000


def _covering(institution_key: str, kind: EndpointKind) -> tuple[Scope, ...]:
    """Return the scopes whose breakers cover an institution's requests of a kind, the widest first."""
    if kind is EndpointKind.CHECK:
        return (Scope(kind, institution_key),)
    return (
        WHOLE,
        Scope(EndpointKind.CALLS, institution_key),
        *((QUEUES, Scope(kind, institution_key)) if kind is EndpointKind.QUEUE else ()),
    )


def _scopes(fields: Iterable[bytes]) -> list[Scope]:
    return [scope for scope in map(scope_of, fields) if scope is not None]


async def retry_service(redis: Redis, keys: Keys = KEYS, *, now_ms: int | None = None) -> list[Breaker]:
    """Test everything behind an open breaker at once, also a refused login; return the open breakers.

    ``now_ms`` replaces Redis's clock.
    """
    clock = None if now_ms is None else lambda: now_ms
    stored = await Scripts(redis, keys=keys, now_ms=clock).call("retry")
    return opened(*(dict(zip(one[::2], one[1::2], strict=True)) for one in stored))

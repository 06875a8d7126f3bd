"""The gate to the service: asked once before every request, told once after it.

It keeps one table of scopes, which all workers share: the account, an institution, and the kinds of requests of either.
Each scope is open, limited to a rate, or closed until a time; what people close is in it too
(`calls.store.service_gate_table` shows all of it). A request passes if every scope that covers it lets it pass:

- closed: a breaker, a pause that the service asked for, or a bar after a 401 (the client's, per process);
- limited: the request budget, one check at a time while checks bring no results, the look-backs of a minute.

What people close, and the wait for effects after Redis was replaced, are articles of `calls.law`: rules and stories have
to say that they hold a call. The script that books an effect or a check asks for the pause once more.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Any

import msgspec
from redis.exceptions import RedisError

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.store.breakers import ACCOUNT, WHOLE, EndpointKind, RequestResult, Scope
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.last_errors import ErrorArea
from callkeeper.calls.store.request_budget import Permit
from callkeeper.service import (
    AccessRefused,
    AnswerUnreadable,
    CertificateRefused,
    LoginRefused,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceRefused,
    ServiceUnavailable,
    TokenFault,
    TokenLapsed,
    TurnedAway,
    Unsendable,
)
from callkeeper.service.client import Reseller
from callkeeper.service.endpoints import DETAILS, EFFECTS, QUEUE, TOKEN, AuthMode, Endpoint
from workers.own_way import OwnWay, was_answered

ALONE_S, ALONE_AMONG = 60.0, 4
"""Institutions that get 429 have limits of their own if, within ``ALONE_S`` seconds, they are at most one in
``ALONE_AMONG`` of the institutions that were answered."""


class Wanted(msgspec.Struct, frozen=True):
    """A request that is about to be made.

    Attributes:
        institution_key: The institution that it is for.
        member: The call or queue that waits if there is no permit.
        permit: What it is for.
        permits: How many permits to take: none if they were taken before, two for an effect and the read before it.
        kind: `QUEUE` for a listing, `CHECK` for an automatic check, else `CALLS`.
        is_free: Whether it may test a bar after a 401: it changes nothing and costs no check.
        yields: For a check: whether the call's last one brought no result. Then other calls go first.
        looks_back: Whether it takes one of the look-backs of this minute.
    """

    institution_key: str
    member: str
    permit: Permit
    permits: int = 1
    kind: EndpointKind = EndpointKind.CALLS
    is_free: bool = False
    yields: bool = False
    looks_back: bool = False


class Why(StrEnum):
    """Why a request may not go now. The first three are written into a call's trail."""

    AWAY = "the service is away"
    INSTITUTION_AWAY = "the service does not answer for the institution, or asked for a pause"
    REFUSED = "the service refuses the institution"
    REFUSAL_TESTED = "a free read has to test first whether the service still refuses the institution"
    CHECKS_FAIL = "checks bring no results, and another call tries"
    RATE = "the request budget is used up"
    LOOK_BACKS = "the look-backs of this minute are used up"
    TOO_MANY_UNLISTED = "too many calls wait for their look-back"
    STANDING = "the institution's standing is asked for first"


@dataclass(frozen=True, slots=True)
class Held:
    """Why a request may not go, after how many seconds to ask again, and how many permits it has taken already."""

    why: Why
    wait_s: float = 0.0
    permits: int = 0


_Request = tuple[Endpoint, str, BaseException | None]
"""A finished request: its endpoint, the institution that it was for, and its error."""


class ServiceGate:
    """One worker's access to the table. ``report`` is the `Observe` callback of its client."""

    def __init__(self, store: Store, log: Any, figures: Figures, *, name: str = "") -> None:
        """``name`` is that under which this process reports."""
        self._store = store
        self.way = OwnWay(name, store.processes, store.monotonic, log)
        self._kept_back: list[_Request] = []
        """Requests without an answer that wait until it is known whether the own way is broken."""
        self._log = log
        self._figures = figures
        self._barred_s: Callable[[Endpoint, str], float | None] = lambda *_: None
        self._answered: set[str] = set()
        self._answered_at_s: dict[str, float] = {}
        self._turned_away_at_s: dict[str, float] = {}
        """When each institution was answered last, and when by 429, by the process's clock."""
        self._kind_answered_at_s: dict[EndpointKind, float] = {}

    def see_bars_of(self, service: Reseller) -> None:
        """Let the bars of a client count. It is made after the gate, because it reports to the gate."""
        self._barred_s = service.barred_s

    async def ask(self, wanted: Wanted, now: datetime) -> Held | None:
        """Return None if a request may go now, else what holds it up. Nothing is taken before that is known.

        Raises:
            redis.exceptions.RedisError: Redis is down.
        """
        breakers, key = self._store.breakers, wanted.institution_key
        is_listing, is_check = wanted.kind is EndpointKind.QUEUE, wanted.kind is EndpointKind.CHECK
        breaker = breakers.over(key, EndpointKind.QUEUE if is_listing else EndpointKind.CALLS)
        if breaker is not None:
            return Held(Why.AWAY if breaker.scope == WHOLE else Why.INSTITUTION_AWAY)
        barred_s = None if is_listing else self._barred_s(DETAILS, key)
        if barred_s:
            return Held(Why.REFUSED, barred_s)
        if barred_s is not None and not wanted.is_free:
            return Held(Why.REFUSAL_TESTED)
        takes_turn = is_check and breakers.over(key, EndpointKind.CHECK) is not None
        if takes_turn and (wait_s := breakers.known_turn_wait_s(key, now, yields=wanted.yields)):
            return Held(Why.CHECKS_FAIL, wait_s)
        if wanted.looks_back and await self._store.look_backs.are_used_up(now):
            return await self._take_look_back(now)
        if wanted.permits:
            wait_s = await self._store.budget.wait_s(wanted.permit, wanted.member, key, wanted.permits)
            if wait_s:
                return Held(Why.RATE, wait_s)
        if takes_turn and (wait_s := await breakers.turn_wait_s(key)):
            return Held(Why.CHECKS_FAIL, wait_s, wanted.permits)
        return await self._take_look_back(now, wanted.permits) if wanted.looks_back else None

    async def _take_look_back(self, now: datetime, permits: int = 0) -> Held | None:
        """Take one of the look-backs of this minute. If they are used up, return when the turn comes."""
        turn_in_s = await self._store.look_backs.turn_in_s(now)
        if turn_in_s is None:
            return Held(Why.TOO_MANY_UNLISTED, 0.0, permits)
        return Held(Why.LOOK_BACKS, turn_in_s, permits) if turn_in_s else None

    async def probe(self, institution_key: str, permit: Permit) -> None:
        """Take the permit of a probe. It waits for nothing: there is only one every few seconds."""
        await self._store.budget.wait_s(permit, "probe", institution_key)

    async def report(
        self, endpoint: Endpoint, institution_key: str, error: BaseException | None, seconds: float
    ) -> None:
        """Count a finished request, and tell all workers what it says of the scopes it belongs to.

        If the fault may be this process's own, that waits, or is left out.
        """
        outcome = "answered" if error is None else type(error).__name__
        self._figures.count(figure.SERVICE_REQUESTS, endpoint.name, outcome)
        self._figures.observe(figure.SERVICE_SECONDS, seconds, endpoint.name)
        if endpoint is TOKEN:
            self._figures.count(figure.LOGINS, outcome)
        for request in await self._believed((endpoint, institution_key, error), seconds):
            await self._tell(*request)

    async def _believed(self, request: _Request, seconds: float) -> list[_Request]:
        """Return the finished requests that now count as the service's doing.

        While the own way is doubted or in question, a request without an answer is kept back. It counts later if the way
        turns out to be sound, and never if the way was broken.
        """
        way, is_answered = self.way, was_answered(request[0], request[2])
        was_broken = way.is_broken
        connects = request[0] in EFFECTS  # a probe of the way says itself that it did
        if is_answered:
            way.answered(connects=connects)
        elif is_answered is False:
            foreign = request[2].foreign if isinstance(request[2], ResellerError) else None
            with suppress(RedisError):
                await way.failed(seconds, connects=connects, foreign_answer="" if foreign is None else foreign.words)
        kept_back, self._kept_back = [] if was_broken else self._kept_back, []
        if not way.is_doubted and not way.is_in_question:
            return [*kept_back, request]
        self._kept_back = kept_back
        if is_answered is not False:
            return [request]
        if not was_broken:
            self._kept_back.append(request)
        return []

    async def _tell(self, endpoint: Endpoint, institution_key: str, error: BaseException | None) -> None:
        """Tell all workers what a finished request says of the scopes it belongs to."""
        outcome = "answered" if error is None else type(error).__name__
        store, kind = self._store, EndpointKind.QUEUE if endpoint is QUEUE else EndpointKind.CALLS
        if error is None:
            self._answered.add(endpoint.name)
            self._answered_at_s[institution_key] = store.monotonic()
            if endpoint.mode is AuthMode.SERVICE_ACCOUNT:
                self._kind_answered_at_s[kind] = store.monotonic()
            store.budget.answers.add()
            if not store.breakers.has_failed(institution_key, kind):
                return  # the usual case: there is nothing to clear
        elif not _is_ours(error):
            self._note_disturbed(endpoint, error, is_stopped=store.breakers.over(institution_key, kind) is not None)
        if isinstance(error, ResellerError) and (area := _area_of(endpoint, error)) is not None:
            await store.errors.note_error(area, institution_key, error)
        if isinstance(error, AccessRefused):
            self._figures.count(figure.ACCESS_REFUSED, institution_key, error.endpoint)
        if isinstance(error, ServiceUnavailable) and error.status == 503:
            await self._ease(institution_key, kind)
        pause_s = 0.0
        if isinstance(error, _BUSY):
            self._figures.count(figure.REQUESTS_TURNED_AWAY)
            pause_s = error.retry_after_s or 0.0
        if (result := result_of(endpoint, institution_key, error)) is not None:
            await self.publish(*result, kind, outcome=outcome, pause_s=pause_s)
        if isinstance(error, _BUSY):
            is_own = self._is_turned_away_alone(institution_key)
            with suppress(RedisError):
                await store.budget.turned_away(institution_key, len(store.breakers.acted_for), is_own=is_own)

    def _is_turned_away_alone(self, institution_key: str) -> bool:
        """Note a 429. Return whether the institution gets them again and again, and few others get any.

        Then it has a limit or a quota of its own. A limit of the account would hit all institutions in turn.
        """
        now_s = self._store.monotonic()
        was_before = now_s - self._turned_away_at_s.get(institution_key, -inf) < ALONE_S
        self._turned_away_at_s[institution_key] = now_s
        turned_away, answered = (
            sum(now_s - at_s < ALONE_S for key, at_s in seen.items() if key != ACCOUNT)
            for seen in (self._turned_away_at_s, self._answered_at_s)
        )
        return was_before and turned_away <= answered / ALONE_AMONG

    def _note_disturbed(self, endpoint: Endpoint, error: BaseException, *, is_stopped: bool) -> None:
        """Count a failure that opens no breaker: after an answer of the same endpoint, or an unreadable answer."""
        if not isinstance(error, _DISTURBING) or isinstance(error, _BUSY):
            return
        if not is_stopped and (endpoint.name in self._answered or isinstance(error, AnswerUnreadable)):
            self._figures.count(figure.REQUESTS_DISTURBED, endpoint.name)
        self._answered.discard(endpoint.name)

    async def publish(
        self,
        result: RequestResult,
        institution_key: str,
        kind: EndpointKind,
        *,
        outcome: str = "",
        pause_s: float = 0.0,
        member: str = "",
    ) -> None:
        """Publish to all workers what a request says of its scope, and log which breakers that opened or closed.

        An answer is published only after failures: otherwise it would clear nothing. A check is published again once it
        is known whether it brought a result. ``member`` is the call whose check brought none, ``outcome`` the error for
        the log.
        """
        breakers = self._store.breakers
        if result is RequestResult.ANSWER and not breakers.has_failed(institution_key, kind):
            return
        answered_s_ago = self._store.monotonic() - self._kind_answered_at_s.get(kind, -inf)
        with suppress(RedisError):
            opened, closed = await breakers.report(
                result, institution_key, kind, member=member, pause_s=pause_s, answered_s_ago=answered_s_ago
            )
            for scope in opened:
                self._log_opened(scope, result, outcome)
                if scope.kind is not EndpointKind.CHECK:
                    await self._store.budget.calm(scope.institution_key, len(breakers.acted_for))
            for scope in closed:
                self._log_closed(scope)

    def _log_opened(self, scope: Scope, result: RequestResult, outcome: str) -> None:
        log, about = self._log, {"institution": scope.institution_key}
        match scope.kind:
            case _ if scope == WHOLE:
                self._figures.count(figure.SERVICE_OUTAGES)
                log.error("service_away", error=outcome, because=result)
            case EndpointKind.CALLS:
                log.error("institution_away", error=outcome, because=result, **about)
            case EndpointKind.QUEUE:
                log.error("queue_away", error=outcome, because=result, **about)
            case EndpointKind.CHECK:
                log.error("checks_away", error=outcome, because=result, **about)

    def _log_closed(self, scope: Scope) -> None:
        log, about = self._log, {"institution": scope.institution_key}
        match scope.kind:
            case _ if scope == WHOLE:
                log.info("service_back")
            case EndpointKind.CALLS:
                log.info("institution_back", **about)
            case EndpointKind.QUEUE:
                log.info("queue_back", **about)
            case EndpointKind.CHECK:
                log.info("checks_back", **about)

    async def _ease(self, institution_key: str, kind: EndpointKind) -> None:
        """Lower the rate after a 503. Neither one at a login nor one while a breaker is open counts."""
        store = self._store
        if not institution_key or store.breakers.over(institution_key, kind) is not None:
            return
        if store.budget.answers.add_503():
            with suppress(RedisError):
                await store.budget.strained(institution_key, len(store.breakers.acted_for))


_BUSY = (ServiceBusy, TurnedAway)
_DISTURBING = (ServiceUnavailable, OutcomeUnknown, AnswerUnreadable, CertificateRefused, NotSent)
_FAILURES = (ServiceUnavailable, OutcomeUnknown, NotSent, CertificateRefused, LoginRefused, TokenFault)


def result_of(
    endpoint: Endpoint, institution_key: str, error: BaseException | None
) -> tuple[RequestResult, str] | None:
    """Return what a request says of the service, and of which institution (`ACCOUNT`: of none); None if nothing.

    A request that failed because its login failed is not a failure of its institution. A 401 with a good token proves
    that the service answers, but says nothing of the institution. When the next login may come, or the next request
    about institutions, says nothing of calls: they go on with the token and the standings that are known.
    """
    if endpoint == TOKEN:
        return (RequestResult.LOGIN, ACCOUNT) if isinstance(error, ResellerError) else None
    if endpoint.mode is not AuthMode.SERVICE_ACCOUNT:
        return None
    if isinstance(error, _BUSY) and error.retry_after_s is not None:
        return RequestResult.PAUSE, institution_key
    cause = error.__cause__ if isinstance(error, NotSent) else None
    blamed = cause if isinstance(cause, ResellerError) else error
    match error:
        case NotSent() if _is_ours(error):
            return None
        case AccessRefused():
            return RequestResult.ANSWER, ACCOUNT
        case TokenLapsed():
            return None
        case ServiceBusy() | TurnedAway():
            return RequestResult.ANSWER, institution_key  # reported to the request budget
        case ResellerError() if isinstance(error, _FAILURES):
            is_login = isinstance(blamed, ResellerError) and blamed.endpoint == TOKEN.name
            return RequestResult.FAILURE, ACCOUNT if is_login else institution_key
        case ResellerError() | None:
            return RequestResult.ANSWER, institution_key
    return None


def _area_of(endpoint: Endpoint, error: ResellerError) -> ErrorArea | None:
    """Return what people are told an error of; None if it says something about one call, or was a login's."""
    if endpoint == TOKEN:
        return ErrorArea.LOGIN
    if error.endpoint == TOKEN.name:
        return None
    if endpoint.mode is not AuthMode.SERVICE_ACCOUNT:
        return ErrorArea.STANDING
    if endpoint == QUEUE:
        return ErrorArea.QUEUE
    return None if isinstance(error, ServiceRefused) or _is_ours(error) else ErrorArea.CALLS


def _is_ours(error: BaseException | None) -> bool:
    """Tell whether we kept a request back ourselves: our guard stopped it, or it cannot be sent."""
    is_stopped = isinstance(error, NotSent) and not isinstance(error.__cause__, ResellerError | None)
    return is_stopped or isinstance(error, Unsendable)

"""Tracks whether the service answers: observes every request, and probes where a breaker is open.

The observer counts each request and reports its result to the circuit breakers, which all workers share. See
``calls.store.breakers``.

Every few seconds a probe is sent for each open breaker: a listing of one entry for a queue, stored details of a call for
calls, both for the account, or a login if there is no token. Each probe is a task of its own, so that a hanging one
delays no other. Its result is observed like any other, and a success closes the breaker.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError

from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures
from calls.store.breakers import ACCOUNT, QUEUES, WHOLE, EndpointKind, Heard, Scope
from calls.store.claims_and_leases import Store
from calls.store.keys import CallId
from calls.store.request_budget import Permit
from calls.store.tasks import end
from reseller import (
    AccessRefused,
    CertificateRefused,
    LoginRefused,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceUnavailable,
    TokenFault,
    TokenLapsed,
    TurnedAway,
    Unsendable,
)
from reseller.endpoints import QUEUE, TOKEN, AuthMode, Endpoint
from workers.claimed_call import Tools, follow_member, follow_trace
from workers.managed_institutions import Institutions

_BUSY = (ServiceBusy, TurnedAway)
_FAILURES = (ServiceUnavailable, OutcomeUnknown, CertificateRefused, LoginRefused, TokenFault)


class ServiceObserver:
    """The `Observe` callback that a worker gives to its client."""

    def __init__(self, store: Store, log: Any, figures: Figures) -> None:
        self._store = store
        self._log = log
        self._figures = figures

    async def __call__(
        self, endpoint: Endpoint, institution_key: str, error: BaseException | None, seconds: float
    ) -> None:
        """Count a finished request and report it to the breakers and the request budget."""
        outcome = "answered" if error is None else type(error).__name__
        self._figures.count(figure.SERVICE_REQUESTS, endpoint.name, outcome)
        self._figures.observe(figure.SERVICE_SECONDS, seconds, endpoint.name)
        if endpoint == TOKEN:
            self._figures.count(figure.LOGINS, outcome)
        if isinstance(error, AccessRefused):
            self._figures.count(figure.ACCESS_REFUSED, institution_key, error.endpoint)
        store, kind = self._store, kind_of(endpoint)
        if error is None:
            store.budget.answers.add()
            if not store.breakers.has_failed(institution_key, kind):
                return  # the usual case: there is nothing to clear
        elif not isinstance(error, _BUSY):
            await self._note_503(endpoint, institution_key, error)
        heard = heard_of(endpoint, institution_key, error)
        if heard is not None:
            pause_s = (error.retry_after_s or 0.0) if isinstance(error, _BUSY) else 0.0
            await self._tell(*heard, kind, pause_s, outcome)
        if isinstance(error, _BUSY):
            self._figures.count(figure.REQUESTS_TURNED_AWAY)
            with suppress(RedisError):
                await store.budget.turned_away(institution_key, len(store.breakers.acted_for))

    async def _note_503(self, endpoint: Endpoint, institution_key: str, error: BaseException) -> None:
        """Report a 503 to the request budget. Neither one at a login nor one while a breaker is open counts."""
        store, is_503 = self._store, isinstance(error, ServiceUnavailable) and error.status == 503
        if not is_503 or not institution_key or store.breakers.over(institution_key, kind_of(endpoint)) is not None:
            return
        if store.budget.answers.add_503():
            with suppress(RedisError):
                await store.budget.strained(institution_key, len(store.breakers.acted_for))

    async def _tell(self, heard: Heard, institution_key: str, kind: EndpointKind, pause_s: float, outcome: str) -> None:
        """Report to the breakers. An answer is reported only after failures: otherwise it would clear nothing."""
        breakers = self._store.breakers
        if heard is Heard.ANSWER and not breakers.has_failed(institution_key, kind):
            return
        with suppress(RedisError):
            opened, closed = await breakers.report(heard, institution_key, kind, pause_s=pause_s)
            for scope in opened:
                if scope == WHOLE:
                    self._figures.count(figure.SERVICE_OUTAGES)
                log_opened(self._log, scope, heard, outcome)
                await self._store.budget.calm(scope.institution_key, len(breakers.acted_for))
            for scope in closed:
                log_closed(self._log, scope)


def log_opened(log: Any, scope: Scope, heard: Heard, outcome: str) -> None:
    """Log that a breaker opened, and because of what."""
    key = scope.institution_key
    match scope.kind:
        case _ if scope == WHOLE:
            log.error("service_away", error=outcome, because=heard)
        case EndpointKind.CALLS:
            log.error("institution_away", institution=key, error=outcome, because=heard)
        case EndpointKind.QUEUE:
            log.error("queue_away", institution=key, error=outcome, because=heard)
        case EndpointKind.CHECK:
            log.error("checks_away", institution=key, error=outcome, because=heard)


def log_closed(log: Any, scope: Scope) -> None:
    """Log that a breaker closed."""
    key = scope.institution_key
    match scope.kind:
        case _ if scope == WHOLE:
            log.info("service_back")
        case EndpointKind.CALLS:
            log.info("institution_back", institution=key)
        case EndpointKind.QUEUE:
            log.info("queue_back", institution=key)
        case EndpointKind.CHECK:
            log.info("checks_back", institution=key)


def kind_of(endpoint: Endpoint) -> EndpointKind:
    """Return whether an endpoint lists calls or is about one."""
    return EndpointKind.QUEUE if endpoint == QUEUE else EndpointKind.CALLS


def heard_of(endpoint: Endpoint, institution_key: str, error: BaseException | None) -> tuple[Heard, str] | None:
    """Return what a request says of the service, and of which institution (`ACCOUNT`: of none); None if nothing.

    A request that failed because its login failed is not a failure of its institution. A 401 with a good token proves
    that the service answers, but says nothing of the institution.
    """
    if isinstance(error, _BUSY) and error.retry_after_s is not None:
        return Heard.PAUSE, institution_key
    if endpoint == TOKEN:
        return (Heard.LOGIN, ACCOUNT) if isinstance(error, ResellerError) else None
    if endpoint.mode is not AuthMode.SERVICE_ACCOUNT:
        return None
    match error:
        case NotSent():
            return None if isinstance(error, Unsendable) else _not_sent(error, institution_key)
        case AccessRefused():
            return Heard.ANSWER, ACCOUNT
        case TokenLapsed():
            return None
        case ServiceBusy() | TurnedAway():
            return Heard.ANSWER, institution_key  # reported to the request budget
        case ResellerError() if isinstance(error, _FAILURES):
            return Heard.FAILURE, ACCOUNT if error.endpoint == TOKEN.name else institution_key
        case ResellerError() | None:
            return Heard.ANSWER, institution_key
    return None


def _not_sent(error: NotSent, institution_key: str) -> tuple[Heard, str] | None:
    cause = error.__cause__
    if cause is None:
        return Heard.FAILURE, institution_key
    if isinstance(cause, ResellerError):
        return Heard.FAILURE, ACCOUNT if cause.endpoint == TOKEN.name else institution_key
    return None  # our own guard stopped it


LOOK_EVERY_S: Final = 0.25


@dataclass(slots=True)
class Probing:
    """Sends probes while a shift runs. ``told`` is called when a probe may have closed a breaker."""

    tools: Tools
    institutions: Institutions
    told: Callable[[], None] = lambda: None
    sleep: Callable[[float], Any] = asyncio.sleep
    choose: Callable[[Sequence[CallId]], CallId] = random.choice
    _turn: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send probes until the block ends. No probe outlives it."""
        looking = asyncio.ensure_future(self._look_on())
        try:
            yield
        finally:
            await end({looking, *self._tasks})

    async def look(self) -> set[asyncio.Task[None]]:
        """Start the probes that are due now. Return all that are running."""
        with suppress(RedisError):
            await self.tools.store.budget.look()
            if self.tools.store.breakers.opened:
                for scope in await self.tools.store.breakers.take_probes():
                    probe = asyncio.ensure_future(self._try(scope))
                    self._tasks.add(probe)
                    probe.add_done_callback(self._tasks.discard)
        return set(self._tasks)

    async def _look_on(self) -> None:
        while True:
            await self.look()
            await self.sleep(LOOK_EVERY_S)

    async def _try(self, scope: Scope) -> None:
        follow_trace()
        with suppress(ResellerError, RedisError):
            if scope == WHOLE:
                await self._try_account()
            elif scope == QUEUES:
                await self._list_another()
            elif scope.kind is EndpointKind.QUEUE:
                await self._list_one(scope.institution_key)
            elif not await self._read_one(scope.institution_key):
                await self._list_one(scope.institution_key)
                await self._close(scope)  # there is no call that could fail
        self.told()

    async def _try_account(self) -> None:
        """Log in if there is no token; else list an institution without an open breaker and read a call."""
        if not self.institutions.are_known:
            await self.institutions.refresh()
        elif not self.institutions.keys:
            await self.tools.service.institution_keys()
        else:
            await asyncio.gather(self._list_another(), self._read_one(), return_exceptions=True)

    async def _close(self, scope: Scope) -> None:
        _, closed = await self.tools.store.breakers.report(Heard.ANSWER, scope.institution_key, scope.kind)
        for one in closed:
            log_closed(self.tools.log, one)

    async def _list_another(self) -> None:
        """List an institution, each in turn, those without an open breaker first."""
        tried = {breaker.institution_key for breaker in self.tools.store.breakers.opened}
        keys = sorted(self.institutions.keys - tried) or sorted(self.institutions.keys)
        self._turn += 1
        await self._list_one(keys[self._turn % len(keys)])

    async def _read_one(self, institution_key: str | None = None) -> bool:
        """Read stored details of a call, of an institution if given. Return whether there was one."""
        ours = self.institutions.keys
        calls = [call for call in await self.tools.store.some_calls(institution_key) if call.institution_key in ours]
        if not calls:
            return False
        call_id = self.choose(calls)
        follow_member(*call_id)
        requested_by = self.tools.requested_by(call_id.institution_key)
        await self.tools.store.budget.wait_s(Permit.READ, "probe", call_id.institution_key)
        await self.tools.service.details(*call_id, check=False, requested_by=requested_by)
        return True

    async def _list_one(self, institution_key: str) -> None:
        follow_member(institution_key)
        requested_by = self.tools.requested_by(institution_key)
        # A probe uses a permit but does not wait for it: there is only one probe every few seconds.
        await self.tools.store.budget.wait_s(Permit.LISTING, "probe", institution_key)
        await self.tools.service.queue(institution_key, continue_from=0, page_size=1, requested_by=requested_by)

"""Tracks whether the service answers: observes every request, and probes where a breaker is open.

The observer counts each request and reports its result to the circuit breakers, which all workers share. A breaker
opens for an institution after five failures in a row, or when the service asks for a pause. It opens for the whole
account when logins fail or when several institutions fail together. See ``calls.store.breakers``.

Every few seconds a probe is sent: a login if there is no token, else a listing of one entry. Each probe is a task of
its own, so that a hanging one delays no other. Its result is observed like any other, and a success closes the breaker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError

from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures
from calls.store.breakers import ACCOUNT, Heard
from calls.store.claims_and_leases import Store
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
from reseller.endpoints import TOKEN, AuthMode, Endpoint
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
        was_away = self._is_away(institution_key)
        heard = heard_of(endpoint, institution_key, error)
        if heard is not None:
            pause_s = (error.retry_after_s or 0.0) if isinstance(error, _BUSY) else 0.0
            await self._tell(*heard, pause_s, outcome)
        if error is not None:
            await self._lower(institution_key, error)
        elif not was_away and self._store.budget.answered(endpoint.name, institution_key, seconds):
            with suppress(RedisError):
                await self._store.budget.strained(ACCOUNT, len(self._store.breakers.acted_for))

    async def _lower(self, institution_key: str, error: BaseException) -> None:
        """Report a 429 or 503 to the request budget. Neither a 503 at a login nor one while a breaker is open counts."""
        budget, acted_for = self._store.budget, len(self._store.breakers.acted_for)
        is_503 = isinstance(error, ServiceUnavailable) and error.status == 503
        with suppress(RedisError):
            if isinstance(error, _BUSY):
                self._figures.count(figure.REQUESTS_TURNED_AWAY)
                await budget.turned_away(institution_key, acted_for)
            elif is_503 and institution_key and not self._is_away(institution_key) and budget.overloaded():
                await budget.strained(institution_key, acted_for)

    def _is_away(self, institution_key: str) -> bool:
        breakers = self._store.breakers
        return breakers.has_failed(institution_key) and breakers.over(institution_key) is not None

    async def _tell(self, heard: Heard, institution_key: str, pause_s: float, outcome: str) -> None:
        """Report to the breakers. A success is reported only after failures, so that the usual case costs nothing."""
        breakers = self._store.breakers
        if heard is Heard.ANSWER and not breakers.has_failed(institution_key):
            return
        with suppress(RedisError):
            opened, closed = await breakers.report(heard, institution_key, pause_s=pause_s)
            for key in opened:
                self._log_opened(key, heard, outcome)
                await self._store.budget.calm(key, len(breakers.acted_for))
            for key in closed:
                self._log_closed(key)

    def _log_opened(self, institution_key: str, heard: Heard, outcome: str) -> None:
        if institution_key == ACCOUNT:
            self._figures.count(figure.SERVICE_OUTAGES)
            self._log.error("service_away", error=outcome, because=heard)
        else:
            self._log.error("institution_away", institution=institution_key, error=outcome, because=heard)

    def _log_closed(self, institution_key: str) -> None:
        if institution_key == ACCOUNT:
            self._log.info("service_back")
        else:
            self._log.info("institution_back", institution=institution_key)


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
                for key in await self.tools.store.breakers.take_probes():
                    probe = asyncio.ensure_future(self._try(key))
                    self._tasks.add(probe)
                    probe.add_done_callback(self._tasks.discard)
        return set(self._tasks)

    async def _look_on(self) -> None:
        while True:
            await self.look()
            await self.sleep(LOOK_EVERY_S)

    async def _try(self, institution_key: str) -> None:
        follow_trace()
        with suppress(ResellerError, RedisError):
            if institution_key == ACCOUNT:
                await self._try_account()
            else:
                await self._list_one(institution_key)
        self.told()

    async def _try_account(self) -> None:
        """Log in if there is no token; else list an institution without an open breaker, each in turn."""
        if not self.institutions.are_known:
            await self.institutions.refresh()
            return
        tried = {breaker.institution_key for breaker in self.tools.store.breakers.opened}
        keys = sorted(self.institutions.keys - tried) or sorted(self.institutions.keys)
        self._turn += 1
        if keys:
            await self._list_one(keys[self._turn % len(keys)])
        else:
            await self.tools.service.institution_keys()

    async def _list_one(self, institution_key: str) -> None:
        follow_member(institution_key)
        requested_by = self.tools.requested_by(institution_key)
        # A probe uses a permit but does not wait for it: there is only one probe every few seconds.
        await self.tools.store.budget.wait_s(Permit.LISTING, "probe", institution_key)
        await self.tools.service.queue(institution_key, continue_from=0, page_size=1, requested_by=requested_by)

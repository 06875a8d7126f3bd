"""Observes every request to the service: counts it, and tells the gate that all workers share how it went.

A service that fails five requests in a row, or asks for a pause, is left alone by everybody: nothing is claimed, no check
is booked. Then one member at a time is tried, and the first success opens the gate.
"""

from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from calls.figures import Figures
from calls.figures import catalogue as figure
from calls.store import Store
from reseller import (
    AccessRefused,
    CertificateRefused,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceUnavailable,
    Unsendable,
)
from reseller.endpoints import TOKEN, AuthMode, Endpoint


class ServiceObserver:
    """What a client's `Observe` is in a worker. Only requests about calls open and shut the gate."""

    def __init__(self, store: Store, log: Any, figures: Figures) -> None:
        self._store = store
        self._log = log
        self._figures = figures

    async def __call__(
        self, endpoint: Endpoint, institution_key: str, error: BaseException | None, seconds: float
    ) -> None:
        """Take note of a request that is over."""
        outcome = "answered" if error is None else type(error).__name__
        self._figures.count(figure.SERVICE_REQUESTS, endpoint.name, outcome)
        self._figures.observe(figure.SERVICE_SECONDS, seconds, endpoint.name)
        if endpoint == TOKEN:
            self._figures.count(figure.LOGINS, outcome)
        if endpoint.mode is AuthMode.SERVICE_ACCOUNT:
            await self._tell_gate(institution_key, error)

    async def _tell_gate(self, institution_key: str, error: BaseException | None) -> None:
        match error:
            case ServiceBusy():
                await self._failed(error, error.retry_after_s)
            case NotSent():
                if error.__cause__ is None and not isinstance(error, Unsendable):
                    await self._failed(error)
            case AccessRefused():
                self._figures.count(figure.ACCESS_REFUSED, institution_key, error.endpoint)
            case ServiceUnavailable() | OutcomeUnknown() | CertificateRefused():
                await self._failed(error)
            case ResellerError() | None:
                await self._succeeded()

    async def _failed(self, error: ResellerError, pause_s: float | None = None) -> None:
        with suppress(RedisError):
            if await self._store.report(succeeded=False, pause_s=pause_s):
                self._figures.count(figure.SERVICE_OUTAGES)
                self._log.error("service_away", error=type(error).__name__)

    async def _succeeded(self) -> None:
        """Tell of a success only where there were failures: the usual case costs nothing."""
        if not self._store.gate.failures:
            return
        with suppress(RedisError):
            if await self._store.report(succeeded=True):
                self._log.info("service_back")

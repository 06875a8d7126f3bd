"""The service as moves and listings use it: every outcome is told to the gate that all workers share.

A service that fails five requests in a row, or asks for a pause, is left alone by everybody: nothing is claimed, no check
is booked. Then one member at a time is tried, and the first success opens the gate.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from redis.exceptions import RedisError

from calls.figures import Figures
from calls.figures import catalogue as figure
from calls.gate import Gate
from calls.store import Store
from reseller import (
    AccessRefused,
    CertificateRefused,
    Guard,
    NotSent,
    OutcomeUnknown,
    PhoneCall,
    QueueEntry,
    Reseller,
    ResellerError,
    ServiceBusy,
    ServiceUnavailable,
    Unsendable,
    ValidationType,
)
from reseller.endpoints import TOKEN
from workers.service_clock import ServiceClock

T = TypeVar("T")


class Service:
    """A ``Reseller`` whose outcomes are counted. Raises what that raises.

    Raises:
        ValueError: A request may take longer than the store's lease allows for, or shorter: the two must be one number.
    """

    def __init__(self, reseller: Reseller, store: Store, log: Any, figures: Figures | None = None) -> None:
        if reseller.deadline_s != store.lease.request_s:
            raise ValueError(f"requests take {reseller.deadline_s:g} s, leases allow for {store.lease.request_s:g} s")
        self._reseller = reseller
        self._store = store
        self._log = log
        self._figures = Figures() if figures is None else figures
        self.clock = ServiceClock(store.monotonic)

    @property
    def gate(self) -> Gate:
        """Return this process's view of the gate."""
        return self._store.gate

    def reads_barred_s(self, institution_key: str) -> float | None:
        """Return for how many seconds an institution's calls are left alone after a 401; None if they are not barred."""
        return self._reseller.reads_barred_s(institution_key)

    async def renew(self) -> None:
        """Log in anew if the token was refused."""
        await self._reseller.renew()

    async def queue(
        self,
        institution_key: str,
        *,
        continue_from: int,
        page_size: int,
        start_at: datetime | None,
        requested_by: str,
    ) -> tuple[QueueEntry, ...]:
        """Read a page of an institution's queue."""
        entries = await self._counted(
            institution_key,
            self._reseller.queue(
                institution_key,
                continue_from=continue_from,
                page_size=page_size,
                start_at=start_at,
                requested_by=requested_by,
            ),
        )
        self.clock.see(entry.started_at for entry in entries)
        return entries

    async def details(self, institution_key: str, voice_id: str, *, check: bool, requested_by: str) -> PhoneCall:
        """Read a call's record; with ``check``, one of its 20 authentication checks."""
        return await self._counted(
            institution_key, self._reseller.details(institution_key, voice_id, check=check, requested_by=requested_by)
        )

    async def assign(
        self, institution_key: str, *, person_id: str, requested_by: str, voice_id: str, guard: Guard
    ) -> str:
        """Assign a person by voice id; return the voice id to use from then on."""
        return await self._counted(
            institution_key,
            self._reseller.assign(
                institution_key, person_id=person_id, requested_by=requested_by, voice_id=voice_id, guard=guard
            ),
        )

    async def enroll(
        self,
        institution_key: str,
        voice_id: str,
        *,
        person_id: str,
        validation_type: ValidationType,
        notes: str | None,
        requested_by: str,
        guard: Guard,
    ) -> None:
        """Enroll the voice of a verified person."""
        await self._counted(
            institution_key,
            self._reseller.enroll(
                institution_key,
                voice_id,
                person_id=person_id,
                validation_type=validation_type,
                notes=notes,
                requested_by=requested_by,
                guard=guard,
            ),
        )

    async def reject_voice(self, institution_key: str, voice_id: str, *, requested_by: str, guard: Guard) -> None:
        """Reject the voice of a call."""
        await self._counted(
            institution_key,
            self._reseller.reject_voice(institution_key, voice_id, requested_by=requested_by, guard=guard),
        )

    async def _counted(self, institution_key: str, work: Awaitable[T]) -> T:
        try:
            answer = await work
        except ServiceBusy as error:
            await self._failed(error, error.retry_after_s)
            raise
        except NotSent as error:
            if error.__cause__ is None and not isinstance(error, Unsendable):
                await self._failed(error, None)
            raise
        except AccessRefused as error:
            if error.arrived:
                self._figures.count(figure.ACCESS_REFUSED, institution_key, error.endpoint)
            raise
        except (ServiceUnavailable, OutcomeUnknown, CertificateRefused) as error:
            await self._failed(error, None)
            raise
        except ResellerError:
            await self._succeeded()
            raise
        await self._succeeded()
        return answer

    async def _failed(self, error: ResellerError, pause_s: float | None) -> None:
        with suppress(RedisError):
            if await self._store.report(succeeded=False, pause_s=pause_s):
                self._figures.count(figure.SERVICE_OUTAGES)
                self._log.error("service_away", error=type(error).__name__)

    async def _succeeded(self) -> None:
        """Tell of a success only where there were failures: the usual case costs nothing."""
        if not self.gate.failures:
            return
        with suppress(RedisError):
            if await self._store.report(succeeded=True):
                self._log.info("service_back")


def watch_into(figures: Figures) -> Callable[[str, str, float], None]:
    """Return what counts every request to the service into figures."""

    def watch(endpoint: str, outcome: str, seconds: float) -> None:
        figures.count(figure.SERVICE_REQUESTS, endpoint, outcome)
        figures.observe(figure.SERVICE_SECONDS, seconds, endpoint)
        if endpoint == TOKEN.name:
            figures.count(figure.LOGINS, outcome)

    return watch

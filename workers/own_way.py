"""Whether this process can reach the service: its own way there may be broken while other processes get answers.

A worker on a host without a way to the service would take calls from the others and fail at them, and its failures would
open the breakers of every institution. So a worker whose requests get no answer at all, not even a status, asks whether
other processes were answered meanwhile. If so, it doubts its own way: it claims nothing, holds its failures back, and
sends a probe every two seconds. The first answer ends the doubt. If the first probe gets no answer either, the way counts
as broken: that is an incident, and the worker releases the calls that wait for an answer.

If no other process is answered either, the service itself fails, and the breakers handle that. Nothing is stored: each
process reports every second how long ago it was last answered (`Doing`). Only durations are compared, so a wrong clock
does no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from msgspec.structs import replace

from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.snapshot import Process
from callkeeper.service import (
    AccessRefused,
    CertificateRefused,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceUnavailable,
    TurnedAway,
    Unsendable,
)
from callkeeper.service.endpoints import TOKEN, Endpoint

FAILURES: Final = 2
SILENT_S: Final = 2.0
"""A process is silent after this many requests in a row without an answer, at least this many seconds after it sent the
first of them. A process that was never answered is silent without waiting for the seconds."""

LATELY_S: Final = 3.0
REPORTED_S: Final = 1.5
"""Others can reach the service if one of them was answered within ``LATELY_S``, and after this process began to fail. A
report may be ``REPORTED_S`` old, so the answer must be newer by that much. Without this margin, an outage that hits all
processes at about the same time would make some of them doubt their own way."""

STAYS_S: Final = 15.0
"""A doubt ends if no other process was answered for this long. An idle process lists a queue every 8 s."""

LOOK_EVERY_S: Final = 0.5
PROBE_EVERY_S: Final = 2.0


@dataclass(slots=True)
class OwnWay:
    """What a process knows of its own way. ``processes`` reads all processes that report, among them this one, ``name``."""

    name: str
    processes: Callable[[], Awaitable[Sequence[Process]]]
    monotonic: Callable[[], float]
    log: Any
    _answered_at_s: float | None = None
    _failures: int = 0
    _silent_since_s: float = inf
    _doubted_since_s: float | None = None
    _looked_at_s: float = -inf
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _probed_at_s: float = -inf
    _probes: int = 0

    @property
    def is_doubted(self) -> bool:
        """Tell whether others are answered and this process is not: then it leaves all work to them."""
        return self._doubted_since_s is not None

    @property
    def is_broken(self) -> bool:
        """Tell whether a probe got no answer either."""
        return self.is_doubted and self._probes > 1

    def answered(self) -> None:
        """Note that a request was answered."""
        if self.is_broken:
            self.log.info("own_way_back")
        self._answered_at_s = self.monotonic()
        self._failures = 0
        self._doubted_since_s = None

    async def failed(self, seconds: float) -> None:
        """Note that a request got no answer within ``seconds``, and look at the others.

        Raises:
            redis.exceptions.RedisError: Redis is down.
        """
        if not self._failures:
            began_s, answered_at_s = self.monotonic() - seconds, self._answered_at_s
            self._silent_since_s = -inf if answered_at_s is None else max(began_s, answered_at_s)
        self._failures += 1
        await self.look()

    async def look(self) -> None:
        """If this process is silent, look whether others are answered. Concurrent calls share one look.

        Raises:
            redis.exceptions.RedisError: Redis is down.
        """
        async with self._looking:
            if not self._is_silent or self.monotonic() - self._looked_at_s < LOOK_EVERY_S:
                return
            self._looked_at_s = self.monotonic()
            others_s_ago = answered_s_ago(await self.processes(), without=self.name)
            if self._is_silent:  # still, after the wait for Redis
                self._judge(others_s_ago)

    @property
    def _is_silent(self) -> bool:
        return self._failures >= FAILURES and self.monotonic() - self._silent_since_s >= SILENT_S

    def _judge(self, others_s_ago: float) -> None:
        now_s = self.monotonic()
        if not others_can(others_s_ago, now_s - self._silent_since_s, is_doubted=self.is_doubted):
            self._doubted_since_s = None
        elif not self.is_doubted:
            self._doubted_since_s, self._probes, self._probed_at_s = now_s, 0, -inf

    def take_probe(self) -> bool:
        """Tell whether a probe of the own way is due, and count it as sent."""
        if not self.is_doubted or self.monotonic() - self._probed_at_s < PROBE_EVERY_S:
            return False
        self._probed_at_s = self.monotonic()
        self._probes += 1
        if self._probes == 2:  # the first one has brought no answer until now
            self.log.error("own_way_broken", failures=self._failures)
        return True

    def told_in(self, doing: Doing) -> Doing:
        """Add to a report when this process was last answered, and for how long its way has been broken."""
        now_s, answered_at_s, since_s = self.monotonic(), self._answered_at_s, self._doubted_since_s
        return replace(
            doing,
            answered_s_ago=None if answered_at_s is None else round(now_s - answered_at_s, 1),
            cut_off_s=round(now_s - since_s, 1) if since_s is not None and self.is_broken else None,
        )


def answered_s_ago(processes: Sequence[Process], *, without: str) -> float:
    """Return how long ago another process was last answered, in seconds; infinite if none was."""
    others = (process.doing for process in processes if process.name != without)
    known = (doing.answered_s_ago for doing in others if doing is not None)
    return min((ago for ago in known if ago is not None), default=inf)


def others_can(others_s_ago: float, silent_s: float, *, is_doubted: bool) -> bool:
    """Tell whether others can reach the service.

    Args:
        others_s_ago: How many seconds ago one of them was last answered.
        silent_s: For how many seconds this process has been silent.
        is_doubted: Whether this process doubts its own way already. A doubt is kept longer than it takes to begin one.
    """
    return others_s_ago < (STAYS_S if is_doubted else min(LATELY_S, silent_s - REPORTED_S))


def was_answered(endpoint: Endpoint, error: BaseException | None) -> bool | None:
    """Tell whether the service answered a request, with whatever status; None if the request does not show it.

    A request that waited for a login shows nothing: the login is reported by itself, by the process that made it.
    """
    cause = error.__cause__ if isinstance(error, NotSent) and error.__cause__ is not None else error
    match cause:
        case None | TurnedAway():
            return True
        case ResellerError() if cause.endpoint == TOKEN.name != endpoint.name:
            return None
        case AccessRefused():
            return True if cause.arrived else None
        case Unsendable() | OutcomeUnknown():
            return None
        case ServiceUnavailable():
            return cause.status is not None
        case NotSent() | CertificateRefused():
            return False
        case ResellerError():
            return True
    return None

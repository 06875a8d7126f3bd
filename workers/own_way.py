"""Whether this process can reach the service: its own way there may be broken while other processes get answers.

A worker on a host without a way to the service would take calls from the others and fail at them, and its failures would
open the breakers of every institution. So a worker whose requests get no answer of the service, not even a status, asks
whether other processes were answered meanwhile. What a proxy or a captive portal answers in the service's place is no
answer. Until it can know, it already claims nothing, holds its failures back, and sends a probe every two seconds. If
others were answered, it doubts its own way, and goes on with that. The first answer ends the doubt. Once a probe has
failed, the way counts as broken: that is an incident, and the worker releases the calls that wait for an answer.

A host may have lost only the way for new connections: its name server fails, or its firewall or NAT lets no more through.
Then reads go on over kept connections, and effects, which open one each, get no answer. So these are a row of their own,
which answers over kept connections do not end, and every probe opens a connection.

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

JUDGED_S: Final = LATELY_S + REPORTED_S
"""If others were answered lately, a process cannot know for this long whose fault its failures are: then their reports show
whether they still are answered. Until then it holds its failures back, and after ``FAILURES`` it leaves all work to the
others. A proxy answers so fast that the failures would open every breaker before the first look, for the others too."""

STAYS_S: Final = 15.0
"""A doubt ends if no other process was answered for this long. An idle process lists a queue every 8 s."""

CONNECTED_LATELY_S: Final = 15.0
CONNECTED_STAYS_S: Final = 60.0
"""The same times for requests over connections of their own. They are rarer: a call has two or three."""

LOOK_EVERY_S: Final = 0.5
PROBE_EVERY_S: Final = 2.0


@dataclass(slots=True)
class UnansweredRow:
    """A process's requests without an answer in a row, and since when it doubts its way because of them."""

    lately_s: float
    stays_s: float
    answered_at_s: float | None = None
    failures: int = 0
    silent_since_s: float = inf
    doubted_since_s: float | None = None

    def answered(self, now_s: float) -> None:
        """End the row, and the doubt."""
        self.answered_at_s, self.failures, self.doubted_since_s = now_s, 0, None

    def failed(self, now_s: float, seconds: float) -> None:
        """Count a request that got no answer in so many seconds."""
        if not self.failures:
            began_s, answered_at_s = now_s - seconds, self.answered_at_s
            self.silent_since_s = -inf if answered_at_s is None else max(began_s, answered_at_s)
        self.failures += 1

    def is_young(self, now_s: float) -> bool:
        """Tell whether the row has just begun."""
        return self.failures > 0 and now_s - self.silent_since_s < JUDGED_S

    def is_silent(self, now_s: float) -> bool:
        """Tell whether the row is a reason to look at the others."""
        return self.failures >= FAILURES and now_s - self.silent_since_s >= SILENT_S

    def judge(self, others_s_ago: float, now_s: float) -> None:
        """Doubt the way, or not, if another process got such an answer so long ago."""
        if not self.others_can(others_s_ago, now_s):
            self.doubted_since_s = None
        elif self.doubted_since_s is None:
            self.doubted_since_s = now_s

    def others_can(self, others_s_ago: float, now_s: float) -> bool:
        """Tell whether others can reach the service, if one was answered so long ago."""
        silent_s, is_doubted = now_s - self.silent_since_s, self.doubted_since_s is not None
        return others_s_ago < (self.stays_s if is_doubted else min(self.lately_s, silent_s - REPORTED_S))


@dataclass(slots=True)
class OwnWay:
    """What a process knows of its own way. ``processes`` reads all processes that report, among them this one, ``name``."""

    name: str
    processes: Callable[[], Awaitable[Sequence[Process]]]
    monotonic: Callable[[], float]
    log: Any
    _all: UnansweredRow = field(default_factory=lambda: UnansweredRow(LATELY_S, STAYS_S))
    _connecting: UnansweredRow = field(default_factory=lambda: UnansweredRow(CONNECTED_LATELY_S, CONNECTED_STAYS_S))
    """The row of the requests over connections of their own."""
    _looked_at_s: float = -inf
    _judged_at_s: float = -inf
    _others_s_ago: float = inf
    """How long ago another process was answered, at the last look."""
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _probed_at_s: float = -inf
    _has_probe_failed: bool = False
    _foreign_answer: str = ""
    """What something else answered in the service's place, since the service answered last."""

    @property
    def doubted_since_s(self) -> float | None:
        """Return since when the way is doubted, by the monotonic clock; None if it is not."""
        known = (self._all.doubted_since_s, self._connecting.doubted_since_s)
        return min((since_s for since_s in known if since_s is not None), default=None)

    @property
    def is_doubted(self) -> bool:
        """Tell whether others are answered and this process is not."""
        return self.doubted_since_s is not None

    @property
    def is_in_question(self) -> bool:
        """Tell whether it is too early to know whose fault it is that no request is answered."""
        return self._all.is_young(self.monotonic()) and not self.is_doubted and self._others_s_ago < LATELY_S

    @property
    def leaves_work(self) -> bool:
        """Tell whether this process leaves all work to the others, because its way is doubted, or soon may be."""
        return self.is_doubted or (self.is_in_question and self._all.failures >= FAILURES)

    @property
    def is_broken(self) -> bool:
        """Tell whether a probe got no answer either."""
        return self.is_doubted and self._has_probe_failed

    def answered(self, *, connects: bool = False) -> None:
        """Note that a request was answered. ``connects``: it had a connection of its own."""
        was_broken, now_s = self.is_broken, self.monotonic()
        self._all.answered(now_s)
        self._foreign_answer = ""
        if connects:
            self._connecting.answered(now_s)
        if was_broken and not self.is_doubted:
            self.log.info("own_way_back")

    async def failed(self, seconds: float, *, connects: bool = False, foreign_answer: str = "") -> None:
        """Note that a request got no answer within ``seconds``, but perhaps a ``foreign_answer``, and look at the others.

        Raises:
            redis.exceptions.RedisError: Redis is down.
        """
        now_s, self._foreign_answer = self.monotonic(), foreign_answer or self._foreign_answer
        self._all.failed(now_s, seconds)
        if connects:
            self._connecting.failed(now_s, seconds)
        await self.look()

    async def look(self) -> None:
        """If this process gets no answer, look whether others do, and once it is silent, judge its way by that.

        Concurrent calls share one look.

        Raises:
            redis.exceptions.RedisError: Redis is down.
        """
        async with self._looking:
            now_s = self.monotonic()
            if self._silent:
                if now_s - self._judged_at_s < LOOK_EVERY_S:
                    return
                self._judged_at_s = now_s
            elif not self._all.is_young(now_s) or now_s - self._looked_at_s < REPORTED_S:
                return
            self._looked_at_s = now_s
            processes, was_doubted = await self.processes(), self.is_doubted
            others_s_ago = self._others_s_ago = answered_s_ago(processes, without=self.name)
            connected_s_ago = answered_s_ago(processes, without=self.name, connects=True)
            if others_s_ago >= STAYS_S:  # they get no answers at all any more, whatever was a minute ago
                connected_s_ago = inf
            for row in self._silent:  # those that still are, after the wait for Redis
                row.judge(connected_s_ago if row is self._connecting else others_s_ago, self.monotonic())
            if not was_doubted:
                self._has_probe_failed, self._probed_at_s = False, -inf

    @property
    def _silent(self) -> list[UnansweredRow]:
        now_s = self.monotonic()
        return [row for row in (self._all, self._connecting) if row.is_silent(now_s)]

    def take_probe(self) -> bool:
        """Tell whether a probe of the own way is due, and note that it is sent."""
        if not self.leaves_work or self.monotonic() - self._probed_at_s < PROBE_EVERY_S:
            return False
        self._probed_at_s = self.monotonic()
        return True

    def probe_ended(self, doubted_since_s: float | None) -> None:
        """Note the end of a probe that began during the doubt since then: it failed if that doubt is still there."""
        if self.doubted_since_s is None or self.doubted_since_s != doubted_since_s or self._has_probe_failed:
            return
        self._has_probe_failed = True
        failures = max(self._all.failures, self._connecting.failures)
        self.log.error("own_way_broken", failures=failures, foreign_answer=self._foreign_answer)

    def told_in(self, doing: Doing) -> Doing:
        """Add to a report when this process was last answered, and for how long its way has been broken."""
        now_s, since_s = self.monotonic(), self.doubted_since_s if self.is_broken else None
        answered, connected = (
            None if row.answered_at_s is None else round(now_s - row.answered_at_s, 1)
            for row in (self._all, self._connecting)
        )
        return replace(
            doing,
            answered_s_ago=answered,
            connected_s_ago=connected,
            cut_off_s=None if since_s is None else round(now_s - since_s, 1),
            foreign_answer="" if since_s is None else self._foreign_answer,
        )


def answered_s_ago(processes: Sequence[Process], *, without: str, connects: bool = False) -> float:
    """Return how long ago another process was last answered, in seconds; infinite if none was.

    ``connects``: over a connection of the request's own.
    """
    others = [process.doing for process in processes if process.name != without and process.doing is not None]
    known = (doing.connected_s_ago if connects else doing.answered_s_ago for doing in others)
    return min((ago for ago in known if ago is not None), default=inf)


def was_answered(endpoint: Endpoint, error: BaseException | None) -> bool | None:
    """Tell whether the service itself answered a request, with whatever status; None if the request does not show it.

    A request that waited for a login shows nothing: the login is reported by itself, by the process that made it.
    """
    cause = error.__cause__ if isinstance(error, NotSent) and error.__cause__ is not None else error
    match cause:
        case None | TurnedAway():
            return True
        case ResellerError() if cause.endpoint == TOKEN.name != endpoint.name:
            return None
        case ResellerError() if cause.foreign is not None:
            return False
        case AccessRefused():
            return True if cause.arrived else None
        case Unsendable():
            return None
        case ServiceUnavailable() | OutcomeUnknown():
            return cause.status is not None
        case NotSent() | CertificateRefused():
            return False
        case ResellerError():
            return True
    return None

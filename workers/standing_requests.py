"""A worker's requests about the standing of institutions: which keys come first, and when none may be sent.

It remembers between requests which keys failed, which are still to be asked for, and until when the service wants no more
requests. `workers.standings` sends them.
"""

import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.store.request_budget import Permit
from callkeeper.service import AnswerUnreadable, ResellerError, ServiceBusy, ServiceUnavailable
from callkeeper.service.client import Reseller
from workers.counting import Counting
from workers.standings import Standings, ask_standings

PORTION_S = 2.0
"""After this time, in seconds, what was learned is used before more keys are asked for: a worker that starts waits for
it."""


@dataclass(slots=True, eq=False)
class StandingRequests:
    """Asks the service about institutions, with a permit for each request that no effect waits for."""

    service: Reseller
    wait_s: Callable[[Permit, str, str], Awaitable[float]]
    """Takes a permit, or says how long to wait for one: `RequestBudget.wait_s`."""
    monotonic: Callable[[], float]
    log: FilteringBoundLogger
    counting: Counting
    left: tuple[str, ...] = ()
    """Keys that are asked for next (`Standings.left`)."""
    _errors: dict[str, ResellerError] = field(default_factory=dict)
    """The last errors of keys that failed, in the order in which they were asked for."""
    _unlisted_because: str = ""
    _paused_until_s: float = -math.inf
    """The service asked for no more requests about institutions before this time (`Retry-After`). Calls go on."""

    @property
    def is_paused(self) -> bool:
        return self.monotonic() < self._paused_until_s

    def is_silent(self, keys: Collection[str]) -> bool:
        """Tell whether the last request for one of these keys got no answer. A refusal and a 429 are answers."""
        errors = [self._errors.get(key) for key in keys]
        return any(isinstance(one, ServiceUnavailable) and not isinstance(one, ServiceBusy) for one in errors)

    async def ask_one(self, key: str) -> tuple[Standings, ResellerError | None]:
        """Ask for one institution, or for the `LIST`, if no 429 forbids it. Return what was learned, and the error."""
        asked = Standings()
        error = None if self.is_paused else await asked.ask(self.service, key)
        self._heed(error)
        return asked, error

    async def ask(self, keys: Collection[str], told: Collection[str]) -> Standings:
        """Ask for institutions. Log and count those that cannot be read.

        ``told`` are the keys of which something is known: they are asked for after those of which nothing is. Keys that
        failed before come last, those that were asked for longest ago first.
        """
        began_s = self.monotonic()

        async def may_ask(key: str) -> bool:
            if self.monotonic() - began_s > PORTION_S:
                return False
            kind = Permit.LISTING if key in told else Permit.EFFECT
            return not await self.wait_s(kind, "standing", key)

        turns = {key: number for number, key in enumerate(self._errors, start=1)}
        in_turn = sorted(keys, key=lambda key: (turns.get(key, 0), key in told, key not in self.left, key))
        asked = await ask_standings(self.service, in_turn, may_ask=may_ask)
        self.left = tuple(asked.left)
        self._heed(asked.list_error, *asked.unreadable.values())
        self._report_list(asked)
        self._report_keys(asked)
        return asked

    def _heed(self, *errors: ResellerError | None) -> None:
        """Ask for nothing until the time that a 429 has named, if one of these errors is such a 429."""
        for error in errors:
            if isinstance(error, ServiceBusy) and error.retry_after_s is not None:
                self._paused_until_s = max(self._paused_until_s, self.monotonic() + error.retry_after_s)

    def _report_list(self, asked: Standings) -> None:
        """Log once for each kind of error in a row why the list could not be read."""
        if asked.named is not None:
            self._unlisted_because = ""
        elif asked.list_error is not None and self._unlisted_because != (because := type(asked.list_error).__name__):
            self._unlisted_because = because
            self.log.warning("institutions_unlisted", error=because)
        if isinstance(asked.list_error, AnswerUnreadable):
            self.counting.figures.count(figure.INSTITUTIONS_UNLISTED)

    def _report_keys(self, asked: Standings) -> None:
        """Count keys that cannot be read, and log each once for each kind of error in a row."""
        for key, error in asked.unreadable.items():
            self.counting.figures.count(figure.INSTITUTIONS_UNREADABLE, key)
            if type(error) is not type(self._errors.get(key)):
                self.log.warning("institution_unreadable", institution=key, error=type(error).__name__)
        before = {key: error for key, error in self._errors.items() if key not in asked.unreadable}
        self._errors = {key: error for key, error in (before | asked.unreadable).items() if key not in asked.known}

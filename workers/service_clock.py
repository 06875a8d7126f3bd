"""How old a call is by the service's clock, which may differ from ours by hours."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

FAMILIAR_S = 10.0
"""A process that has read queues for so long has met every call that was there when it began."""


class ServiceClock:
    """What the service's clock says, learned from the starts of the calls that it lists.

    No call starts in the future: the service's clock says at least what the newest start says that was ever listed, and what
    has passed here since.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Learn nothing yet. ``monotonic`` is this process's own clock, in seconds."""
        self._monotonic = monotonic
        self._began_s: float | None = None
        self._ahead_s: float | None = None

    def see(self, starts: Iterable[datetime]) -> None:
        """Learn from a page of a queue, empty or not."""
        now_s = self._monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        known = [] if self._ahead_s is None else [self._ahead_s]
        self._ahead_s = max([*known, *(started_at.timestamp() - now_s for started_at in starts)], default=None)

    def age(self, started_at: datetime, now: datetime) -> timedelta:
        """Return how old a call is.

        Args:
            started_at: When it started, by the service's clock.
            now: Redis's time. A process that does not know the service's clock yet believes that both agree, unless the
                call would be younger by that.
        """
        age_s = 0.0
        if self._ahead_s is not None:
            age_s = max(0.0, self._monotonic() + self._ahead_s - started_at.timestamp())
        if self._began_s is None or self._monotonic() - self._began_s < FAMILIAR_S:
            age_s = max(age_s, (now - started_at).total_seconds())
        return timedelta(seconds=age_s)

"""How old a call is by the service's clock, which may differ from ours by hours."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from calls.claimed import Epoch

FOUND_WITHIN_S = 10.0
"""A call is found so soon after it began. A process that has read queues for so long has met every call of before."""

LISTED_ANEW = timedelta(seconds=120)
"""For how long after Redis was emptied calls are found that are not new."""

MOST_LEARNED = 100
UNKNOWN = timedelta(days=1)


class ServiceClock:
    """What the service's clock says, learned from the starts of the calls that it lists.

    No call starts in the future: the service's clock says at least what the newest start says that was ever listed, and what
    has passed here since. A call that nobody knew of was found within 10 s: once this process found one, the clock says no
    more than that and 10 s.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Learn nothing yet. ``monotonic`` is this process's own clock, in seconds."""
        self._monotonic = monotonic
        self._began_s: float | None = None
        self._found_s: float | None = None
        self._learned: list[tuple[float, float]] = []  # when, and by how much the service's clock is ahead of ours

    def see(self, starts: Iterable[datetime]) -> None:
        """Learn from a page of a queue, empty or not."""
        now_s = self._monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        ahead_s = max((started_at.timestamp() - now_s for started_at in starts), default=None)
        if ahead_s is not None and (not self._learned or ahead_s > self._learned[-1][1]):
            self._learned = [*self._learned[1 - MOST_LEARNED :], (now_s, ahead_s)]

    def found(self, started_at: datetime, now: datetime, epoch: Epoch) -> timedelta:
        """Return how old a call is at the most that was just found, and learn from it if it must be new."""
        age = self.age(started_at, now, epoch)
        if now - epoch.since >= LISTED_ANEW:
            self.see([started_at])
            self._found_s = self._monotonic() if self._found_s is None else self._found_s
        return age

    def age(self, started_at: datetime, now: datetime, epoch: Epoch) -> timedelta:
        """Return how old a call is at the most, as far as that can be told.

        Args:
            started_at: When it started, by the service's clock.
            now: Redis's time.
            epoch: The Redis that the call was found with. One that this process saw begin may have forgotten older calls:
                they tell nothing of the service's clock.
        """
        now_s = self._monotonic()
        by_redis = now - started_at
        if epoch.was_seen_to_begin:
            began_s = now_s - (now - epoch.since).total_seconds()
            known = [ahead_s for at_s, ahead_s in self._learned if at_s < began_s]
            if known and self._found_s is not None and self._found_s < began_s:
                return timedelta(seconds=now_s + known[-1] + FOUND_WITHIN_S - started_at.timestamp())
            return by_redis if by_redis >= timedelta() else UNKNOWN
        ahead = [timedelta(seconds=now_s + self._learned[-1][1] - started_at.timestamp())] if self._learned else []
        return max([*ahead, timedelta()] if self._was_familiar(now_s) else [*ahead, by_redis])

    def _was_familiar(self, at_s: float) -> bool:
        return self._began_s is not None and at_s - self._began_s >= FOUND_WITHIN_S

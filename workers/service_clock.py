"""The service's clock, which may differ from ours by hours: how old can a call be that was just found?

Assumed (`service-clock`): it may differ, but it goes. It is learned, and its instants are only compared with each other.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from math import inf

from callkeeper.calls.claimed_item import Epoch

FOUND_WITHIN_S = 10.0
"""A call is found within this many seconds of its start. A process that has listed for that long knows older calls."""

LISTED_ANEW = timedelta(seconds=120)
"""For this long after Redis was emptied, a call that is found may be an old one, even if the first listing lacked it."""

MOST_LEARNED = 100

RELEARNED_EVERY_S = 3600.0
"""How often the clock is learned anew, from the calls found since: it may have been set back, or one start was wrong."""


class ServiceClock:
    """Estimates the service's clock from the start times of the calls that it lists.

    No call starts in the future, so the service's clock shows at least the newest start that was listed, plus the time
    that has passed since. A new call is found within 10 s, so once this process has found one, the clock shows at most
    10 s more than that. Once an hour, the estimate is replaced by what the calls found in that hour have shown.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Start without any observation. ``monotonic`` is this process's own clock, in seconds."""
        self._monotonic = monotonic
        self._began_s: float | None = None
        self._found_s: float | None = None
        self._relearned_s = monotonic()
        self._lately_s = -inf
        """By how much the service's clock is ahead of ours at least, by the calls found since ``_relearned_s``."""
        self._learned: list[tuple[float, float]] = []
        """When it was learned by how much the service's clock is ahead of ours at least, and by how much."""

    def learn(self, starts: Iterable[datetime]) -> None:
        """Learn from the start times on a page of a queue, which may be empty."""
        now_s = self._monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        ahead_s = max((started_at.timestamp() - now_s for started_at in starts), default=None)
        if ahead_s is not None and (not self._learned or ahead_s > self._learned[-1][1]):
            self._learned = [*self._learned[1 - MOST_LEARNED :], (now_s, ahead_s)]

    def least_age(self, started_at: datetime | None) -> timedelta:
        """Return how old a call is at least: the service's clock shows no less than what was learned."""
        if started_at is None or not self._learned:
            return timedelta()
        age_s = self._monotonic() + self._learned[-1][1] - started_at.timestamp()
        return timedelta(seconds=max(0.0, age_s))

    def found(self, started_at: datetime | None, now: datetime, epoch: Epoch, *, may_be_old: bool) -> timedelta | None:
        """Return the maximum age of a call that was just found, and learn from it if it must be new. As `age`."""
        may_be_old = may_be_old or now - epoch.since < LISTED_ANEW
        age = self.age(started_at, now, epoch, may_be_old=may_be_old)
        if started_at is not None and not may_be_old:
            self.learn([started_at])
            self._found_s = self._monotonic() if self._found_s is None else self._found_s
            self._relearn(started_at)
        return age

    def _relearn(self, started_at: datetime) -> None:
        """Once an hour, replace the estimate by what the calls found in that hour have shown."""
        now_s = self._monotonic()
        ahead_s = started_at.timestamp() - now_s
        self._lately_s = max(self._lately_s, ahead_s)
        if now_s - self._relearned_s >= RELEARNED_EVERY_S:
            self._learned = [*self._learned[1 - MOST_LEARNED :], (now_s, self._lately_s)]
            self._relearned_s, self._lately_s = now_s, ahead_s

    def age(self, started_at: datetime | None, now: datetime, epoch: Epoch, *, may_be_old: bool) -> timedelta | None:
        """Return the maximum age of a call; None if it may have any.

        Args:
            started_at: When it started, by the service's clock; None if the service does not tell.
            now: Redis's time.
            epoch: The Redis instance it was found with. If this process saw that instance begin, calls found now may be
                old ones that were lost, so their start times say nothing about the service's clock.
            may_be_old: Whether the call may be older than that instance. If so, a process that did not find a call
                before the instance began cannot tell by how much the service's clock is ahead.
        """
        if started_at is None:
            return None if may_be_old else timedelta()
        now_s = self._monotonic()
        if epoch.was_seen_to_begin:
            began_s = now_s - (now - epoch.since).total_seconds()
            known = [ahead_s for at_s, ahead_s in self._learned if at_s < began_s]
            if known and self._found_s is not None and self._found_s < began_s:
                return timedelta(seconds=now_s + known[-1] + FOUND_WITHIN_S - started_at.timestamp())
        if may_be_old and epoch.is_replaced:
            return None
        ahead = [timedelta(seconds=now_s + self._learned[-1][1] - started_at.timestamp())] if self._learned else []
        was_familiar = self._began_s is not None and now_s - self._began_s >= FOUND_WITHIN_S
        return max([*ahead, timedelta()] if was_familiar else [*ahead, now - started_at])

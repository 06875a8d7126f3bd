"""The check schedule: when the automatic checks of a call are made, in seconds after its watch began.

A schedule is a backoff: gaps never shrink after the first check. A slot that was missed is skipped, never caught up; after
the last slot the last gap goes on for as long as the budget lasts.

Every call follows it at a pace of its own, up to 3 % slower or faster by its voice id, so that calls do not poll in step:
gaps keep their order and the number of slots is the same. Where fewer checks are left than slots, because one went without
an answer, those left are spread over what remains: the times are read as a density of checks, and a density thins evenly.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

from calls.record import CHECK_LIMIT

PACE = 0.03
"""By how much a call's own pace differs at most from the schedule's."""

RETRY = timedelta(seconds=1)
"""The least wait after a check without an answer; doubled with every further one."""

MOST_AHEAD = 2
"""How many checks that make up for lost ones may have been made beyond the slots that have passed. It bounds what a call can
have spent by any moment, and so what counts as spent after Redis lost writes (``calls.lost_checks``)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Check times in seconds after the watch began, and how many checks are kept back for the desk."""

    at_s: tuple[float, ...]
    reserve: int = 2

    def __post_init__(self) -> None:
        for fault in schedule_faults(self.at_s, self.reserve):
            raise ValueError(fault)

    @property
    def automatic_limit(self) -> int:
        """Return how many checks may be made without anybody asking."""
        return CHECK_LIMIT - self.reserve

    def paced(self, voice_id: str) -> "Schedule":
        """Return the schedule at a call's own pace: every time multiplied by one factor, the same whenever it is asked for.

        No slot moves past the middle of a gap beside it.
        """
        factor = 1 + _most_pace(self.at_s) * (2 * crc32(voice_id.encode()) / 2**32 - 1)
        return _Paced(tuple([t * factor for t in self.at_s]), self.reserve)

    def first_slot(self, watch_from: datetime) -> datetime:
        """Return the first slot of all."""
        return watch_from + timedelta(seconds=self.at_s[0])

    def next_slot(self, watch_from: datetime, after: datetime) -> datetime:
        """Return the first slot later than ``after``."""
        passed_s = (after - watch_from).total_seconds()
        index = self.slots_passed(watch_from, after)
        if index < len(self.at_s):
            return watch_from + timedelta(seconds=self.at_s[index])
        last, gap = self.at_s[-1], self._last_gap_s
        steps = int((passed_s - last + 1e-6) // gap) + 1
        return watch_from + timedelta(seconds=last + steps * gap)

    def slots_passed(self, watch_from: datetime, now: datetime) -> int:
        """Return how many slots lie in the past."""
        # An instant is rounded to microseconds: a check at the very instant of a slot would be before it, and made again.
        return bisect_right(self.at_s, (now - watch_from).total_seconds() + 1e-6)

    def plan(
        self, watch_from: datetime, now: datetime, *, left: int, answered_at: datetime | None = None, failures: int = 0
    ) -> datetime:
        """Return when the next check is made: at the next slot, as long as every slot to come has its check.

        Otherwise the checks that are left share evenly what lies between the last *answered* one, which is all that is
        known, and the end: with k of n + 1 gaps passed by then, the next is made where k + (n + 1 - k) / (left + 1) gaps
        have passed. After a failure that is almost at once, so it waits at least 1, 2, 4 ... s, though not beyond the
        next slot: what failed may fail again. Once ``MOST_AHEAD`` lost checks were made up for, it waits for the slot.

        Args:
            watch_from: When the watch began.
            now: The present.
            left: Automatic checks that may still be made.
            answered_at: When the last check was made that had an answer; None if none had.
            failures: Checks without an answer since then.
        """
        slot = self.next_slot(watch_from, now)
        passed = self.slots_passed(watch_from, now)
        slots_left = len(self.at_s) - passed
        if left >= slots_left and not (failures and slots_left):
            return slot
        known = self._place((answered_at - watch_from).total_seconds()) if answered_at else 0.0
        share = (len(self.at_s) + 1 - known) / (left + 1)
        at = watch_from + timedelta(seconds=self._time(known + share))
        if failures:
            made = len(self.at_s) - left
            wait = RETRY * float(2 ** min(failures - 1, 10))
            at = max(at, slot if made - passed >= MOST_AHEAD else min(slot, now + wait))
        return max(at, now)

    @property
    def _marks_s(self) -> tuple[float, ...]:
        """The beginning of the watch, the slots, and one gap more: places 0, 1 ... n + 1."""
        return (0.0, *self.at_s, self.at_s[-1] + self._last_gap_s)

    def _place(self, t_s: float) -> float:
        """Return how many marks lie before a time, with the part of the gap that has passed."""
        marks = self._marks_s
        k = min(bisect_right(marks, t_s) - 1, len(marks) - 2)
        return k + min(1.0, (t_s - marks[k]) / (marks[k + 1] - marks[k]))

    def _time(self, place: float) -> float:
        """Return the time at a place."""
        marks = self._marks_s
        k = min(int(place), len(marks) - 2)
        return marks[k] + (place - k) * (marks[k + 1] - marks[k])

    @property
    def _last_gap_s(self) -> float:
        return self.at_s[-1] - self.at_s[-2] if len(self.at_s) > 1 else max(self.at_s[-1], 1.0)


class _Paced(Schedule):
    """A schedule at a call's own pace: what was valid stays so, because one factor keeps the order of times and gaps."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Judge nothing: this is made for every check."""


@lru_cache(maxsize=64)
def _most_pace(at_s: tuple[float, ...]) -> float:
    """Return by how much a call's pace may differ, so that no slot moves past the middle of a gap beside it."""
    return min([PACE, *((later - earlier) / (2 * later) for earlier, later in pairwise(at_s))])


def schedule_faults(at_s: Sequence[float], reserve: int) -> list[str]:
    """Say everything that is wrong with a schedule, in words for its author."""
    faults = []
    if not 0 <= reserve < CHECK_LIMIT:
        faults.append(f"reserve is {reserve}: keep back 0 to {CHECK_LIMIT - 1} of the {CHECK_LIMIT} checks")
    limit = CHECK_LIMIT - max(0, min(reserve, CHECK_LIMIT - 1))
    if not at_s:
        return [*faults, "at is empty: name at least one check time in seconds, for example [10, 20, 40]"]
    if len(at_s) > limit:
        faults.append(f"at names {len(at_s)} checks: the service makes {CHECK_LIMIT} and {reserve} are kept back")
    if at_s[0] < 0:
        faults.append(f"at begins at {at_s[0]:g}: times are seconds after the watch began, 0 or later")
    gaps = [later - earlier for earlier, later in pairwise(at_s)]
    if any(gap <= 0 for gap in gaps):
        faults.append("at does not rise: every check time must be later than the one before")
    elif any(later < earlier - 1e-9 for earlier, later in pairwise(gaps)):
        shrunk = next(n for n, (a, b) in enumerate(pairwise(gaps)) if b < a - 1e-9)
        faults.append(
            f"gaps shrink from {gaps[shrunk]:g} s to {gaps[shrunk + 1]:g} s: a backoff schedule never speeds up"
        )
    return faults

"""The check plan of a call: when its automatic checks are made, and how many of the 20 are left. Pure.

A ``Schedule`` is a backoff in seconds after the call got its person: gaps never shrink after the first check. A slot
that was missed is skipped, never caught up; after the last slot the last gap goes on for as long as the budget lasts.

Every call follows it at a pace of its own, up to 3 % slower or faster by its voice id, so that calls do not poll in
step: gaps keep their order and the number of slots is the same. Where fewer checks are left than slots, because one
went without an answer, those left are spread over what remains: the times are read as a density of checks, and a
density thins evenly.

The functions below it keep a record's plan: a record and a schedule in, a record out. After a check without an answer
the next one is earlier (``Schedule.plan``). People's checks come beside the plan, from the reserve.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

from msgspec.structs import replace

from calls.record import CHECK_LIMIT, Call

PACE = 0.03
"""By how much a call's own pace differs at most from the schedule's."""

RETRY = timedelta(seconds=1)
"""The least wait after a check without an answer; doubled with every further one."""

MOST_AHEAD = 2
"""How many checks that make up for lost ones may have been made beyond the slots that have passed. It bounds what a call can
have spent by any moment, and so what counts as spent after Redis lost writes (``calls.redis_restart``)."""


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


LOOK_AGAIN = timedelta(seconds=1)
"""After a check without an answer stored details are read: for free, and they may hold the answer that was lost."""


def begin_watch(call: Call, schedule: Schedule, watch_from: datetime, now: datetime) -> Call:
    """Begin a call's watch, once. ``watch_from`` lies in the past where an earlier life began it: its slots are over."""
    if call.watch_from is not None:
        return call
    paced = schedule.paced(call.voice_id)
    first = paced.first_slot(watch_from)
    return replace(
        call, watch_from=watch_from, next_check_at=first if first >= now else paced.next_slot(watch_from, now)
    )


def automatic_left(call: Call, limit: int) -> int:
    """Return how many checks may still be made without anybody asking, of ``limit``."""
    return max(0, min(limit - call.automatic_checks, CHECK_LIMIT - call.checks_used))


def reserve_left(call: Call, schedule: Schedule) -> int:
    """Return how many checks people may still ask for."""
    return max(0, min(schedule.reserve - call.checks_by_desk, CHECK_LIMIT - call.checks_used))


def check_booked(call: Call, schedule: Schedule, now: datetime, *, by_desk: bool = False) -> Call:
    """Spend a check.

    Plan the next automatic one as if this one will be answered. A person's check changes nothing of the plan, except that
    it takes the place of an automatic check that is due.
    """
    if by_desk:
        call = replace(call, checks_used=call.checks_used + 1, checks_by_desk=call.checks_by_desk + 1, check_wish=None)
        is_due = call.next_check_at is not None and call.next_check_at <= now
        return plan_anew(call, schedule, now) if is_due else call
    call = replace(call, checks_used=call.checks_used + 1, last_check_at=now, next_check_at=None)
    return plan_anew(call, schedule, now)


def check_answered(call: Call, *, by_desk: bool = False) -> Call:
    """Note that the last check was answered: what it said is what is known."""
    return call if by_desk else replace(call, answered_check_at=call.last_check_at, checks_failed=0)


def check_failed(call: Call, schedule: Schedule, now: datetime, *, by_desk: bool = False) -> Call:
    """Plan anew after an automatic check without an answer, from the last one that had one; read stored details before."""
    call = replace(call, next_read_at=min(call.next_read_at or now, now + LOOK_AGAIN))
    if by_desk:
        return call
    call = replace(call, checks_failed=call.checks_failed + 1)
    return _planned(call, schedule, now, answered_at=call.answered_check_at, failures=call.checks_failed)


def plan_anew(call: Call, schedule: Schedule, now: datetime) -> Call:
    """Plan the next check as if one had been answered now."""
    return _planned(call, schedule, now, answered_at=now)


def _planned(call: Call, schedule: Schedule, now: datetime, *, answered_at: datetime | None, failures: int = 0) -> Call:
    if call.watch_from is None:
        return call
    left = automatic_left(call, schedule.automatic_limit)
    paced = schedule.paced(call.voice_id)
    return replace(
        call,
        next_check_at=paced.plan(call.watch_from, now, left=left, answered_at=answered_at, failures=failures),
    )


def must_look_first(call: Call) -> bool:
    """Tell whether stored details have to be read before another check: nothing was since one went without an answer.

    An outage so costs reads, which are free, and one check.
    """
    if not call.checks_failed or call.last_check_at is None:
        return False
    return call.reading is None or call.reading.read_at <= call.last_check_at

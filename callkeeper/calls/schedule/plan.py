"""The check plan of a call: when checks are made, and how many of the 20 are left. Pure functions.

A ``Schedule`` is a backoff in seconds after the call got its person. Its gaps never shrink after the first check. A
missed slot is skipped. After the last slot, the last gap repeats while checks are left.

Every call follows the schedule at its own pace, up to 3 % slower or faster depending on its voice id, so that calls do
not poll at the same moments. If fewer checks are left than slots, because a check failed, the rest are spread over the
remaining time: the slots are read as a density of checks, which is thinned evenly.

The functions after it update a record's plan: a record and a schedule in, a record out. After a failed check the next
one comes earlier (``Schedule.plan``). People's checks are not part of the plan; they use the reserve.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import msgspec
from msgspec.structs import replace

from callkeeper.calls.record import CHECK_LIMIT, Call

PACE = 0.03
"""The most by which a call's own pace differs from the schedule's."""

RETRY = timedelta(seconds=1)
"""Minimum wait after a failed check. It doubles with every further failure, up to 16 s."""

PATIENT = 3
"""After this many failed checks in a row the next ones are spared, because they will probably fail too."""

MOST_AHEAD = 2
"""How many checks that replace lost ones may be made ahead of the slots. This bounds what a call can have used by any
moment, and so what counts as used after Redis lost writes (``callkeeper.calls.redis_restart``)."""


class Schedule(msgspec.Struct, frozen=True):
    """Check times in seconds after the watch began, and how many checks are reserved for the desk."""

    at_s: tuple[float, ...]
    reserve: int = 2

    def __post_init__(self) -> None:
        for fault in schedule_faults(self.at_s, self.reserve):
            raise ValueError(fault)

    @property
    def automatic_limit(self) -> int:
        return CHECK_LIMIT - self.reserve

    def paced(self, voice_id: str) -> "Schedule":
        """Return the schedule at a call's own pace: all times multiplied by one factor that depends on the voice id.

        No slot moves past the middle of a neighbouring gap.
        """
        factor = 1 + _most_pace(self.at_s) * (2 * crc32(voice_id.encode()) / 2**32 - 1)
        return _Paced(tuple([t * factor for t in self.at_s]), self.reserve)

    def first_slot(self, watch_from: datetime) -> datetime:
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
        # Instants are rounded to microseconds. Without the margin, a check at the instant of its slot would be
        # repeated.
        return bisect_right(self.at_s, (now - watch_from).total_seconds() + 1e-6)

    def slots_between(self, watch_from: datetime, after: datetime, until: datetime) -> int:
        """Return how many slots come later than ``after`` and not later than ``until``, with those after the last one."""
        last = watch_from + timedelta(seconds=self.at_s[-1])
        repeated = [max(0, int((at - last) / timedelta(seconds=self._last_gap_s) + 1e-6)) for at in (after, until)]
        return self.slots_passed(watch_from, until) - self.slots_passed(watch_from, after) + repeated[1] - repeated[0]

    def plan(
        self, watch_from: datetime, now: datetime, *, left: int, answered_at: datetime | None = None, failures: int = 0
    ) -> datetime:
        """Return when the next check is made: at the next slot, if there is a check left for every remaining slot.

        Otherwise the checks left share evenly the time from the last *answered* check, whose result is known, to the
        end: with k of n + 1 gaps passed by then, the next one is made where k + (n + 1 - k) / (left + 1) gaps have
        passed. After a failure that would be almost at once, so it waits at least 1, 2, 4 ... s, but at most until the
        next slot. Once ``MOST_AHEAD`` lost checks were replaced, it waits for the slot. From the third failure in a row
        on, it waits for the slot, or longer if it has not waited for up to 16 s.

        Args:
            watch_from: When the watch began.
            now: The present.
            left: Automatic checks that may still be made.
            answered_at: When the last answered check was made; None if none was answered.
            failures: Failed checks since then.
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
            wait = RETRY * float(2 ** min(failures - 1, 4))
            if failures >= PATIENT:
                return max(slot, now + wait)
            at = max(at, slot if made - passed >= MOST_AHEAD else min(slot, now + wait))
        return max(at, now)

    @property
    def _marks_s(self) -> tuple[float, ...]:
        """The start of the watch, the slots, and one more gap: places 0, 1 ... n + 1."""
        return (0.0, *self.at_s, self.at_s[-1] + self._last_gap_s)

    def _place(self, t_s: float) -> float:
        """Return how many marks lie before a time, plus the part of the gap that has passed."""
        marks = self._marks_s
        k = min(bisect_right(marks, t_s) - 1, len(marks) - 2)
        return k + min(1.0, (t_s - marks[k]) / (marks[k + 1] - marks[k]))

    def _time(self, place: float) -> float:
        marks = self._marks_s
        k = min(int(place), len(marks) - 2)
        return marks[k] + (place - k) * (marks[k + 1] - marks[k])

    @property
    def _last_gap_s(self) -> float:
        return self.at_s[-1] - self.at_s[-2] if len(self.at_s) > 1 else max(self.at_s[-1], 1.0)


class _Paced(Schedule, frozen=True):
    """A schedule at a call's own pace. It stays valid, because one factor keeps the order of times and gaps."""

    def __post_init__(self) -> None:
        """Skip the validation, because this is created for every check."""


@lru_cache(maxsize=64)
def _most_pace(at_s: tuple[float, ...]) -> float:
    """Return by how much a call's pace may differ so that no slot moves past the middle of a neighbouring gap."""
    return min([PACE, *((later - earlier) / (2 * later) for earlier, later in pairwise(at_s))])


def schedule_faults(at_s: Sequence[float], reserve: int) -> list[str]:
    """Return everything that is wrong with a schedule, for its author."""
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


READ_AFTER_CHECK = timedelta(seconds=1)
"""How soon stored details are read after a failed check. That is free, and they may hold the lost answer."""


def begin_watch(call: Call, schedule: Schedule, watch_from: datetime, now: datetime) -> Call:
    """Begin a call's watch, once. ``watch_from`` is in the past if a lost record began it: its slots have passed."""
    if call.plan.watch_from is not None:
        return call
    paced = schedule.paced(call.voice_id)
    first = paced.first_slot(watch_from)
    return replace(
        call,
        plan=replace(
            call.plan, watch_from=watch_from, next_check_at=first if first >= now else paced.next_slot(watch_from, now)
        ),
    )


def automatic_checks(call: Call) -> int:
    """Return how many automatic checks were made."""
    return call.plan.checks_used - call.plan.checks_by_desk


def automatic_left(call: Call, limit: int) -> int:
    """Return how many automatic checks may still be made, of ``limit``."""
    return max(0, min(limit - automatic_checks(call), CHECK_LIMIT - call.plan.checks_used))


def reserve_left(call: Call, schedule: Schedule) -> int:
    """Return how many checks people may still ask for."""
    return max(0, min(schedule.reserve - call.plan.checks_by_desk, CHECK_LIMIT - call.plan.checks_used))


def check_booked(call: Call, schedule: Schedule, now: datetime, *, by_desk: bool = False) -> Call:
    """Book a check.

    Plan the next automatic one as if this one will be answered. A person's check does not change the plan, but it
    replaces an automatic check that is due.
    """
    if by_desk:
        call = replace(
            call,
            plan=replace(call.plan, checks_used=call.plan.checks_used + 1, checks_by_desk=call.plan.checks_by_desk + 1),
            statements=replace(call.statements, check_wish=None),
        )
        is_due = call.plan.next_check_at is not None and call.plan.next_check_at <= now
        return plan_anew(call, schedule, now) if is_due else call
    call = replace(
        call, plan=replace(call.plan, checks_used=call.plan.checks_used + 1, last_check_at=now, next_check_at=None)
    )
    return plan_anew(call, schedule, now)


def check_answered(call: Call, *, by_desk: bool = False) -> Call:
    """Record that the last check was answered."""
    if by_desk:
        return call
    return replace(call, plan=replace(call.plan, answered_check_at=call.plan.last_check_at, checks_failed=0))


def check_failed(call: Call, schedule: Schedule, now: datetime, *, by_desk: bool = False) -> Call:
    """Plan again after a failed automatic check, from the last answered one, with a read of stored details before it."""
    call = replace(
        call, plan=replace(call.plan, next_read_at=min(call.plan.next_read_at or now, now + READ_AFTER_CHECK))
    )
    if by_desk:
        return call
    call = replace(call, plan=replace(call.plan, checks_failed=call.plan.checks_failed + 1))
    return _planned(call, schedule, now, answered_at=call.plan.answered_check_at, failures=call.plan.checks_failed)


def take_turns(call: Call, schedule: Schedule, now: datetime) -> Call:
    """Plan the next check for the institution's next turn, because checks of all its calls bring no results.

    Only checks whose slots have passed unused are spent on it, so that every later slot still has one.
    """
    if call.plan.watch_from is None or call.plan.next_check_at is None:
        return call
    slots_left = len(schedule.at_s) - schedule.paced(call.voice_id).slots_passed(call.plan.watch_from, now)
    is_spare = automatic_left(call, schedule.automatic_limit) > slots_left
    return replace(call, plan=replace(call.plan, next_check_at=min(now, call.plan.next_check_at))) if is_spare else call


def plan_anew(call: Call, schedule: Schedule, now: datetime) -> Call:
    """Plan the next check as if one had been answered now."""
    return _planned(call, schedule, now, answered_at=now)


def _planned(call: Call, schedule: Schedule, now: datetime, *, answered_at: datetime | None, failures: int = 0) -> Call:
    if call.plan.watch_from is None:
        return call
    left = automatic_left(call, schedule.automatic_limit)
    paced = schedule.paced(call.voice_id)
    return replace(
        call,
        plan=replace(
            call.plan,
            next_check_at=paced.plan(call.plan.watch_from, now, left=left, answered_at=answered_at, failures=failures),
        ),
    )


def brought_no_result(call: Call) -> bool:
    """Tell whether the call's last check failed, or was answered with a voice authentication error."""
    return call.plan.checks_failed > 0 or (
        call.seen.reading is not None and call.seen.reading.provider_error is not None
    )


def must_read_first(call: Call) -> bool:
    """Tell whether stored details must be read before another check, because none were read since a check failed.

    So an outage costs reads, which are free, and only one check.
    """
    if not call.plan.checks_failed or call.plan.last_check_at is None:
        return False
    return call.seen.reading is None or call.seen.reading.read_at <= call.plan.last_check_at

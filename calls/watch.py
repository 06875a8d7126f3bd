"""The watch of a call: when its next check is made. Pure: a record and a schedule in, a record out.

A watch begins when the call has a person. From then on the next check is the next slot of the schedule, at the call's own
pace; after a check without an answer it is earlier (``Schedule.plan``). People's checks come beside it, from the reserve.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from calls.backoff import Schedule
from calls.record import CHECK_LIMIT, Call

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

"""The watch of a call: when its next check is made. Pure: a record and a schedule in, a record out.

A watch begins when the call has a person. From then on the next check is the next slot of the schedule, at the call's own
pace; after a check without an answer it is earlier (``Schedule.plan``).
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from calls.backoff import Schedule
from calls.record import Call

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


def charge_earlier_life(call: Call, schedule: Schedule, now: datetime) -> Call:
    """Count checks that an earlier record, lost with its Redis, may have spent on a call that was already assigned."""
    started_at = call.started_at or now
    spent = schedule.paced(call.voice_id).slots_passed(started_at, now)
    return begin_watch(replace(call, checks_used=max(call.checks_used, spent)), schedule, started_at, now)


def charge_lost_bookings(call: Call, schedule: Schedule, now: datetime) -> Call:
    """Count the checks whose bookings a Redis may have lost with its last writes: one for each slot that is over."""
    if call.watch_from is None:
        return call
    over = schedule.paced(call.voice_id).slots_passed(call.watch_from, now)
    return replace(call, checks_used=max(call.checks_used, over))


def check_booked(call: Call, schedule: Schedule, now: datetime) -> Call:
    """Spend a check, and plan the next one as if this one will be answered."""
    call = replace(call, checks_used=call.checks_used + 1, last_check_at=now, next_check_at=None, check_wish=None)
    return _planned(call, schedule, now, answered_at=now)


def check_answered(call: Call) -> Call:
    """Note that the last check was answered: what it said is what is known."""
    return replace(call, answered_check_at=call.last_check_at, checks_failed=0)


def check_failed(call: Call, schedule: Schedule, now: datetime) -> Call:
    """Plan anew after a check without an answer, from the last one that had one; and read stored details before."""
    read_at = min(call.next_read_at or now, now + LOOK_AGAIN)
    call = replace(call, checks_failed=call.checks_failed + 1, next_read_at=read_at)
    return _planned(call, schedule, now, answered_at=call.answered_check_at, failures=call.checks_failed)


def _planned(call: Call, schedule: Schedule, now: datetime, *, answered_at: datetime | None, failures: int = 0) -> Call:
    if call.watch_from is None:
        return call
    left = max(0, schedule.automatic_limit - call.checks_used)
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

"""The reads of a call: when its stored details are read next. Pure functions.

A read is free, and shows what happened elsewhere: questions answered, an opt-out, a reject by somebody else. Until a call
is decided it is read often, because evidence that is noticed after the end enrolls nobody. A check counts as a read.
"""

from datetime import datetime, timedelta
from zlib import crc32

from callkeeper.calls.context import Context
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call
from callkeeper.calls.schedule.plan import READ_AFTER_CHECK, must_read_first
from callkeeper.calls.steps import Read, Wait
from callkeeper.calls.stop_rule import NO_CHECKS_LEFT, check_obstacle

END_HINT_FOR = timedelta(seconds=10)
"""For how long after a pushed end the details are read every second."""

LATE_TOLERANCE = timedelta(seconds=0.3)
"""How late workers may be before reads are delayed in favour of checks and starts. A few tenths are usual."""

YIELD = 20.0
"""For every second that workers are later than that, a read is delayed by this many seconds."""

BUSY = 0.6
"""A worker that uses more than this share of a core delays reads. At 0.9, checks and starts would queue."""

BUSY_YIELD_S = 200.0
"""Seconds of delay for a whole core above ``BUSY``: 2 s for every hundredth, when a read is planned and when it is due."""

SOON_S = 8.0
"""The longest time between reads while few calls are live, so that changes made elsewhere are noticed within 10 s."""

FEW, MANY = 10, 40
"""With up to FEW live calls the period is at most SOON_S, from MANY on the one in the rules; in between it is
interpolated.

Listings show most changes. Others (a policy, an opt-out, a reject by somebody else) are only noticed by a read.
"""

AGE_SHARE = 0.02
"""With more than FEW live calls, an undecided one is read again after this share of its age, if that is later, but at
least as often as decided ones.

Evidence that comes after a call's last read is lost. An old call is less likely to end within the next seconds, so it can
wait longer at the same risk.
"""

VERIFIED_SHARE = 2.0
"""With more than FEW live calls, an undecided one is read this many times less often once its caller is verified.

An enroll is all that is left to do, and details are read again directly before it.
"""

JUST_BEFORE = 0.25
"""With more than FEW live calls, a read is left out if a check follows within this share of the period: a check returns
the same record."""


def next_read(
    call: Call, context: Context, policies: Policies, now: datetime, *, undecided_s: float, decided_s: float
) -> datetime:
    """Return when stored details are read next: soon until a call is decided, within a second after a pushed end.

    The period varies by a tenth with the voice id, so that calls are not read all at once. The later and busier workers
    are (``context``), the less often undecided calls are read, to make room for checks, but at least as often as
    decided ones. ``undecided_s`` is for undecided calls while many are live; old ones are read less often. A call
    without checks left is not decided: reads alone show what happens to it.
    """
    if may_have_ended(call, now):
        return now + timedelta(seconds=1)
    is_undecided, live = check_obstacle(call, context.obstacles, policies) in {None, NO_CHECKS_LEFT}, context.live
    is_sparing = is_undecided and live > FEW
    period_s = undecided_s if is_undecided else decided_s
    if period_s > SOON_S:
        period_s = SOON_S + (period_s - SOON_S) * min(1.0, max(0, live - FEW) / (MANY - FEW))
    if is_sparing and call.life.first_seen_at is not None:
        age_s = (now - call.life.first_seen_at).total_seconds()
        period_s = max(period_s, min(decided_s, AGE_SHARE * age_s))
    if is_sparing and call.statements.identity is not None:
        period_s = max(period_s, min(decided_s, VERIFIED_SHARE * period_s))
    period_s = max(period_s, min(decided_s, period_s + _delay_s(context)))
    wait, check_at = apart(call, period_s), call.plan.next_check_at
    if is_sparing and check_at is not None and now + wait < check_at < now + (1 + JUST_BEFORE) * wait:
        return check_at + READ_AFTER_CHECK
    return now + wait


def put_off(
    call: Call, context: Context, read_at: datetime, now: datetime, *, decided_s: float, is_endless: bool = False
) -> datetime:
    """Return when a read planned for ``read_at`` is made. Arguments as `next_read`.

    It is later while workers are late or busy, or if the call does not end (``is_endless``), but within ``decided_s`` of the
    last read unless it was planned later. A read after an event is not.
    """
    delay_s, reading = decided_s if is_endless else _delay_s(context), call.seen.reading
    if not delay_s or reading is None or may_have_ended(call, now) or _is_asked_for(call, reading.read_at):
        return read_at
    return max(read_at, min(read_at + timedelta(seconds=delay_s), reading.read_at + apart(call, decided_s)))


def _is_asked_for(call: Call, read_at: datetime) -> bool:
    """Tell whether something has happened since the last read, at ``read_at``, that the next one must show.

    An assign is left out: bursts of starts are what reads make room for.
    """
    happened_at = (
        call.plan.recheck_from,
        call.life.end_hinted_at,
        call.ledger.enroll.sent_at,
        call.ledger.reject.sent_at,
    )
    return (
        call.life.is_unlisted
        or call.life.not_found_since is not None
        or must_read_first(call)
        or any(at is not None and at > read_at for at in happened_at)
    )


def _delay_s(context: Context) -> float:
    """Return by how many seconds a read is delayed in favour of checks and starts."""
    later_s = max(0.0, (context.late - LATE_TOLERANCE).total_seconds())
    return max(YIELD * later_s, BUSY_YIELD_S * (context.busy - BUSY))


def may_have_ended(call: Call, now: datetime) -> bool:
    """Tell whether the end of a call was pushed a moment ago."""
    return call.life.end_hinted_at is not None and now - call.life.end_hinted_at < END_HINT_FOR


def apart(call: Call, period_s: float) -> timedelta:
    """Return a period, varied by a tenth."""
    return timedelta(seconds=period_s * (0.95 + crc32(call.voice_id.encode()) % 100 / 1000))


def read_retry(call: Call, now: datetime) -> datetime:
    """Return when to read again after a failed read: 1, 2, 4 ... 30 s later."""
    return now + timedelta(seconds=min(30.0, 2.0 ** min(call.plan.reads_failed, 5)))


def read_or_wait(call: Call, because: str, now: datetime) -> Read | Wait:
    """Return a read for now, or the wait after a failed read if that is not over."""
    due = call.plan.retry_at(now)
    return Wait(due) if due > now else Read(because)

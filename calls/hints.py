"""A hint: a call that was pushed or that a person named, and that the service has not confirmed yet. Pure.

A hint waits for the queue to list it, and is dropped if that does not happen: a listing finds a real call. If its end
was pushed, its stored details are read once before that, so that a call that ended before any queue listed it leaves a
record. Whoever can push can push the end of calls that never were: such reads come after everything else and have an
allowance (``calls.store.listings.Allowance``).

A hint that a person made a statement about is never dropped. Its stored details are asked for too, because its id may
be an alternate id or the queue may be late, and if the service knows no such call it is settled with that reason.
"""

from datetime import datetime, timedelta

from calls.institution import FOREIGN, UNKNOWN
from calls.record import Call, Reason
from calls.steps import Drop, Look, LookBack, Read, Settle, Step, Wait

PUT_OFF = timedelta(seconds=5)
"""While workers are late such a read waits, up to ``GIVEN_UP`` after the hint; then the hint is dropped."""

GIVEN_UP = timedelta(minutes=5)

NOT_LISTED = "the queue does not list it"


def look_back(call: Call, hinted_at: datetime, now: datetime, *, is_late: bool) -> Step:
    """Return the next step of a hint that no queue has listed in time."""
    if call.end_hinted_at is None or call.standing is not None or call.looked_back_at is not None:
        return Drop(NOT_LISTED)
    if is_late:
        return Wait(now + PUT_OFF) if now - hinted_at < GIVEN_UP else Drop(NOT_LISTED)
    return LookBack()


CONFIRM_LOOKS_S = (0.5, 1.5, 3.5, 7.5)
"""When after a hint the queue is looked at again: an event may outrun the queue. The first look came with the hint."""

HINT_LIVES = timedelta(seconds=10)
"""After so long without being listed a hint is dropped.

Assumed: the queue shows a call within this time of its event. Numbers on an ignore list never appear."""

ASK_AGAIN = timedelta(seconds=1)
"""While the service has not told whether an institution is active, nothing is asked for its hints."""


def confirm(call: Call, now: datetime, *, is_lost: bool, is_late: bool) -> Step:
    """Return the next step of a hint.

    Args:
        call: The hint.
        now: The present.
        is_late: Workers are behind.
        is_lost: The service has not known the call for long, or it is too old to be watched.
    """
    hinted_at, looks = _hinted_at(call, now), call.confirm_looks
    is_looked_for = looks < len(CONFIRM_LOOKS_S)
    due_at = hinted_at + (timedelta(seconds=CONFIRM_LOOKS_S[looks]) if is_looked_for else HINT_LIVES)
    if is_looked_for and due_at <= now:
        return Look()
    if not call.has_statements:
        return Wait(due_at) if now < due_at else look_back(call, hinted_at, now, is_late=is_late)
    if call.standing == FOREIGN or is_lost:
        return Wait(due_at) if now < due_at else Settle(Reason.UNCONFIRMED)
    read_at = call.next_read_at if call.reads_failed and call.next_read_at else now
    if call.standing == UNKNOWN:
        read_at = max(read_at, now + ASK_AGAIN)
    if read_at <= now:
        return Read("a person spoke of it")
    return Wait(min(read_at, due_at) if is_looked_for else read_at)


def _hinted_at(call: Call, now: datetime) -> datetime:
    return call.hinted_at or call.first_seen_at or now

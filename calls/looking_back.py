"""A call that ended before any queue listed it: its stored details are read once, so that it leaves a record.

Whoever can push can push the end of calls that never were: such reads come after everything else and have an allowance,
which all workers share.
"""

from datetime import datetime, timedelta
from typing import Any

from calls.keys import Keys
from calls.record import Call
from calls.steps import Drop, LookBack, Step, Wait

LOOK_BACKS_A_MINUTE = 30
"""Reads for ends of unlisted calls in a minute, of all institutions together."""

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


class Allowance:
    """The reads of the present minute, counted in Redis."""

    def __init__(self, redis: Any, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def take(self, now: datetime) -> bool:
        """Take one read of the present minute's; return whether there was one left.

        A repetition of the command takes one more: that errs on the safe side.
        """
        key = self._keys.look_backs(int(now.timestamp()) // 60)
        pipe = self._redis.pipeline(transaction=True)
        taken, _ = await pipe.incr(key).expire(key, 120).execute()
        return bool(taken <= LOOK_BACKS_A_MINUTE)

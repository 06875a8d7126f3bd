"""A member's calls that were enrolled by hand, so that a reject in one of them is told to the others.

Spec: States, row reject-voice ("all prior manual authentications of that member are un-enrolled").
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from calls.keys import CallId, Keys
from calls.notes import MemberRejected
from calls.record import Call
from calls.unenrolling import is_enrolled, is_rejected

MOST = 100
"""Calls of one member that are told of a reject, those enrolled last first: forged statements must not buy many reads."""

Tell = Callable[[CallId, MemberRejected], Awaitable[object]]


class Members:
    """Which calls of a person were enrolled, in Redis."""

    def __init__(self, redis: Any, keys: Keys, *, kept_s: int, tell: Tell) -> None:
        """Prepare.

        Args:
            redis: Answers in bytes.
            keys: Where calls are kept.
            kept_s: For how long a settled call can be read.
            tell: Leaves a note on a call, also on a settled one.
        """
        self._redis = redis
        self._keys = keys
        self._kept_s = kept_s
        self._tell = tell

    async def follow(self, call_id: CallId, call: Call, now: datetime) -> Call:
        """Note an enroll down, or tell the person's other calls of a reject; return the record that says so.

        It is written after this was done: what a crash interrupts is done again, which changes nothing more.
        """
        person_id = call.person_id
        if person_id is None:
            return call
        place = self._keys.enrolled(call_id.institution_key, person_id)
        if is_enrolled(call) and call.enrolled_for != person_id:
            await self._redis.zadd(place, {call_id.voice_id: now.timestamp()})
            await self._redis.expire(place, self._kept_s)
            call = replace(call, enrolled_for=person_id)
        if is_rejected(call) and call.rejected_for != person_id:
            for voice_id in await self._redis.zrevrange(place, 0, MOST - 1):
                other = CallId(call_id.institution_key, voice_id.decode())
                if other != call_id:
                    await self._tell(other, MemberRejected(rejected_at=now))
            call = replace(call, rejected_for=person_id)
        return call

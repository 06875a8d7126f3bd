"""Marks of calls that were rejected, un-enrolled or fraud, kept for later calls of the same member or phone number.

An opt-out, and an opt-in that takes earlier ones back, are kept too, of the member only, and do not expire.

Each member and each number has a sorted set of marks, for each institution. It is limited in size, and all but that of
consent expire. A number
is hidden by a keyed hash whose key is not in Redis. A mark by number counts for every member, because one caller may try
several members from one number. So one caller can put a company's switchboard under suspicion. Therefore rules may only
ask a person or hold an enroll on these marks (``callkeeper.calls.rules.proofs``).
"""

import hmac
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId
from callkeeper.calls.marks import marks_of, still_holding
from callkeeper.calls.phone_number import digits_of
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call, Mark, Marks
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script_runner import Batching
from callkeeper.service import Secret
from callkeeper.service.endpoints import canonical_id, is_same_id

MOST: Final = 100
"""How many marks of one member or number are kept, the newest."""

MOST_NUMBERS: Final = 8
"""Under how many of its numbers a call leaves marks, the first ones."""

MOST_TOGETHER: Final = 64
"""How many look-ups share a round trip."""

DAY_S: Final = 86400

_OF_MEMBER: Final = frozenset({Mark.OPTED_OUT, Mark.OPTED_IN})
"""Marks that are kept of the member only: they say nothing of others who call from the number."""

_SHORTEST, _COMPARED = 7, 10
"""How many digits a phone number has at least, and how many of them, from the right, are compared."""


def number_key(secret: Secret) -> bytes:
    """Derive the key of the hash that hides phone numbers. If the secret changes, earlier numbers are not found."""
    return hmac.digest(secret.reveal().encode(), b"callkeeper phone numbers", sha256)


def digits_compared(phone_number: str | None) -> str | None:
    """Return the digits by which two phone numbers are the same; None for a text that is no number or a placeholder.

    Assumed (`phone-digits`): the last ten digits tell numbers apart, with or without a country code.
    """
    digits = digits_of(phone_number or "")
    if len(digits) < _SHORTEST or len(set(digits[-_COMPARED:])) == 1:
        return None
    return digits[-_COMPARED:]


def _by_member(stored: Iterable[Marks]) -> dict[str | None, Marks]:
    """Return the marks of each member. Two records that were merged may have left different ones under the same member."""
    found: dict[str | None, Marks] = {}
    for one in stored:
        kinds = dict.fromkeys((*found.get(one.person_id, one).kinds, *one.kinds))
        found[one.person_id] = replace(one, kinds=tuple(kinds))
    return found


class EarlierCalls:
    """The marks of calls in Redis."""

    def __init__(self, redis: Redis, keys: Keys, *, number_key: bytes | None) -> None:
        """Set up. ``number_key`` of the hash that hides phone numbers is the same in every worker; None: no numbers."""
        self._redis = in_bytes(redis)
        self._keys = keys
        self._number_key = number_key
        self._marks = Batching(self._read, most=MOST_TOGETHER)  # else each live call would take a connection

    async def keep(self, call_id: CallId, call: Call, *, policies: Policies, days: int, now: datetime) -> Call:
        """Store the marks of a call for ``days``, take back those that no longer hold; return the updated record.

        The record is saved after this, so a crash in between makes it run again, which changes nothing.
        """
        kinds, before = marks_of(call, policies), call.ledger.kept_marks
        known = call.seen.earlier_marks or Marks()
        if Mark.OPTED_IN in kinds and not (call.seen.opted_out or Mark.OPTED_OUT in known.kinds):
            was_stored = before is not None and Mark.OPTED_IN in before.kinds
            kinds = kinds if was_stored else tuple([kind for kind in kinds if kind != Mark.OPTED_IN])
        kinds = kinds if days else tuple([kind for kind in kinds if kind in _OF_MEMBER])
        if not kinds and before is None:
            return call
        marks = replace(self._sought(call), kinds=kinds)
        earlier = _by_member(one for one in (*call.ledger.marks_before, before) if one is not None)
        stored = {kind for one in earlier.values() for kind in one.kinds}
        earlier.pop(marks.person_id, None)
        former = [
            (person_id, was, still_holding(was, kinds)) for person_id, was in earlier.items() if person_id is not None
        ]
        lasting = tuple([still for _, _, still in former if still.kinds])
        # The number is the caller's, whoever stands on the call: what holds of a member before was shown by this caller.
        of_all = dict.fromkeys((*kinds, *(kind for still in lasting for kind in still.kinds)))
        of_caller = tuple([kind for kind in of_all if kind not in _OF_MEMBER])
        numbers = tuple(dict.fromkeys((*call.ledger.marked_numbers, *self._number(call))))[:MOST_NUMBERS]
        ledger = replace(
            call.ledger, kept_marks=marks, marks_before=lasting, marked_numbers=numbers if of_caller else ()
        )
        if ledger == call.ledger:
            return call
        key, pipe, now_s = call_id.institution_key, self._redis.pipeline(transaction=False), now.timestamp()
        # A record that was merged into this one has left its marks under the alternate id.
        ids = {call_id.voice_id, canonical_id(call.names.alternate_id or call_id.voice_id)}
        for person_id, was, still in former:
            if lost := set(was.kinds).difference(still.kinds):
                for place in self._places(key, (), person_id):
                    pipe.zrem(place, *(f"{kind}:{one}" for kind in lost for one in ids))
        for place in self._places(key, numbers, marks.person_id):
            is_consent = place in set(self._consent(key, marks.person_id))
            holding = of_caller if place in set(self._places(key, numbers, None)) else kinds
            holding = tuple([kind for kind in holding if (kind in _OF_MEMBER) is is_consent])
            if holding:
                pipe.zadd(place, {f"{kind}:{call_id.voice_id}": now_s for kind in holding}, nx=True)
            if gone := stored.difference(holding):
                pipe.zrem(place, *(f"{kind}:{one}" for kind in gone for one in ids))
            pipe.zremrangebyrank(place, 0, -MOST - 1)
            if days and not is_consent:
                pipe.zremrangebyscore(place, "-inf", now_s - days * DAY_S)
                pipe.expire(place, days * DAY_S)
        await pipe.execute()
        if Mark.OPTED_IN in kinds and Mark.OPTED_IN not in (before.kinds if before is not None else ()):
            call = replace(call, seen=replace(call.seen, earlier_marks=known.without(Mark.OPTED_OUT)))
        return replace(call, ledger=ledger)

    async def look_up(
        self, call_id: CallId, call: Call, *, policies: Policies, days: int, now: datetime, anew: bool = False
    ) -> Call:
        """Return the record with what other calls showed in the last ``days``.

        It is looked up once for each member and number that the call gets; ``anew``: once more, whatever is known. What was
        found by a number stays, also under the next number and for the next member: it is the same caller.
        """
        sought, known = self._sought(call), call.seen.earlier_marks
        is_same = known is not None and (known.person_id, known.has_number) == (sought.person_id, sought.has_number)
        if is_same and not anew:
            return call
        before, numbers = known or Marks(), self._number(call)
        key, since_s = call_id.institution_key, now.timestamp() - days * DAY_S
        numbers = numbers if days else ()
        consent = dict.fromkeys(self._consent(key, sought.person_id), "-inf")
        places: dict[str, float | str] = (
            dict.fromkeys(self._places(key, numbers, sought.person_id), since_s) if days else {}
        )
        places |= consent
        marks = await self._marks.ask(tuple(places.items())) if places else ()
        by_number = {kind: before.calls.get(kind) for kind in before.by_number}
        found: dict[str, str | None] = {}
        for n, stored in enumerate(marks):
            (by_number if n < len(numbers) else found).update(_left_by_others(call, stored))
        found |= by_number
        found_now = replace(
            sought,
            kinds=tuple(sorted(found)),
            by_number=tuple(sorted(by_number)),
            calls={kind: voice_id for kind, voice_id in found.items() if voice_id},
        )
        return replace(call, seen=replace(call.seen, earlier_marks=found_now))

    async def _read(self, asked: Sequence[Sequence[tuple[str, float | str]]]) -> list[list[list[bytes]]]:
        """Return for each request the marks in each of some sets that are not older than a time."""
        pipe = self._redis.pipeline(transaction=False)
        for places in asked:
            for place, since_s in places:
                pipe.zrangebyscore(place, since_s, "+inf")
        answers = iter(await pipe.execute())
        return [[next(answers) for _ in places] for places in asked]

    def _sought(self, call: Call) -> Marks:
        """Return by what the marks of a call are found."""
        has_number = self._number_key is not None and digits_compared(call.names.phone_number) is not None
        return Marks(person_id=call.seen.person_id, has_number=has_number)

    def _number(self, call: Call) -> tuple[str, ...]:
        number = hashed_number(call.names.phone_number, self._number_key)
        return () if number is None else (number,)

    def _places(self, institution_key: str, numbers: Iterable[str], person_id: str | None) -> Iterator[str]:
        for number in numbers:
            yield place_of_number(self._keys, institution_key, number)
        if person_id is not None:
            yield self._keys.earlier(institution_key, f"p:{quote(person_id, safe='')}")
        yield from self._consent(institution_key, person_id)

    def _consent(self, institution_key: str, person_id: str | None) -> Iterator[str]:
        """Yield where it is kept, for ever, that a member opted out."""
        if person_id is not None:
            yield place_of_consent(self._keys, institution_key, person_id)


def hashed_number(phone_number: str | None, secret: bytes | None) -> str | None:
    """Return the keyed hash that hides a number; None for a number that is withheld, and without the hash's key."""
    digits = digits_compared(phone_number)
    return None if digits is None or secret is None else hmac.digest(secret, digits.encode(), sha256).hex()[:32]


def place_of_number(keys: Keys, institution_key: str, hashed: str) -> str:
    """Return the key of a number's marks."""
    return keys.earlier(institution_key, f"n:{hashed}")


def place_of_consent(keys: Keys, institution_key: str, person_id: str) -> str:
    """Return the key of a member's opt-outs and opt-ins."""
    return keys.earlier(institution_key, f"c:{quote(person_id, safe='')}")


def _left_by_others(call: Call, stored: Iterable[bytes]) -> dict[str, str]:
    """Return the kinds of the marks that other calls left, with the voice id of the newest of each.

    ``stored`` are the marks of one member or number, oldest first, of two at the same time an opt-in first. An opt-in takes
    back the opt-outs before it.
    """
    ours = [one for one in (call.voice_id, call.names.alternate_id) if one is not None]
    found: dict[str, str] = {}
    for mark in stored:
        kind, _, voice_id = mark.decode().partition(":")
        is_ours = any(is_same_id(voice_id, one) for one in ours)
        if kind == Mark.OPTED_IN:
            found.pop(Mark.OPTED_OUT, None)
        elif not is_ours:
            found[kind] = voice_id
    return found

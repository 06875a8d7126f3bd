"""Erases what Redis holds of a person: numbers, names, notes and reasons of settled calls. Ids and decisions stay.

A live call is not changed, because its data is in use: it is counted, and erased by the same command after its end. A call
under a legal hold of the archive is not changed either.
"""

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import WatchError

from calls.call_query import same_number
from calls.effect_ledger import EffectKind
from calls.record import Call, encode_call, readable_call, with_effect
from calls.store.keys import CallId, Keys, parse_member
from calls.trail import Entry, encode_entry, parse_trail

AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose data is erased: a member's, or of a phone number."""

    institution_key: str
    person_id: str | None = None
    phone: str | None = None
    country: str = "US"

    def is_own(self, call: Call) -> bool:
        """Tell whether a call is this person's own."""
        if call.institution_key != self.institution_key:
            return False
        if self.phone is not None:
            return call.phone_number is not None and same_number(call.phone_number, self.phone, self.country)
        return call.person_id == self.person_id

    def names(self, call: Call) -> bool:
        """Tell whether a call names this person."""
        is_candidate = any(one.person_id == self.person_id for one in call.candidates)
        return self.is_own(call) or (
            call.institution_key == self.institution_key and self.person_id is not None and is_candidate
        )


@dataclass(frozen=True, slots=True)
class ErasedCalls:
    """How many calls were erased, and how many were left alone because they are live, or under a hold."""

    erased: int
    live: int
    held: int


def without_personal(call: Call, whose: Whose) -> Call:
    """Return a record without what is personal: everything of a call of the person's own, else the name."""
    if not whose.is_own(call):
        named = (replace(one, name="") if one.person_id == whose.person_id else one for one in call.candidates)
        return replace(call, candidates=tuple(named))
    for kind in EffectKind:
        call = with_effect(call, kind, replace(call.effect(kind), remark=None))
    words = {
        name: replace(word, reason="")
        for name in ("distrusted", "assign_wish", "check_wish")
        if (word := getattr(call, name)) is not None
    }
    return replace(
        call,
        phone_number=None,
        candidates=tuple(replace(one, name="") for one in call.candidates),
        identity=None if call.identity is None else replace(call.identity, remark=None),
        **words,
    )


def lines_without_personal(trail: tuple[Entry, ...]) -> Iterator[Entry]:
    """Yield a trail without the reasons that people gave."""
    for line in trail:
        yield replace(line, because=None) if line.what == "said" else line


class Eraser:
    """Erases in Redis."""

    def __init__(self, redis: "Redis", *, keys: Keys) -> None:
        self._redis: Any = redis  # its stubs cannot know that answers are bytes here
        self._keys = keys

    async def erase(self, whose: Whose, *, held: Collection[str] = ()) -> ErasedCalls:
        """Erase a person's data.

        Args:
            whose: The person.
            held: The voice ids of calls under a legal hold.

        Raises:
            redis.exceptions.RedisError: Redis is down or refuses writes. Erasing again is harmless.
        """
        found = ErasedCalls(0, 0, 0)
        own: set[str] = set()
        async for place in self._settled():
            call = await self._call(place)
            if call is None or not whose.names(call):
                continue
            if place.voice_id in held:
                found = ErasedCalls(found.erased, found.live, found.held + 1)
                continue
            await self._rewrite(place, whose)
            found = ErasedCalls(found.erased + 1, found.live, found.held)
            own |= {place.voice_id, call.alternate_id or ""} if whose.is_own(call) else set()
        await self._forget_events(whose.institution_key, own)
        if whose.person_id is not None:
            keys, key = self._keys, whose.institution_key
            await self._redis.delete(
                keys.earlier(key, f"p:{quote(whose.person_id, safe='')}"), keys.enrolled(key, whose.person_id)
            )
        live = [await self._call(place) for place in await self._live()]
        return ErasedCalls(found.erased, sum(call is not None and whose.names(call) for call in live), found.held)

    async def _settled(self) -> AsyncIterator[CallId]:
        begin = 0
        while members := await self._redis.zrange(self._keys.settled, begin, begin + AT_ONCE - 1):
            for member in members:
                if isinstance(owner := parse_member(member.decode()), CallId):
                    yield owner
            begin += AT_ONCE

    async def _live(self) -> list[CallId]:
        members = await self._redis.zrange(self._keys.live, 0, -1)
        owners = (parse_member(member.decode()) for member in members)
        return [owner for owner in owners if isinstance(owner, CallId)]

    async def _call(self, place: CallId) -> Call | None:
        stored = await self._redis.hget(self._keys.item(place.member), "rec")
        return None if stored is None else readable_call(stored)

    async def _rewrite(self, place: CallId, whose: Whose) -> None:
        """Rewrite a record and its trail. If a worker writes meanwhile, it is done again."""
        while True:
            with suppress(WatchError):
                await self._rewrite_once(self._keys.item(place.member), self._keys.trail(place.member), whose)
                return

    async def _rewrite_once(self, item: str, trail: str, whose: Whose) -> None:
        async with self._redis.pipeline(transaction=True) as pipe:
            await pipe.watch(item, trail)
            stored = await pipe.hget(item, "rec")
            call = None if stored is None else readable_call(stored)
            if call is None:
                return
            lines = parse_trail(await pipe.lrange(trail, 0, -1))
            pipe.multi()
            pipe.hset(item, "rec", encode_call(without_personal(call, whose)))
            if whose.is_own(call):
                for n, line in enumerate(lines_without_personal(lines)):
                    pipe.lset(trail, n, encode_entry(line))
            await pipe.execute()

    async def _forget_events(self, institution_key: str, voice_ids: Collection[str]) -> None:
        """Delete the pushes about a person's calls from the event log: they hold the last digits of the number."""
        begin = 0
        while events := await self._redis.zrange(self._keys.events, begin, begin + AT_ONCE - 1):
            gone = [event for event in events if _is_about(event, institution_key, voice_ids)]
            if gone:
                await self._redis.zrem(self._keys.events, *gone)
            begin += len(events) - len(gone)


class _Event(msgspec.Struct):
    institution_key: str = ""
    voice_id: str | None = None
    alternate_id: str | None = None


def _is_about(stored: bytes, institution_key: str, voice_ids: Collection[str]) -> bool:
    try:
        event = msgspec.json.decode(stored, type=_Event)
    except msgspec.MsgspecError:
        return False
    return event.institution_key == institution_key and not {event.voice_id, event.alternate_id}.isdisjoint(voice_ids)

"""Erases what Redis holds of a person: numbers, names, notes and reasons of settled calls. Ids and decisions stay.

A live call is not changed, because its data is in use: it is counted, and erased by the same command after its end. A call
under a legal hold is not changed either, whether it is archived or not.
"""

import dataclasses
import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import WatchError

from callkeeper.calls.call_query import members_of, spellings_of
from callkeeper.calls.claimed_item import WHOLLY_ERASED, parse_unnamed
from callkeeper.calls.effect_ledger import Effect, EffectKind
from callkeeper.calls.item_names import CallId, parse_member
from callkeeper.calls.phone_number import digits_of, same_number
from callkeeper.calls.record import Call, CallStatement, Identity, Mark, named_in, with_effect
from callkeeper.calls.record_storage import encode_call, readable_call, without_caller, without_names, without_unknown
from callkeeper.calls.store.delivery_log import Attempt
from callkeeper.calls.store.earlier_calls import hashed_number, place_of_consent, place_of_number
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import EventEntry
from callkeeper.calls.store.queries import follow_tombstones
from callkeeper.calls.stored_value import readable
from callkeeper.calls.trail import Entry, encode_entry, parse_trail
from callkeeper.service.endpoints import canonical_id

AT_ONCE: Final = 500
_OPTED_OUT: Final = f"{Mark.OPTED_OUT}:".encode()
"""What an erasure leaves of an opt-out: that there is one, and of no call."""
_GLOB: Final = re.compile(r"[*?\[\]\\^]")


@dataclass(frozen=True, slots=True)
class Holds:
    """What is under a legal hold at an institution: everything, or calls and members. Later calls are held too.

    ``calls`` are in the canonical spelling, ``members`` casefolded.
    """

    is_of_all: bool = False
    calls: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()

    @classmethod
    def of(cls, stored: Iterable[tuple[str, str]]) -> "Holds":
        """Return the holds of an institution from their kinds (call, person, institution) and values."""
        found = list(stored)
        return cls(
            any(kind == "institution" for kind, _ in found),
            frozenset(canonical_id(value) for kind, value in found if kind == "call"),
            frozenset(value.casefold() for kind, value in found if kind == "person"),
        )

    def cover(self, voice_ids: Iterable[str | None], members: Iterable[str | None]) -> bool:
        """Tell whether a call is held, by any of its ids and by any member that it names."""
        return (
            self.is_of_all
            or any(one is not None and canonical_id(one) in self.calls for one in voice_ids)
            or any(one is not None and one.casefold() in self.members for one in members)
        )


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose data is erased: a member's, or of a phone number. ``hashed`` is what records have of earlier numbers."""

    institution_key: str
    person_id: str | None = None
    phone: str | None = None
    country: str = "US"
    hashed: str | None = None

    def is_own(self, call: Call) -> bool:
        if call.institution_key != self.institution_key:
            return False
        if self.phone is not None:
            return call.names.phone_number is not None and same_number(
                call.names.phone_number, self.phone, self.country
            )
        return call.seen.person_id == self.person_id

    def is_member(self, person_id: str | None) -> bool:
        """Tell whether somebody is the member; nobody is, if a phone number's data is erased."""
        return self.person_id is not None and person_id == self.person_id

    def erased_beside(self, before: bytes | None, *, is_own: bool) -> bytes:
        """Return what is erased of a call, as its item says it: all, or names of members beside those ``before``."""
        if is_own or before == WHOLLY_ERASED:
            return WHOLLY_ERASED
        named = parse_unnamed(before) | ({self.person_id} if self.person_id is not None else set())
        return msgspec.json.encode(sorted(named)) if named else b""

    def is_named_in(self, call: Call, trail: Iterable[Entry]) -> bool:
        if call.institution_key != self.institution_key:
            return False
        is_by_member = self.person_id is not None and self.person_id in members_of(call, trail)
        return is_by_member or self.hashed in call.ledger.marked_numbers

    def spellings_left(self, call: Call, trail: Sequence[Entry], erased: bytes | None) -> set[str]:
        """Return the ids in a call that differ from the member's only in capitals, and whose data the call may still have.

        ``erased``: what was erased of the call before, as its item says it.
        """
        if self.person_id is None:
            return set()
        others = spellings_of(self.person_id, members_of(call, trail)) - {self.person_id}
        return {one for one in others if _has_data(dataclasses.replace(self, person_id=one), call, trail, erased)}


def _notes_of(call: Call) -> dict[str, CallStatement | Identity | Effect]:
    """Return the parts of a record that may have words of a person about a member, by what they are."""
    said = call.statements
    words = {name: getattr(said, name) for name in ("identity", "distrusted", "assign_wish", "check_wish")}
    effects = {kind.value: call.effect(kind) for kind in EffectKind}
    return {name: note for name, note in (words | effects).items() if note is not None}


def _is_said(line: Entry) -> bool:
    return line.what == "said"


@dataclass(slots=True)
class ErasedCalls:
    """How many calls were erased, and how many were left alone: live ones, those under a hold, those nobody can read.

    ``marks``: how many marks were deleted, by which later calls would have been known as those of a rejected caller.
    ``spellings``: ids in calls that differ from the member's only in capitals, and were not erased.
    """

    erased: int = 0
    live: int = 0
    held: int = 0
    unread: int = 0
    marks: int = 0
    spellings: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Seen:
    """The ids of an institution's calls, canonical. ``endings``: last digits of the person's own numbers."""

    own: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    """Of calls that keep their data, because they are held or in use."""
    others: dict[str, str] = field(default_factory=dict)
    """Of other people's calls, with the last digits of their numbers."""
    endings: set[str] = field(default_factory=set)

    def note_own(self, call: Call) -> None:
        self.own |= _ids_of(call)
        if ending := call.names.last_digits:
            self.endings.add(ending)

    def note_other(self, call: Call, ids: Iterable[str]) -> None:
        self.others |= dict.fromkeys(ids, call.names.last_digits)


def without_personal(call: Call, whose: Whose, *, is_own: bool) -> Call:
    """Return a record without what is personal: all of a call of the person's own, else name, notes, an earlier number."""
    statements: dict[str, Any] = {}
    for name, note in _notes_of(call).items():
        match note:
            case _ if not (is_own or whose.is_member(named_in(note))):
                continue
            case Effect():
                call = with_effect(call, EffectKind(name), replace(note, remark=None))
            case Identity():
                statements[name] = replace(note, remark=None)
            case CallStatement():
                statements[name] = replace(note, reason="")
    call = without_caller(without_unknown(call)) if is_own else without_names(call, {whose.person_id} - {None})
    numbers = tuple([one for one in call.ledger.marked_numbers if not is_own and one != whose.hashed])
    return replace(
        call,
        ledger=replace(call.ledger, marked_numbers=numbers),
        statements=replace(call.statements, **statements),
    )


def lines_without_personal(trail: Iterable[Entry], whose: Whose, *, is_own: bool) -> Iterator[Entry]:
    """Yield a trail without the reasons that people gave: all in a call of the person's own, else those about them."""
    for line in trail:
        is_theirs = _is_said(line) and (is_own or whose.is_member(line.person_id or line.member))
        yield replace(line, because=None) if is_theirs else line


def _has_data(whose: Whose, call: Call, trail: Sequence[Entry], erased: bytes | None) -> bool:
    """Tell whether a member was never erased in a call, or something personal came into it since."""
    if erased != WHOLLY_ERASED and whose.person_id not in parse_unnamed(erased):
        return True
    is_own = whose.is_own(call)
    bare = without_personal(call, whose, is_own=is_own), *lines_without_personal(trail, whose, is_own=is_own)
    return bare != (call, *trail)


def _ids_of(call: Call) -> set[str]:
    ids = (call.voice_id, call.names.alternate_id, call.names.assigned_id)
    return {canonical_id(one) for one in ids if one is not None}


class Eraser:
    """Erases in Redis."""

    def __init__(self, redis: Redis, *, keys: Keys, number_key: bytes | None = None) -> None:
        """Set up. ``number_key`` finds the marks of a number (`earlier_calls`) of which no call is left."""
        self._redis = in_bytes(redis)
        self._keys = keys
        self._number_key = number_key

    async def erase(
        self, whose: Whose, *, holds: Holds, held: Collection[str] = (), archived: Collection[str] = ()
    ) -> ErasedCalls:
        """Erase a person's data.

        ``held`` are voice ids of calls that the archive holds, ``archived`` those of the person's own calls that were
        erased there; Redis may have lost them.

        Raises:
            redis.exceptions.RedisError: Redis is down or refuses writes. Erasing again is harmless.
        """
        found, seen = ErasedCalls(), _Seen(own=set(map(canonical_id, archived)), kept=set(map(canonical_id, held)))
        holds = dataclasses.replace(holds, calls=holds.calls | seen.kept)
        whose = dataclasses.replace(whose, hashed=hashed_number(whose.phone, self._number_key))
        # Read before the calls: what is left there after this is of a call that may be in use.
        left = {} if holds.cover((), (whose.person_id,)) else await self._left_under(whose)
        async for place in self._places(whose.institution_key):
            await self._erase_call(place, whose, holds, found, seen)
        seen.kept |= holds.calls
        seen.own -= seen.kept
        if whose.phone is not None:
            seen.endings.add(digits_of(whose.phone)[-4:])
        await self._forget_events(whose.institution_key, seen)
        await self._forget_answers(whose.institution_key, seen)
        found.marks = await self._forget_marks(whose.institution_key, seen, left)
        return found

    async def has_calls(self, institution_key: str) -> bool:
        """Tell whether there are calls of an institution, which may be managed no more."""
        async for _ in self._places(institution_key):
            return True
        return False

    async def _erase_call(self, place: CallId, whose: Whose, holds: Holds, found: ErasedCalls, seen: _Seen) -> None:
        item = self._keys.item(place.member)
        pipe = self._redis.pipeline(transaction=False).hmget(item, "rec", "was", "moved", "erased")
        (stored, merged, moved, before), lines = await pipe.lrange(self._keys.trail(place.member), 0, -1).execute()
        if stored is None and merged is None:
            return
        call = readable_call(stored or merged)
        if call is None:
            found.unread += 1
            seen.kept.add(canonical_id(place.voice_id))
            return
        ids = _ids_of(call) | {canonical_id(place.voice_id)}
        trail, same = parse_trail(lines), await self._merged_into(moved) or call
        is_own, spellings = whose.is_own(call) or whose.is_own(same), whose.spellings_left(call, trail, before)
        if not (is_own or whose.is_named_in(call, trail) or whose.is_named_in(same, ())):
            seen.note_other(call, ids)
        elif holds.cover(ids | _ids_of(same), members_of(call, trail) | members_of(same, ())):
            found.held += stored is not None
            seen.kept |= ids
        elif not await self._rewrite(place, whose, is_own=is_own):
            found.live += stored is not None
            seen.kept |= ids
        else:
            found.erased += stored is not None
            if is_own:
                seen.note_own(call)
                spellings = set()  # everything of the call was erased
            else:
                seen.note_other(call, ids)
        found.spellings |= spellings

    async def _merged_into(self, moved: bytes | None) -> Call | None:
        """Return the record that a record was merged into: it may name the member, whom the merged one did not know yet."""
        if moved is None:
            return None
        end = await follow_tombstones(self._redis, self._keys, moved.decode())
        record = await self._redis.hget(self._keys.item(end), "rec")
        return readable_call(record) if record is not None else None

    async def _is_in_use(self, place: CallId) -> bool:
        """Tell whether a call is live, or a worker has it or soon will. One that was merged is like the other.

        A worker that writes it into the archive has read it, and would write there what is erased now.
        """
        item = self._keys.item(place.member)
        settled, nonce, moved = await self._redis.hmget(item, "settled", "nonce", "moved")
        if moved is not None:
            rest = await self._redis.hmget(self._keys.item(moved.decode()), "rec", "settled")
            return rest[0] is not None and rest[1] is None
        if settled is None or nonce is not None or await self._redis.exists(self._keys.inbox(place.member)):
            return True
        archive = self._keys.archive
        if not await self._redis.hexists(archive.item(place.member), "nonce"):
            return False
        until_ms, (seconds, _) = await self._redis.zscore(archive.due, place.member), await self._redis.time()
        return until_ms is not None and until_ms > seconds * 1000  # when a lease is over, its holder writes no more

    async def _places(self, institution_key: str) -> AsyncIterator[CallId]:
        """Yield every call of an institution, also those that no list names: merged ones, and those past their days."""
        begin = self._keys.item("")
        every = CallId(institution_key, "").member
        async for key in self._redis.scan_iter(match=f"{_GLOB.sub(_quoted, begin + every)}*", count=AT_ONCE):
            owner = parse_member(key.decode().removeprefix(begin))
            if isinstance(owner, CallId):
                yield owner

    async def _rewrite(self, place: CallId, whose: Whose, *, is_own: bool) -> bool:
        """Rewrite a record and its trail; return False for a call in use. If a worker writes meanwhile, it is done again."""
        while True:
            with suppress(WatchError):
                return await self._rewrite_once(place, whose, is_own=is_own)

    async def _rewrite_once(self, place: CallId, whose: Whose, *, is_own: bool) -> bool:
        keys, member = self._keys, place.member
        item, trail = keys.item(member), keys.trail(member)
        async with self._redis.pipeline(transaction=True) as pipe:
            await pipe.watch(item, trail, keys.inbox(member), keys.archive.item(member))
            # Asked only now: a worker that claims the call after this would store what it has read, so nothing is written.
            if await self._is_in_use(place):
                return False
            stored = {name: await pipe.hget(item, name) for name in ("rec", "was")}
            calls = {name: call for name, value in stored.items() if value and (call := readable_call(value))}
            lines = parse_trail(await pipe.lrange(trail, 0, -1))
            erased = whose.erased_beside(await pipe.hget(item, "erased"), is_own=is_own)
            pipe.multi()
            if erased:
                pipe.hset(item, "erased", erased)  # so that no later event brings it back
            for name, call in calls.items():
                pipe.hset(item, name, encode_call(without_personal(call, whose, is_own=is_own)))
            bare = lines_without_personal(lines, whose, is_own=is_own)
            for n, (line, before) in enumerate(zip(bare, lines, strict=True)):
                if line != before:
                    pipe.lset(trail, n, encode_entry(line))
            await pipe.execute()
        return True

    async def _forget_events(self, institution_key: str, seen: _Seen) -> None:
        """Delete the pushes about a person's calls from the event log: they hold the last digits of the number.

        A push of a number that ends so goes too if no call is known that it was about, or if the call has another number
        by now.
        """
        begin = 0
        while events := await self._redis.zrange(self._keys.events, begin, begin + AT_ONCE - 1):
            gone = [event for event in events if _is_about(event, institution_key, seen)]
            if gone:
                await self._redis.zrem(self._keys.events, *gone)
            begin += len(events) - len(gone)

    async def _forget_answers(self, institution_key: str, seen: _Seen) -> None:
        """Delete what receivers answered to outcomes of a person's calls: they may say anything."""
        log = self._keys.outbox.deliveries
        for stored, at_ms in await self._redis.zrange(log, 0, -1, withscores=True):
            attempt = readable(stored, Attempt)
            call_id = attempt.call_id if attempt is not None else None
            if attempt is None or call_id is None or call_id.institution_key != institution_key or not attempt.answer:
                continue
            if canonical_id(call_id.voice_id) in seen.own:
                rest = msgspec.json.encode(replace(attempt, answer=""))
                await self._redis.pipeline(transaction=True).zrem(log, stored).zadd(log, {rest: at_ms}).execute()

    async def _left_under(self, whose: Whose) -> dict[str, dict[bytes, bytes]]:
        """Return what calls have left under a member or a number: each key's members, with the voice id of each."""
        keys, key, person_id = self._keys, whose.institution_key, whose.person_id
        if person_id is None:
            place = place_of_number(keys, key, whose.hashed) if whose.hashed is not None else None
            return {place: await self._marks(place)} if place is not None else {}
        earlier = keys.earlier(key, f"p:{quote(person_id, safe='')}")
        places = (keys.enrolled(key, person_id), keys.established(key, person_id))
        calls = {place: {one: one for one in await self._members(place)} for place in places}
        consent = place_of_consent(keys, key, person_id)
        return {earlier: await self._marks(earlier), consent: await self._marks(consent), **calls}

    async def _forget_marks(self, institution_key: str, seen: _Seen, left: dict[str, dict[bytes, bytes]]) -> int:
        """Delete what calls have left under the member or the number, unless they keep their data; return how many marks.

        Of the person's own calls the marks under their numbers go too. Those under other members stay: a fraudster who is
        erased must not take along what warns of calls as a member whom he tried.
        """
        gone: set[bytes] = set()
        for place, marks in left.items():
            ours = [one for one, voice_id in marks.items() if not _has(seen.kept, voice_id)]
            is_consent = place.startswith(self._keys.earlier(institution_key, "c:"))
            at_s = await self._opted_out_at(place, marks) if is_consent else None
            await self._remove(place, ours)
            if at_s is not None and list(marks)[-1] in ours:
                await self._redis.zadd(place, {_OPTED_OUT: at_s})
            gone.update(ours if place.startswith(self._keys.earlier(institution_key, "")) else ())
        numbers = _GLOB.sub(_quoted, self._keys.earlier(institution_key, "n:"))
        async for stored in self._redis.scan_iter(match=f"{numbers}*", count=AT_ONCE):
            marks = await self._marks(stored.decode())
            ours = [one for one, voice_id in marks.items() if _has(seen.own, voice_id)]
            await self._remove(stored.decode(), ours)
            gone.update(ours)
        return len(gone)

    async def _marks(self, place: str) -> dict[bytes, bytes]:
        return {mark: mark.partition(b":")[2] for mark in await self._members(place)}

    async def _opted_out_at(self, place: str, marks: Mapping[bytes, bytes]) -> float | None:
        """Return when a member opted out, by their marks of consent; None if they opted in since, or there is none."""
        last = next(reversed(list(marks)), b"")
        return await self._redis.zscore(place, last) if last.startswith(_OPTED_OUT) else None

    async def _members(self, place: str) -> list[bytes]:
        members: list[bytes] = await self._redis.zrange(place, 0, -1)
        return members

    async def _remove(self, place: str, members: Collection[bytes]) -> None:
        if members:
            await self._redis.zrem(place, *members)


def _quoted(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _has(voice_ids: Collection[str], voice_id: bytes) -> bool:
    return canonical_id(voice_id.decode()) in voice_ids


def _is_about(stored: bytes, institution_key: str, seen: _Seen) -> bool:
    event = readable(stored, EventEntry)
    if event is None or event.institution_key != institution_key:
        return False
    ids = {canonical_id(one) for one in (event.voice_id, event.alternate_id) if one is not None}
    is_others = any(seen.others.get(one) == event.phone_last4 for one in ids)
    return not ids.isdisjoint(seen.own) or (
        event.phone_last4 in seen.endings and ids.isdisjoint(seen.kept) and not is_others
    )

"""Read-only queries of the calls in Redis.

Lists leave out records that cannot be read. Reading one call raises ``NewerRecord`` if a newer release wrote it.

``Queries`` reads for people: all calls, or what needs a person. ``Lookup`` reads for the desk API as well: one call by
either of its ids, or many in pages, without reading more than asked for.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.institutions import KnownInstitutions
from callkeeper.calls.item_names import CallId, institution_member, owner_of, parse_member
from callkeeper.calls.notes import MERGED
from callkeeper.calls.pause import parse_pauses
from callkeeper.calls.record import Call, Obstacles
from callkeeper.calls.record_storage import parse_call, readable_call
from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from callkeeper.calls.store.keys import KEYS, MOST_TOMBSTONES, Keys
from callkeeper.calls.store.last_listing import Standing
from callkeeper.calls.store.time_slices import SLICE, TimeSlices
from callkeeper.calls.stored_value import readable
from callkeeper.calls.trail import Entry, Recorded, parse_trail, recorded
from callkeeper.service.endpoints import canonical_id


class Queries:
    """Reads calls, trails and what needs a person."""

    def __init__(self, redis: Redis, *, keys: Keys = KEYS, slices: TimeSlices | None = None) -> None:
        """Set up. ``slices``: read many calls in slices, so that other work of this process does not wait."""
        self._redis = in_bytes(redis)
        self.keys = keys
        self._slices = slices

    async def load(self, call_id: CallId) -> Call | None:
        """Read a call's record, following a tombstone. None if there is none."""
        item = self.keys.item(call_id.member)
        moved, record = await self._redis.hmget(item, ["moved", "rec"])
        if moved is None and record is None and (canonical := _canonical(call_id)) != call_id:
            return await self.load(canonical)
        if moved is not None:
            end = await follow_tombstones(self._redis, self.keys, moved.decode())
            record = await self._redis.hget(self.keys.item(end), "rec")
        return None if record is None else parse_call(record)

    async def trail(self, call_id: CallId) -> tuple[Entry, ...]:
        """Read a call's trail, oldest entry first, following a tombstone."""
        member = await follow_tombstones(self._redis, self.keys, call_id.member)
        stored = await self._redis.lrange(self.keys.trail(member), 0, -1)
        if not stored and (canonical := _canonical(call_id)) != call_id:
            return await self.trail(canonical)
        return parse_trail(stored)

    async def find(self, voice_id: str) -> list[CallId]:
        """Return the calls with this id, real or alternate: usually one."""
        found, canonical = {}, canonical_id(voice_id)
        for key in await self._institution_keys():
            alias = await self._redis.get(self.keys.alias(key, canonical))
            for candidate in (CallId(key, canonical), CallId(key, alias.decode()) if alias else None):
                if candidate is not None and await self._redis.exists(self.keys.item(candidate.member)):
                    found[candidate.institution_key] = candidate
        return list(found.values())

    async def institutions(self) -> KnownInstitutions:
        """Return the institutions that are known to exist: those in the stored list, and those seen in calls.

        A push alone does not count, because its key may be invented.
        """
        pipe = self._redis.pipeline(transaction=False)
        listed, live = await pipe.hgetall(self.keys.standings).zrange(self.keys.live, 0, -1).execute()
        owners = (owner_of(member.decode(errors="replace")) for member in live)
        calls = Counter(owner.institution_key for owner in owners if isinstance(owner, CallId))
        names: dict[str, str | None] = dict.fromkeys([*await self._institution_keys(), *calls])
        names.update((key.decode(), _name(standing)) for key, standing in listed.items())
        return KnownInstitutions(names, calls, is_list_stored=bool(listed))

    async def _institution_keys(self) -> list[str]:
        """Return the institutions whose queue was read: each has a record and stays in the due set."""
        pattern = institution_member("") + "*"
        members = [member async for member, _ in self._redis.zscan_iter(self.keys.due, match=pattern, count=1000)]
        pipe = self._redis.pipeline(transaction=False)
        for member in members:
            pipe.hexists(self.keys.item(member.decode(errors="replace")), "rec")
        were_read = await pipe.execute() if members else []
        found = (member for member, was_read in zip(members, were_read, strict=True) if was_read)
        owners = (owner_of(member.decode(errors="replace")) for member in found)
        return sorted({owner for owner in owners if isinstance(owner, str)})

    async def live(self) -> AsyncIterator[Call]:
        """Read the calls that are not settled, oldest first."""
        async for call, _ in self._each(await self._redis.zrange(self.keys.live, 0, -1)):
            yield call

    async def settled(self, limit: int) -> AsyncIterator[Call]:
        """Read the last settled calls, newest first."""
        async for call, _ in self._each(await self._redis.zrevrange(self.keys.settled, 0, limit - 1)):
            yield call

    async def recordings(self, since: datetime | None = None) -> AsyncIterator[Recorded]:
        """Read calls with their trails: live ones first, then those settled since an instant."""
        least = "-inf" if since is None else since.timestamp() * 1000
        members = await self._redis.zrange(self.keys.live, 0, -1)
        members += await self._redis.zrangebyscore(self.keys.settled, least, "+inf")
        async for call, trail in self._each(members, with_trails=True):
            yield recorded(call, trail)

    async def _each(
        self, members: Sequence[bytes], *, with_trails: bool = False
    ) -> AsyncIterator[tuple[Call, tuple[Entry, ...]]]:
        size = SLICE if self._slices else 500
        for start in range(0, len(members), size):
            some = [member.decode() for member in members[start : start + size]]
            async with self._slices.one() if self._slices else nullcontext():
                pipe = self._redis.pipeline(transaction=False)
                for member in some:
                    pipe.hget(self.keys.item(member), "rec")
                    if with_trails:
                        pipe.lrange(self.keys.trail(member), 0, -1)
                answers = await pipe.execute()
                records = answers[::2] if with_trails else answers
                trails = [parse_trail(trail) for trail in answers[1::2]] if with_trails else [()] * len(some)
                calls = [readable_call(record) if record is not None else None for record in records]
            for call, trail in zip(calls, trails, strict=True):
                if call is not None:
                    yield call, trail

    async def attention(self) -> dict[str, str]:
        """Return what needs a person: member to reason."""
        pipe = self._redis.pipeline(transaction=False)
        for key in self.keys.attentions:
            pipe.hgetall(key)
        return attention_of(await pipe.execute())


def attention_of(stored: Iterable[Mapping[bytes, bytes]]) -> dict[str, str]:
    """Read the stored values of ``Keys.attentions``: member to reasons."""
    found: dict[str, list[str]] = {}
    for reasons in stored:
        for member, why in reasons.items():
            found.setdefault(member.decode(), []).append(why.decode())
    return {member: "; ".join(dict.fromkeys(why)) for member, why in found.items()}


def _name(standing: bytes) -> str | None:
    """Return the display name in a stored standing; None if it cannot be read."""
    parsed = readable(standing, Standing)
    return None if parsed is None else parsed.name


async def follow_tombstones(redis: RedisInBytes, keys: Keys, member: str) -> str:
    """Return the member at the end of a chain of tombstones. A merged record may have been merged again."""
    for _ in range(MOST_TOMBSTONES):
        further = await redis.hget(keys.item(member), "moved")
        if further is None:
            break
        member = further.decode()
    return member


SCAN_LIMIT = 2000
"""Records read for one page at most. A rare match takes several requests to find."""

SCAN_S = 2.0
"""How long records are read for one page, in seconds."""

_CHUNK = SLICE

_BEFORE_ALL, _AFTER_ALL = "!", "~"
"""In place of a member: where those of a millisecond begin, in either order."""


@dataclass(frozen=True, slots=True)
class Known:
    """A call, its trail, and the id of its record.

    ``is_certain``: the id that was asked for is the record's own, or was merged into it. Otherwise only a push said
    that it is the call's alternate id. ``is_merging``: the trail has entries of another record that is not folded in
    yet.
    """

    call_id: CallId
    call: Call
    trail: tuple[Entry, ...]
    is_certain: bool
    is_merging: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Some calls, and where the next page begins (None: no next page). ``searched``: records that were read for it."""

    calls: tuple[Call, ...]
    next: str | None
    searched: int = 0


def _canonical(call_id: CallId) -> CallId:
    return CallId(call_id.institution_key, canonical_id(call_id.voice_id))


class Lookup(Queries):
    """Queries for one call by either of its ids, and for pages."""

    async def resolve(self, institution_key: str, any_id: str) -> CallId | None:
        """Return the id of a call's record, given its real or alternate id."""
        return (await self._resolve(institution_key, any_id))[0]

    async def _resolve(self, institution_key: str, any_id: str) -> tuple[CallId | None, bool]:
        """Return the id of a call's record, and whether more than a push confirms it."""
        any_id = canonical_id(any_id)
        keys, direct = self.keys, CallId(institution_key, any_id)
        moved, alias = await self._together(
            ("hmget", keys.item(direct.member), ["moved", "rec"]), ("get", keys.alias(institution_key, any_id))
        )
        tombstone, record = moved
        if tombstone is not None:
            owner = parse_member(await follow_tombstones(self._redis, keys, tombstone.decode()))
            return owner if isinstance(owner, CallId) else None, True
        if record is not None:
            return direct, True
        if alias is None:
            return None, False
        other = CallId(institution_key, alias.decode())
        return other if await self._redis.hexists(keys.item(other.member), "rec") else None, False

    async def known(self, institution_key: str, any_id: str) -> Known | None:
        """Return a call with its trail at one moment, with the pause in force; None if there is none.

        Obstacles on effects that end by themselves are left out, because they are no reason to refuse a statement.
        """
        call_id, is_certain = await self._resolve(institution_key, any_id)
        if call_id is None:
            return None
        found = await self._read(call_id, is_certain=is_certain)
        if found is None:  # merged into another record between the two steps, or expired
            call_id, is_certain = await self._resolve(institution_key, any_id)
            found = None if call_id is None else await self._read(call_id, is_certain=is_certain)
        return found

    async def _read(self, call_id: CallId, *, is_certain: bool) -> Known | None:
        member = call_id.member
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(self.keys.item(member), "rec").lrange(self.keys.trail(member), 0, -1).hgetall(self.keys.pause)
            pipe.hkeys(self.keys.inbox(member))
            record, trail, pauses, unread = await pipe.execute()
        if record is None:
            return None
        stored = parse_pauses(pauses.items())
        pause = stored.over(call_id.institution_key)
        scope = pause.scope if pause else None
        call = parse_call(record)
        call = replace(call, last_claim=Obstacles(standing=call.last_claim.standing, paused=scope))
        is_merging = any(note_id.startswith(MERGED) for note_id in unread)
        return Known(call_id, call, parse_trail(trail), is_certain, is_merging)

    async def is_listed(self, institution_key: str) -> bool:
        """Tell whether the stored list has an institution. Faster than ``institutions``."""
        return bool(await self._redis.hexists(self.keys.standings, institution_key))

    async def name(self, institution_key: str) -> str:
        """Return an institution's display name, or its key if the name is unknown."""
        standing = await self._redis.hget(self.keys.standings, institution_key)
        return (_name(standing) if standing is not None else None) or institution_key

    async def calls(self, members: list[str]) -> dict[str, Call]:
        """Return the calls of members, following tombstones. Missing and unreadable ones are left out."""
        read = {member: readable_call(record) for member, record in (await self.records(members)).items()}
        return {member: call for member, call in read.items() if call is not None}

    async def records(self, members: list[str]) -> dict[str, bytes]:
        """Return the stored records of members, following tombstones. Missing ones are left out."""
        stored = await self._together(*(("hmget", self.keys.item(member), ["moved", "rec"]) for member in members))
        found: dict[str, bytes] = {}
        for member, (moved, record) in zip(members, stored, strict=True):
            if moved is not None:
                end = await follow_tombstones(self._redis, self.keys, moved.decode())
                record = await self._redis.hget(self.keys.item(end), "rec")  # noqa: PLW2901  (the merged one has no other use)
            if record is not None:
                found[member] = record
        return found

    async def page(
        self,
        *,
        settled: bool,
        after: str | None,
        limit: int,
        matches: Callable[[Call, tuple[Entry, ...]], bool],
        newest_first: bool | None = None,
        since: datetime | None = None,
        with_trails: bool = False,
        may_be: Callable[[str], bool] = lambda _member: True,
        most: int = SCAN_LIMIT,
    ) -> Page:
        """Return the next calls that match: live ones oldest first, settled ones newest first.

        Args:
            settled: Whether to read settled calls instead of live ones.
            after: ``Page.next`` of the previous page.
            limit: Maximum number of calls.
            matches: Tells whether a call is wanted, given its trail too if that is read.
            newest_first: The order, if it is another one.
            since: Settled calls that were settled before are left out.
            with_trails: Read the trails as well.
            may_be: Tells of which members the records are read. Others cost next to nothing.
            most: After how many records the page ends.

        Raises:
            ValueError: ``after`` does not have our format.
        """
        found: list[Call] = []
        searched, until_s = 0, time.monotonic() + SCAN_S
        position = _parse_position(after) if after else None
        passed = position  # the last one that the reader may see
        key = self.keys.settled if settled else self.keys.live
        least = f"{since.timestamp() * 1000:.0f}" if since is not None and settled else "-inf"
        is_reversed = settled if newest_first is None else newest_first
        while searched < most and time.monotonic() < until_s:
            members = await self._members(key, is_reversed, position, least)
            async with self._slices.one() if self._slices else nullcontext():
                names = [member for _, member in members if may_be(member)]
                calls = await self.calls(names)
                trails = await self._trails(names) if with_trails else {}
            searched += len(names)
            for score, member in members:
                position = (score, member)
                passed = position if may_be(member) else passed
                if member in calls and matches(calls[member], trails.get(member, ())):
                    found.append(calls[member])
                if len(found) == limit:
                    return Page(tuple(found), _position(score, member), searched)
            if len(members) < _CHUNK:
                return Page(tuple(found), None, searched)
        if position is not None and position != passed:
            # The position would name a call that the reader may not see. So the next page passes its millisecond again.
            is_within = passed is not None and passed[0] == position[0]
            position = passed if is_within else (position[0], _AFTER_ALL if is_reversed else _BEFORE_ALL)
        return Page(tuple(found), _position(*position) if position else None, searched)

    async def _trails(self, members: list[str]) -> dict[str, tuple[Entry, ...]]:
        stored = await self._together(*(("lrange", self.keys.trail(member), 0, -1) for member in members))
        return {member: parse_trail(trail) for member, trail in zip(members, stored, strict=True)}

    async def listed_settled(self, call_ids: Sequence[CallId]) -> set[CallId]:
        """Return which of some calls are among the settled ones that are listed here."""
        if not call_ids:
            return set()
        scores = await self._redis.zmscore(self.keys.settled, [call_id.member for call_id in call_ids])
        return {call_id for call_id, score in zip(call_ids, scores, strict=True) if score is not None}

    async def _members(
        self, key: str, is_reversed: bool, position: tuple[int, str] | None, least: str
    ) -> list[tuple[int, str]]:
        """Return the members after a position. Those of the same millisecond are ordered by name."""
        bound = position[0] if position else ("+inf" if is_reversed else least)
        offset = await self._offset(key, is_reversed, position) if position else 0
        edges = (bound, least) if is_reversed else (bound, "+inf")
        read = self._redis.zrevrangebyscore if is_reversed else self._redis.zrangebyscore
        rows = await read(key, *edges, start=offset, num=_CHUNK, withscores=True)
        return [(int(score), member.decode()) for member, score in rows]

    async def _offset(self, key: str, is_reversed: bool, position: tuple[int, str]) -> int:
        """Count the members of the position's millisecond that come up to and including it."""
        score, last = position
        same = [member.decode() for member in await self._redis.zrangebyscore(key, score, score)]
        return sum(1 for member in same if (member >= last if is_reversed else member <= last))

    async def _together(self, *commands: tuple[Any, ...]) -> list[Any]:
        pipe = self._redis.pipeline(transaction=False)
        for name, *arguments in commands:
            getattr(pipe, name)(*arguments)
        answers: list[Any] = await pipe.execute()
        return answers


def _position(score: int, member: str) -> str:
    return f"{score}:{member}"


def _parse_position(text: str) -> tuple[int, str]:
    score, colon, member = text.partition(":")
    if not (colon and member and score.isascii() and score.isdigit() and len(score) < 16):
        raise ValueError("not a position in a list of calls")
    return int(score), member

"""Finds calls for people's software: one by either of its ids, or many in pages, without reading more than asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from redis.asyncio import Redis

from calls.keys import CallId, Keys, parse_member
from calls.known import KnownInstitutions
from calls.notes import MERGED
from calls.pause import parse_pauses
from calls.queries import Queries, end_of_the_way
from calls.record import Call, parse_call
from calls.trail import Entry, parse_trail

SCAN_LIMIT = 2000
"""Records read for one page at most: a rare match is looked for in several requests."""

_CHUNK = 200


@dataclass(frozen=True, slots=True)
class Known:
    """A call, its trail, and the id its record is kept under.

    ``is_certain``: the id that was asked for is the record's, or was merged into it. Otherwise a push alone has said that
    it is the call's alternate id. ``is_merging``: the trail has lines of another record that this one has not taken in yet.
    """

    call_id: CallId
    call: Call
    trail: tuple[Entry, ...]
    is_certain: bool
    is_merging: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Some calls, and where the next page begins (None: there is none)."""

    calls: tuple[Call, ...]
    next: str | None


class Lookup:
    """Reads calls; nothing here changes anything."""

    def __init__(self, redis: "Redis", *, keys: Keys | None = None) -> None:
        self._redis: Any = redis  # its stubs cannot know that answers are bytes here
        self.keys = Keys() if keys is None else keys

    async def resolve(self, institution_key: str, any_id: str) -> CallId | None:
        """Return the id that a call's record is kept under, by real or alternate id."""
        return (await self._resolve(institution_key, any_id))[0]

    async def _resolve(self, institution_key: str, any_id: str) -> tuple[CallId | None, bool]:
        """Return the id that a call's record is kept under, and whether more than a push says so."""
        keys, direct = self.keys, CallId(institution_key, any_id)
        moved, alias = await self._together(
            ("hmget", keys.item(direct.member), ["moved", "rec"]), ("get", keys.alias(institution_key, any_id))
        )
        tombstone, record = moved
        if tombstone is not None:
            owner = parse_member(await end_of_the_way(self._redis, keys, tombstone.decode()))
            return owner if isinstance(owner, CallId) else None, True
        if record is not None:
            return direct, True
        if alias is None:
            return None, False
        other = CallId(institution_key, alias.decode())
        return other if await self._redis.hexists(keys.item(other.member), "rec") else None, False

    async def known(self, institution_key: str, any_id: str) -> Known | None:
        """Return a call with its trail as they are at one moment, under the pause in force; None if there is none.

        That effects are held for some seconds, because Redis is new, is left out: no reason to refuse anybody's word.
        """
        call_id, is_certain = await self._resolve(institution_key, any_id)
        if call_id is None:
            return None
        member = call_id.member
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(self.keys.item(member), "rec").lrange(self.keys.trail(member), 0, -1).hgetall(self.keys.pause)
            pipe.hkeys(self.keys.inbox(member))
            record, trail, pauses, unread = await pipe.execute()
        if record is None:
            return None
        stored = parse_pauses(tuple((key.decode(), value) for key, value in pauses.items()))
        pause = stored.over(call_id.institution_key)
        call = replace(parse_call(record), paused=pause.scope if pause else None, effects_held_until=None)
        is_merging = any(note_id.startswith(MERGED) for note_id in unread)
        return Known(call_id, call, parse_trail(trail), is_certain, is_merging)

    async def is_listed(self, institution_key: str) -> bool:
        """Tell whether the service's list, as stored, has an institution: quicker than ``institutions``."""
        return bool(await self._redis.hexists(self.keys.standings, institution_key))

    async def institutions(self) -> KnownInstitutions:
        """Return the institutions that exist as far as we know."""
        return await Queries(self._redis, keys=self.keys).institutions()

    async def calls(self, members: list[str]) -> dict[str, Call]:
        """Return the records of members, tombstones followed; those that are gone are left out."""
        stored = await self._together(*(("hmget", self.keys.item(member), ["moved", "rec"]) for member in members))
        found = {}
        for member, (moved, record) in zip(members, stored, strict=True):
            if moved is not None:
                end = await end_of_the_way(self._redis, self.keys, moved.decode())
                record = await self._redis.hget(self.keys.item(end), "rec")  # noqa: PLW2901
            if record is not None:
                found[member] = parse_call(record)
        return found

    async def page(self, *, settled: bool, after: str | None, limit: int, matches: Callable[[Call], bool]) -> Page:
        """Return the next calls that match: live ones oldest first, settled ones newest first.

        Args:
            settled: Which of the two.
            after: ``Page.next`` of the page before.
            limit: Calls at most.
            matches: Which calls are wanted.

        Raises:
            ValueError: ``after`` was not ours.
        """
        found: list[Call] = []
        position = _parse_position(after) if after else None
        for _ in range(SCAN_LIMIT // _CHUNK):
            members = await self._members(settled, position)
            calls = await self.calls([member for _, member in members])
            for score, member in members:
                position = (score, member)
                if member in calls and matches(calls[member]):
                    found.append(calls[member])
                if len(found) == limit:
                    return Page(tuple(found), _position(score, member))
            if len(members) < _CHUNK:
                return Page(tuple(found), None)
        return Page(tuple(found), _position(*position) if position else None)

    async def _members(self, settled: bool, position: tuple[int, str] | None) -> list[tuple[int, str]]:
        """Return the members that follow a position; those of the same millisecond are told apart by name."""
        key = self.keys.settled if settled else self.keys.live
        bound = position[0] if position else ("+inf" if settled else "-inf")
        offset = await self._offset(key, settled, position) if position else 0
        edges = (bound, "-inf") if settled else (bound, "+inf")
        read = self._redis.zrevrangebyscore if settled else self._redis.zrangebyscore
        rows = await read(key, *edges, start=offset, num=_CHUNK, withscores=True)
        return [(int(score), member.decode()) for member, score in rows]

    async def _offset(self, key: str, settled: bool, position: tuple[int, str]) -> int:
        """Count the members of the position's millisecond that come before what follows it."""
        score, last = position
        same = [member.decode() for member in await self._redis.zrangebyscore(key, score, score)]
        return sum(1 for member in same if (member >= last if settled else member <= last))

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

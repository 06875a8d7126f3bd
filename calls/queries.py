"""Reads of the calls in Redis for people: nothing here changes anything."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from redis.asyncio import Redis

from calls.institution import parse_standing
from calls.keys import CallId, Keys, institution_member, parse_member
from calls.known import KnownInstitutions
from calls.record import Call, parse_call
from calls.recording import Recorded, recorded
from calls.trail import Entry, parse_trail

MOST_TOMBSTONES = 20
"""Followed one after the other at most, as the scripts do."""


class Queries:
    """Reads calls, trails and what needs a person."""

    def __init__(self, redis: "Redis", *, keys: Keys | None = None) -> None:
        self._redis: Any = redis  # its stubs cannot know that answers are bytes here
        self.keys = Keys() if keys is None else keys

    async def load(self, call_id: CallId) -> Call | None:
        """Read a call's record; follows a tombstone. None if there is none."""
        item = self.keys.item(call_id.member)
        moved, record = await self._redis.hmget(item, ["moved", "rec"])
        if moved is not None:
            end = await end_of_the_way(self._redis, self.keys, moved.decode())
            record = await self._redis.hget(self.keys.item(end), "rec")
        return None if record is None else parse_call(record)

    async def trail(self, call_id: CallId) -> tuple[Entry, ...]:
        """Read a call's trail, oldest line first; follows a tombstone."""
        member = await end_of_the_way(self._redis, self.keys, call_id.member)
        return parse_trail(await self._redis.lrange(self.keys.trail(member), 0, -1))

    async def find(self, voice_id: str) -> list[CallId]:
        """Return the calls that an id, real or alternate, stands for: usually one."""
        found = {}
        for key in await self._institution_keys():
            call_id = CallId(key, voice_id)
            alias = await self._redis.get(self.keys.alias(key, voice_id))
            for candidate in (call_id, CallId(key, alias.decode()) if alias else None):
                if candidate is not None and await self._redis.exists(self.keys.item(candidate.member)):
                    found[candidate.institution_key] = candidate
        return list(found.values())

    async def institutions(self) -> KnownInstitutions:
        """Return the institutions that exist as far as we know: the stored list, and those seen in calls.

        A push alone does not make an institution known, because its key may be invented.
        """
        pipe = self._redis.pipeline(transaction=False)
        listed, live = await pipe.hgetall(self.keys.standings).zrange(self.keys.live, 0, -1).execute()
        calls = Counter(owner.institution_key for owner in map(_owner, live) if isinstance(owner, CallId))
        names: dict[str, str | None] = dict.fromkeys([*await self._institution_keys(), *calls])
        names.update((key.decode(), _name(standing)) for key, standing in listed.items())
        return KnownInstitutions(names, calls, is_list_stored=bool(listed))

    async def _institution_keys(self) -> list[str]:
        """Return the institutions whose queue was read: each is due again and again, and has a record of its own."""
        pattern = institution_member("") + "*"
        members = [member async for member, _ in self._redis.zscan_iter(self.keys.due, match=pattern, count=1000)]
        pipe = self._redis.pipeline(transaction=False)
        for member in members:
            pipe.hexists(self.keys.item(member.decode()), "rec")
        were_read = await pipe.execute() if members else []
        owners = (_owner(member) for member, was_read in zip(members, were_read, strict=True) if was_read)
        return sorted({owner for owner in owners if isinstance(owner, str)})

    async def live(self) -> AsyncIterator[Call]:
        """Read the calls that are not settled, oldest first."""
        async for call in self._each(await self._redis.zrange(self.keys.live, 0, -1)):
            yield call

    async def settled(self, limit: int) -> AsyncIterator[Call]:
        """Read the calls that were settled last, newest first."""
        async for call in self._each(await self._redis.zrevrange(self.keys.settled, 0, limit - 1)):
            yield call

    async def recordings(self, since: datetime | None = None) -> AsyncIterator[Recorded]:
        """Read calls with their trails, live ones first; of the settled ones those settled since an instant."""
        least = "-inf" if since is None else since.timestamp() * 1000
        members = await self._redis.zrange(self.keys.live, 0, -1)
        members += await self._redis.zrangebyscore(self.keys.settled, least, "+inf")
        for start in range(0, len(members), 500):
            pipe = self._redis.pipeline(transaction=False)
            for member in members[start : start + 500]:
                pipe.hget(self.keys.item(member.decode()), "rec")
                pipe.lrange(self.keys.trail(member.decode()), 0, -1)
            answers = await pipe.execute()
            for record, trail in zip(answers[::2], answers[1::2], strict=True):
                if record is not None:
                    yield recorded(parse_call(record), parse_trail(trail))

    async def _each(self, members: Sequence[bytes]) -> AsyncIterator[Call]:
        for start in range(0, len(members), 500):
            pipe = self._redis.pipeline(transaction=False)
            for member in members[start : start + 500]:
                pipe.hget(self.keys.item(member.decode()), "rec")
            for record in await pipe.execute():
                if record is not None:
                    yield parse_call(record)

    async def attention(self) -> dict[str, str]:
        """Return what needs a person: member to reason."""
        stored = await self._redis.hgetall(self.keys.attention)
        unsent = await self._redis.hgetall(self.keys.outbox.attention)
        return {
            member.decode(): "; ".join(why[member].decode() for why in (stored, unsent) if member in why)
            for member in {**stored, **unsent}
        }


def _owner(member: bytes) -> CallId | str | None:
    """Return what a member stands for, None if somebody else wrote it."""
    try:
        return parse_member(member.decode())
    except ValueError:
        return None


def _name(standing: bytes) -> str | None:
    """Return the display name in a stored standing; one that cannot be read still shows that there is an institution."""
    parsed = parse_standing(standing)
    return None if parsed is None else parsed.name


async def end_of_the_way(redis: Any, keys: Keys, member: str) -> str:
    """Return the member that tombstones lead to; what was merged may have been merged again."""
    for _ in range(MOST_TOMBSTONES):
        further = await redis.hget(keys.item(member), "moved")
        if further is None:
            break
        member = further.decode()
    return member

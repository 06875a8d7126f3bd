"""What the service lists, as we last saw it: institutions and their standing, open calls and their fingerprints."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from redis.asyncio import Redis

from calls.institutions import Standing, encode_standing, parse_standings
from calls.store.keys import Keys

LOOK_BACKS_A_MINUTE = 30
"""Reads for ends of unlisted calls in a minute, of all institutions together."""


class LookBackAllowance:
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


class Listings:
    """Remembers what was listed, so that a listing of thousands tells only the calls that changed."""

    def __init__(
        self,
        redis: "Redis",
        *,
        keys: Keys | None = None,
        unreadable: Callable[[str, str], None] = lambda _what, _about: None,
    ) -> None:
        """Open it. ``unreadable`` is told what kind of stored value cannot be read, and of which institution."""
        self._redis: Any = redis  # its stubs cannot know that answers are bytes here
        self.keys = Keys() if keys is None else keys
        self._unreadable = unreadable

    async def standings(self) -> dict[str, Standing]:
        """Return what the service says of the institutions, as last read; what cannot be read is left out."""
        stored = await self._redis.hgetall(self.keys.standings)
        found = parse_standings(stored)
        for key in {key.decode(errors="replace") for key in stored} - found.keys():
            self._unreadable("standing", key)
        return found

    async def save_standings(self, standings: Iterable[Standing]) -> None:
        """Write down what the service says of institutions; all are forgotten an hour after the first was written."""
        stored = {standing.key: encode_standing(standing) for standing in standings}
        if not stored:
            return
        await self._redis.hset(self.keys.standings, mapping=stored)
        if await self._redis.ttl(self.keys.standings) < 0:
            await self._redis.expire(self.keys.standings, 3600)

    async def take_owned(self, listed: Iterable[str], now: datetime) -> tuple[dict[str, datetime | None], set[str]]:
        """Take over the institution keys of a login.

        A key that a login listed before is kept: one answer without it proves nothing.

        Args:
            listed: The keys that the login brought.
            now: Redis's time.

        Returns:
            Every key that was ever listed and not disowned, with the instant since when it is missing, None if it is not;
            and the keys that are missing for the first time.
        """
        owned, listed = await self._owned(), set(listed)
        gone = {key for key, since in owned.items() if since is None and key not in listed}
        news: dict[str, datetime | None] = dict.fromkeys(key for key in listed if owned.get(key, now) is not None)
        news |= dict.fromkeys(gone, now)
        if news:
            stored = {key: "" if since is None else since.isoformat() for key, since in news.items()}
            await self._redis.hset(self.keys.owned, mapping=stored)
        return owned | news, gone

    async def missing(self) -> dict[str, datetime]:
        """Return the institutions that the latest logins did not list, and since when."""
        return {key: since for key, since in (await self._owned()).items() if since is not None}

    async def disown(self, institution_key: str) -> None:
        """Forget an institution; a login that lists it brings it back."""
        await self._redis.hdel(self.keys.owned, institution_key)

    async def _owned(self) -> dict[str, datetime | None]:
        stored = await self._redis.hgetall(self.keys.owned)
        return {key.decode(): self._missing_since(key.decode(), since) for key, since in stored.items()}

    def _missing_since(self, institution_key: str, stored: bytes) -> datetime | None:
        try:
            return datetime.fromisoformat(stored.decode()) if stored else None
        except ValueError:
            self._unreadable("owned", institution_key)
            return None

    async def fingerprints(self, institution_key: str, voice_ids: Sequence[str]) -> list[str | None]:
        """Return how each call was last listed, None for one that was not."""
        if not voice_ids:
            return []
        stored = await self._redis.hmget(self.keys.opened(institution_key), list(voice_ids))
        return [None if value is None else value.decode() for value in stored]

    async def listed(self, institution_key: str, prints: dict[str, str], seen: Sequence[str] | None) -> None:
        """Write down how calls were listed; ``seen`` are the ids of one page of a full listing."""
        async with self._redis.pipeline(transaction=False) as pipe:
            if prints:
                pipe.hset(self.keys.opened(institution_key), mapping=prints)
            if seen:
                pipe.sadd(self.keys.seen(institution_key), *seen)
                pipe.expire(self.keys.seen(institution_key), 600)
            await pipe.execute()

    async def begin_listing(self, institution_key: str) -> None:
        """Forget what an earlier full listing saw."""
        await self._redis.delete(self.keys.seen(institution_key))

    async def has_open(self, institution_key: str) -> bool:
        """Tell whether any call of an institution is open."""
        return bool(await self._redis.exists(self.keys.opened(institution_key)))

    async def absent(self, institution_key: str) -> list[str]:
        """Return the ids of open calls that the full listing did not contain."""
        opened = await self._redis.hkeys(self.keys.opened(institution_key))
        seen = await self._redis.smembers(self.keys.seen(institution_key))
        return [voice_id.decode() for voice_id in opened if voice_id not in seen]

    async def forget_listed(self, institution_key: str, voice_id: str) -> None:
        """Drop an open call that has no record: its note was refused."""
        await self._redis.hdel(self.keys.opened(institution_key), voice_id)

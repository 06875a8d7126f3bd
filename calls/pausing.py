"""Pausing and resuming, in Redis: the pauses in force, and the last of all that were ever asked for."""

from datetime import datetime
from typing import Any

import msgspec
from redis.asyncio import Redis

from calls.keys import Keys
from calls.pause import EVERYWHERE, Pause, Pauses, PauseScope, encode_pause, parse_pauses

KEPT = 200
"""How many pauses and resumptions are remembered."""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause, or its end (``scope`` None): where, by whom, why, when."""

    institution: str
    operator: str
    because: str
    at: datetime
    scope: PauseScope | None = None


class Pausing:
    """Changes and reads pauses. Workers see them with their next claim, and at every booking of an effect."""

    def __init__(self, redis: "Redis", *, keys: Keys | None = None) -> None:
        self._redis: Any = redis  # its stubs cannot know that answers are bytes here
        self.keys = Keys() if keys is None else keys

    async def pause(self, institution_key: str | None, pause: Pause) -> None:
        """Pause one institution, or all; a pause of the same place is replaced."""
        where = institution_key or EVERYWHERE
        change = Change(
            institution=where, operator=pause.operator, because=pause.because, at=pause.at, scope=pause.scope
        )
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(self.keys.pause, where, encode_pause(pause))
            self._remember(pipe, change)
            await pipe.execute()

    async def resume(self, institution_key: str | None, *, operator: str, because: str, at: datetime) -> bool:
        """Lift the pause of one institution, or the one over all; return whether there was one."""
        where = institution_key or EVERYWHERE
        change = Change(institution=where, operator=operator, because=because, at=at)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hdel(self.keys.pause, where)
            self._remember(pipe, change)
            lifted, *_ = await pipe.execute()
        return bool(lifted)

    def _remember(self, pipe: Any, change: Change) -> None:
        pipe.lpush(self.keys.pause_history, msgspec.json.encode(change))
        pipe.ltrim(self.keys.pause_history, 0, KEPT - 1)

    async def pauses(self) -> Pauses:
        """Return the pauses in force."""
        stored = await self._redis.hgetall(self.keys.pause)
        return parse_pauses(tuple((key.decode(), value) for key, value in stored.items()))

    async def history(self) -> tuple[Change, ...]:
        """Return what was asked for, newest first."""
        stored = await self._redis.lrange(self.keys.pause_history, 0, -1)
        return tuple(msgspec.json.decode(line, type=Change) for line in stored)

"""Acknowledgements of incidents in Redis, each with an end."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.acknowledgement import LONGEST, Acknowledgement, parse_acknowledgements
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.survey import KNOWN_FIELD


class Acknowledging:
    """Writes and reads acknowledgements."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = in_bytes(redis)
        self._key = keys.acknowledged
        self._survey = keys.survey

    async def acknowledge(
        self,
        kind: IncidentKind,
        *institution_keys: str,
        operator: str,
        lasts: timedelta,
        note: str = "",
        parts: tuple[str, ...] = (),
    ) -> Acknowledgement:
        """Acknowledge an incident of institutions, or of all (empty). An earlier one of the same is replaced.

        Those that have ended are forgotten, so none is kept for longer than `LONGEST`. A contradicted assumption ends with
        its acknowledgement: it is known from then on.

        Returns:
            The acknowledgement of the last institution.
        """
        now, stored = await self._now(), await self._redis.hgetall(self._key)
        done = [
            Acknowledgement(
                kind=kind, institution_key=key, operator=operator, at=now, until=now + lasts, note=note, parts=parts
            )
            for key in institution_keys
        ]
        ended = stored.keys() - {one.field.encode() for one in parse_acknowledgements(stored, now)}
        pipe = self._redis.pipeline(transaction=True)
        if ended:
            pipe.hdel(self._key, *ended)
        pipe.hset(self._key, mapping={one.field: msgspec.json.encode(one) for one in done})
        if kind is IncidentKind.ASSUMPTION_WRONG:  # what people know of the service stays known
            known_ms = int(now.timestamp() * 1000)
            pipe.hset(self._survey, mapping={f"{KNOWN_FIELD}{key}": known_ms for key in institution_keys})
        await pipe.expire(self._key, LONGEST).execute()
        return done[-1]

    async def end(self, kind: IncidentKind, institution_key: str) -> bool:
        """End an acknowledgement. Return whether there was one."""
        return bool(await self._redis.hdel(self._key, f"{kind} {institution_key}"))

    async def all(self) -> list[Acknowledgement]:
        return parse_acknowledgements(await self._redis.hgetall(self._key), await self._now())

    async def drop(self, ended: Iterable[Acknowledgement]) -> None:
        """Forget acknowledgements whose incident is over."""
        for one in ended:
            await self._redis.hdel(self._key, one.field)

    async def _now(self) -> datetime:
        seconds, micros = await self._redis.time()
        return instant(seconds * 1000 + micros / 1000)

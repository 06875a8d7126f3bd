"""Acknowledgements of incidents in Redis, each with an end, and the watch that drops them when their incident is over."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from calls.acknowledgement import Acknowledgement, parse_acknowledgements
from calls.claimed_item import instant
from calls.incident import Incident, IncidentKind
from calls.incidents import incidents_of
from calls.metrics.signals import SignalReader, Signals
from calls.store.keys import Keys

WATCHED_EVERY_S: Final = 5.0
OVER_AFTER: Final = timedelta(seconds=10)
"""An incident must be gone for this long: it may come back at once."""


class Acknowledging:
    """Writes and reads acknowledgements."""

    def __init__(self, redis: "Redis", keys: Keys) -> None:
        self._redis: Any = redis  # its stubs cannot know that answers are bytes here
        self._key = keys.acknowledged

    async def acknowledge(
        self, kind: IncidentKind, institution_key: str, *, operator: str, lasts: timedelta, note: str = ""
    ) -> Acknowledgement:
        """Acknowledge an incident of an institution, or of all (empty). An earlier one of the same is replaced.

        Raises:
            redis.exceptions.RedisError: Redis is down or refuses writes.
        """
        now, known = await self._now(), await self.all()
        one = Acknowledgement(
            kind=kind, institution_key=institution_key, operator=operator, at=now, until=now + lasts, note=note
        )
        kept = [*(other for other in known if other.field != one.field), one]
        last = max(each.until for each in kept)
        pipe = self._redis.pipeline(transaction=True)
        pipe.hset(self._key, one.field, msgspec.json.encode(one))
        await pipe.pexpireat(self._key, int(last.timestamp() * 1000)).execute()
        return one

    async def end(self, kind: IncidentKind, institution_key: str) -> bool:
        """End an acknowledgement. Return whether there was one."""
        return bool(await self._redis.hdel(self._key, f"{kind} {institution_key}"))

    async def all(self) -> list[Acknowledgement]:
        """Return those that have not ended."""
        return parse_acknowledgements(await self._redis.hgetall(self._key), await self._now())

    async def drop(self, ended: Iterable[Acknowledgement]) -> None:
        """Forget acknowledgements whose incident is over."""
        for one in ended:
            await self._redis.hdel(self._key, one.field)

    async def _now(self) -> datetime:
        seconds, micros = await self._redis.time()
        return instant(seconds * 1000 + micros / 1000)


class AcknowledgementWatch:
    """Ends acknowledgements with their incident, so that the next one of the same name is told again."""

    def __init__(self, redis: "Redis", keys: Keys) -> None:
        self._acknowledging = Acknowledging(redis, keys)
        self._signals = SignalReader(redis, keys)
        self._gone_since: dict[str, datetime] = {}

    async def look(self) -> None:
        """Look once. Without acknowledgements nothing else is read.

        Raises:
            redis.exceptions.RedisError: Redis is away.
        """
        if not await self._acknowledging.all():
            self._gone_since = {}
            return
        signals = await self._signals.read()
        await self._acknowledging.drop(self._over(signals, incidents_of(signals)))

    def _over(self, signals: Signals, incidents: Sequence[Incident]) -> list[Acknowledgement]:
        gone = [
            one
            for one in signals.acknowledged
            if not any(one.covers(incident.kind, incident.institution_key) for incident in incidents)
        ]
        self._gone_since = {one.field: self._gone_since.get(one.field, signals.now) for one in gone}
        return [one for one in gone if signals.now - self._gone_since[one.field] >= OVER_AFTER]

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            with suppress(RedisError, OSError, TimeoutError):
                await self.look()
            await asyncio.sleep(WATCHED_EVERY_S)

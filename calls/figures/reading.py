"""Reads the figures of all processes: totals, the minutes of the last hour, and which processes are alive."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from calls.figures.snapshot import Snapshot
from calls.keys import Keys


@dataclass(frozen=True, slots=True)
class Minute:
    """The figures of one minute, and when it began (aware UTC)."""

    at: datetime
    figures: Snapshot


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has reported in the last seconds."""

    name: str
    kind: str
    memory: int
    """Bytes."""
    since: datetime
    """When it began to report."""


class FigureReader:
    """Reads figures; nothing here changes anything."""

    def __init__(self, redis: "Redis", *, keys: Keys | None = None) -> None:
        self._redis: Any = redis  # its stubs cannot know that answers are bytes here
        self._keys = Keys() if keys is None else keys

    async def totals(self) -> Snapshot:
        """Return everything counted since the figures began."""
        return Snapshot.parse(await self._redis.hgetall(self._keys.figures))

    async def minutes(self, now: datetime, n: int = 60) -> list[Minute]:
        """Return the last ``n`` minutes, oldest first; the last one is under way. Without figures a minute is empty."""
        last = int(now.timestamp() // 60)
        numbers = range(last - n + 1, last + 1)
        pipe = self._redis.pipeline(transaction=False)
        for number in numbers:
            pipe.hgetall(self._keys.minute(number))
        stored = await pipe.execute()
        return [
            Minute(datetime.fromtimestamp(number * 60, UTC), Snapshot.parse(fields))
            for number, fields in zip(numbers, stored, strict=True)
        ]

    async def processes(self) -> list[Process]:
        """Return the processes that are alive, by kind and age."""
        names = [name.decode() for name in await self._redis.zrange(self._keys.processes, 0, -1)]
        pipe = self._redis.pipeline(transaction=False)
        for name in names:
            pipe.hmget(self._keys.process(name), ["kind", "memory", "since"])
        found = [
            Process(name, kind.decode(), int(memory), datetime.fromtimestamp(int(since) / 1000, UTC))
            for name, (kind, memory, since) in zip(names, await pipe.execute(), strict=True)
            if kind is not None
        ]
        return sorted(found, key=lambda process: (process.kind, process.since))

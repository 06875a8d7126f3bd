"""Pauses in Redis: those in force, and a bounded history."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from secrets import token_hex
from typing import Final

import msgspec
from msgspec.structs import replace
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.pause import EVERYWHERE, Pause, Pauses, PauseScope, parse_pauses
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.store.script import Arg, Script
from callkeeper.calls.store.script_runner import Scripts

WATCHED_EVERY_S: Final = 1.0
"""Seconds between two looks of a process that does not claim."""

KEPT = 200
"""How many pauses and resumptions the history holds. The oldest are dropped first."""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause, or its end (``scope`` None): where, by whom, why, when."""

    institution: str
    operator: str
    because: str
    at: datetime
    scope: PauseScope | None = None


@dataclass(frozen=True, slots=True)
class PastPause:
    """A past pause and what ended it: a resumption, another pause of the same place, or nothing yet (None)."""

    begun: Change
    ended: Change | None


def past_pauses(changes: Iterable[Change]) -> list[PastPause]:
    """Pair every pause with what ended it, newest first. A resumption without its pause is left out."""
    found: list[PastPause] = []
    ended: dict[str, Change] = {}
    for change in changes:
        if change.scope is not None:
            found.append(PastPause(change, ended.get(change.institution)))
        ended[change.institution] = change
    return found


RESTORED: Final = "restored after Redis lost it: "
"""The beginning of the reason of a pause that was written back."""


class PauseMemory:
    """The pauses that a process saw last, so that a Redis that has lost them gets them back.

    It is handed to a script that restores them if the data in Redis is not what the process has seen (``born``), and
    that tells by ``claimed_ms`` whether it is older.
    """

    def __init__(self) -> None:
        self.born = ""
        self.claimed_ms = 0
        """How many milliseconds workers had claimed when this process looked."""
        self.remembered = ""
        """What to restore: JSON, a list of place, pause and line for the history; empty if nothing was paused."""
        self._pauses = Pauses()

    def knew_other_data(self, born: bytes) -> bool:
        """Tell whether the data in Redis had another name when the process looked last."""
        return self.born not in ("", born.decode())

    def remember(self, born: bytes, pauses: Pauses, claimed_ms: int) -> None:
        """Remember the name and age of the data in Redis, and the pauses."""
        self.born, self.claimed_ms = born.decode(), claimed_ms
        if pauses is not self._pauses:
            self._pauses = pauses
            places = [_to_restore(place, pause) for place, pause in pauses.by_institution.items()]
            self.remembered = msgspec.json.encode(places).decode() if places else ""


def _to_restore(place: str, pause: Pause) -> tuple[str, str, str]:
    because = pause.because if pause.because.startswith(RESTORED) else RESTORED + pause.because
    pause = replace(pause, because=because)
    change = Change(institution=place, operator=pause.operator, because=because, at=pause.at, scope=pause.scope)
    return place, msgspec.json.encode(pause).decode(), msgspec.json.encode(change).decode()


class PauseWatch:
    """Looks at the pauses once a second in a process that does not claim, and restores them if Redis has lost them."""

    def __init__(self, redis: Redis, *, keys: Keys) -> None:
        self._known = Script(keys, "remember")
        # Not `Scripts`: its pipeline would outlive a cancelled look, and connect again after the client was closed.
        self._script = AsyncScript(redis, self._known.source)
        self._memory = PauseMemory()

    async def poll(self) -> None:
        """Poll once."""
        memory = self._memory
        given: dict[str, Arg] = {
            "new_name": token_hex(8),
            "last_born": memory.born,
            "last_claimed_ms": memory.claimed_ms,
            "remembered": memory.remembered,
        }
        keys, args = self._known.arguments("", given)
        answer = await self._script(keys=keys, args=args)
        if answer:
            born, stored, claimed_ms = answer
            memory.remember(born, parse_pauses(zip(stored[::2], stored[1::2], strict=True)), claimed_ms)

    async def run(self) -> None:
        while True:
            with suppress(RedisError, OSError, TimeoutError):
                await self.poll()
            await asyncio.sleep(WATCHED_EVERY_S)


class Pausing:
    """Changes and reads pauses. Workers see them with their next claim, and when they book an effect or a check."""

    def __init__(self, redis: Redis, *, keys: Keys = KEYS, figures: Figures | None = None) -> None:
        self._redis = in_bytes(redis)
        self.keys = keys
        self._scripts = Scripts(redis, figures, keys=self.keys)

    async def pause(self, institution_key: str | None, pause: Pause) -> None:
        """Pause one institution, or all (None). It replaces an earlier pause of the same place.

        The caller checks that the institution exists: see ``callkeeper.calls.institutions``.
        """
        where = EVERYWHERE if institution_key is None else institution_key
        change = Change(
            institution=where, operator=pause.operator, because=pause.because, at=pause.at, scope=pause.scope
        )
        await self._write(change, msgspec.json.encode(pause))

    async def resume(self, institution_key: str | None, *, operator: str, because: str, at: datetime) -> bool:
        """Lift the pause of one institution, or the one of all (None). Return whether there was one."""
        where = EVERYWHERE if institution_key is None else institution_key
        change = Change(institution=where, operator=operator, because=because, at=at)
        return await self._write(change, b"")

    async def _write(self, change: Change, pause: bytes) -> bool:
        """Write a pause, or lift one (empty). Return whether there was one to lift."""
        line = msgspec.json.encode(change)
        where = change.institution
        return bool(
            await self._scripts.call(
                "pause", place=where, pause_then=pause, line=line, lines_kept=KEPT, replicated=True
            )
        )

    async def pauses(self) -> Pauses:
        stored = await self._redis.hgetall(self.keys.pause)
        return parse_pauses(stored.items())

    async def history(self) -> tuple[Change, ...]:
        """Return the last pauses and resumptions, newest first."""
        stored = await self._redis.lrange(self.keys.pause_history, 0, -1)
        return tuple(msgspec.json.decode(line, type=Change) for line in stored)

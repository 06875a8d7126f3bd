"""Which alerts were sent, and which process sends them, in Redis. When that process ends, another takes over."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.alerts import OpenAlert
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.leadership import Leadership
from callkeeper.calls.stored_value import readable

LEADS_MS: Final = 30_000
"""How long a process leads without renewing it, in milliseconds. Longer than sending a message takes."""

KEPT_S: Final = 7 * 86400


class AlertState(Leadership):
    """Reads and writes the state of alerts."""

    def __init__(self, redis: Redis, keys: Keys, process: str) -> None:
        """Set up. ``process`` is a name that no other process has."""
        super().__init__(redis, keys, at=keys.alert_leader, process=process, leads_ms=LEADS_MS)
        self._redis = in_bytes(redis)
        self._keys = keys

    async def load(self) -> dict[str, OpenAlert]:
        """Return the alerts that were sent. Entries in another version's format are left out."""
        stored = await self._redis.hgetall(self._keys.alerts)
        return {key.decode(): each for key, value in stored.items() if (each := readable(value, OpenAlert)) is not None}

    async def save(self, open_alerts: Mapping[str, OpenAlert], before: Mapping[str, OpenAlert]) -> None:
        """Store the alerts that were sent; others are not stored. ``before`` is what was stored last.

        What has not changed is stored, too: Redis may have been emptied since.
        """
        sent = {key: msgspec.json.encode(each) for key, each in open_alerts.items() if each.told}
        gone = before.keys() - sent.keys()
        pipe = self._redis.pipeline(transaction=True)
        if sent:
            pipe.hset(self._keys.alerts, mapping=sent)
        if gone:
            pipe.hdel(self._keys.alerts, *gone)
        if sent or gone:
            await pipe.expire(self._keys.alerts, KEPT_S).execute()

    async def attention(self) -> dict[str, str]:
        """Return what needs a person: the reason, by the name of the member."""
        pipe = self._redis.pipeline(transaction=False)
        for key in reversed(self._keys.attentions):
            pipe.hgetall(key)
        found = {member: why for stored in await pipe.execute() for member, why in stored.items()}
        return {member.decode(errors="replace"): why.decode(errors="replace") for member, why in found.items()}

    async def note_target(self, target: str, because: str | None, now: datetime) -> None:
        """Record for the doctor why a target did not accept its last message; None: it did."""
        at, why = self._keys.alert_targets, self._keys.alert_refusals
        pipe = self._redis.pipeline(transaction=True)
        if because is None:
            await pipe.hdel(at, target).hdel(why, target).execute()
        else:
            pipe.hsetnx(at, target, now.isoformat()).hset(why, target, because)
            await pipe.expire(at, KEPT_S).expire(why, KEPT_S).execute()

    async def failing_targets(self) -> dict[str, tuple[datetime, str]]:
        """Return the targets that did not accept their last message: since when, and why the last time."""
        pipe = self._redis.pipeline(transaction=True)
        stored, why = await pipe.hgetall(self._keys.alert_targets).hgetall(self._keys.alert_refusals).execute()
        return {
            name.decode(): (datetime.fromisoformat(at.decode()), why.get(name, b"unknown cause").decode())
            for name, at in stored.items()
        }

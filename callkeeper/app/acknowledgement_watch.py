"""Ends acknowledgements with their incident, so that the next one of the same name is told again.

Web processes run it, and the process that sends the alerts.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.calls.acknowledgement import Acknowledgement
from callkeeper.calls.incident import Incident
from callkeeper.calls.incident_detection import found_in, symptoms_of
from callkeeper.calls.metrics.signals import SignalReader, Signals
from callkeeper.calls.store.acknowledging import Acknowledging
from callkeeper.calls.store.keys import Keys

WATCHED_EVERY_S: Final = 5.0
OVER_AFTER: Final = timedelta(seconds=10)
"""An incident must be gone for this long: it may come back at once."""


class AcknowledgementWatch:
    """Drops the acknowledgements of incidents that are over."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._acknowledging = Acknowledging(redis, keys)
        self._signals = SignalReader(redis, keys)
        self._gone_since: dict[str, datetime] = {}

    async def poll(self) -> None:
        """Poll once. Without acknowledgements nothing else is read.

        Raises:
            redis.exceptions.RedisError: Redis is away.
        """
        if not await self._acknowledging.all():
            self._gone_since = {}
            return
        signals = await self._signals.read()
        await self._acknowledging.drop(self._over(signals, found_in(signals)))

    def _over(self, signals: Signals, found: Sequence[Incident]) -> list[Acknowledgement]:
        """Return those whose incident is over. While a cause lasts, its symptoms are not known to be over."""
        hidden = symptoms_of(found)
        gone = [
            one
            for one in signals.acknowledged
            if one.kind not in hidden and not any(one.is_about(each.kind, each.institution_key) for each in found)
        ]
        self._gone_since = {one.field: self._gone_since.get(one.field, signals.now) for one in gone}
        return [one for one in gone if signals.now - self._gone_since[one.field] >= OVER_AFTER]

    async def run(self) -> None:
        while True:
            with suppress(RedisError, OSError):
                await self.poll()
            await asyncio.sleep(WATCHED_EVERY_S)

"""Reads the board's figures: the minutes of the last hour, of which only the newest are read again."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from calls.figures import FigureReader, Minute

MINUTES: Final = 60
OPEN_MINUTES: Final = 3
"""Minutes that processes may still add to."""

LOOK_EVERY: Final = timedelta(seconds=3)


class HourReader:
    """Remembers the minutes that are over."""

    def __init__(self, reader: FigureReader) -> None:
        self._reader = reader
        self._minutes: dict[datetime, Minute] = {}
        self._looked_at: datetime | None = None

    async def minutes(self, now: datetime) -> Sequence[Minute]:
        """Return the last hour's minutes, oldest first, as they were three seconds ago at most."""
        if self._looked_at is None or now - self._looked_at >= LOOK_EVERY:
            await self._look(now)
        return [self._minutes[at] for at in sorted(self._minutes)]

    async def _look(self, now: datetime) -> None:
        is_recent = self._looked_at is not None and now - self._looked_at < timedelta(minutes=OPEN_MINUTES - 1)
        read = await self._reader.minutes(now, OPEN_MINUTES if is_recent else MINUTES)
        oldest = read[-1].at - timedelta(minutes=MINUTES - 1)
        kept = {at: minute for at, minute in self._minutes.items() if at >= oldest}
        self._minutes = {**kept, **{minute.at: minute for minute in read}}
        self._looked_at = now

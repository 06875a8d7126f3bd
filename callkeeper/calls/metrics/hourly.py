"""Sums by the hour and institution, kept for 90 days: what people compare over days and weeks.

Figures by the minute are kept for an hour. These sums are written by the same script in little memory: a day of an
institution is one string of 1,008 bytes, which holds 24 hours of 14 numbers of three bytes. An institution without calls
takes nothing. docs/monitoring.md says how much 300 institutions take.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

from redis.asyncio import Redis

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.metrics.counting import quantile
from callkeeper.calls.record import Reason
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import KEYS, Keys

HOURS_KEPT_S: Final = 90 * 86400

EVERYWHERE: Final = ""
"""Stands for all institutions together: their sums are kept as well."""


class Slot(IntEnum):
    """The numbers of an hour, in the order in which they are stored. The buckets of the delay follow."""

    STARTED = 0
    AUTHENTICATED = 1
    ENROLLED = 2
    REJECTED = 3
    RED = 4
    UNDECIDED = 5
    PROVIDER_ERRORS = 6


DELAY_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Upper bounds of the buckets of the detection delay, in seconds. A seventh has what is longer."""

SLOTS: Final = len(Slot) + len(DELAY_BOUNDS) + 1
WIDTH: Final = 3
"""Bytes of a number. It stays at its maximum, 16.7 million."""

DAY_BYTES: Final = 24 * SLOTS * WIDTH

_SLOT_OF: Final[Mapping[str, Slot]] = {
    Reason.AUTHENTICATED: Slot.AUTHENTICATED,
    Reason.ENROLLED: Slot.ENROLLED,
    Reason.REJECTED: Slot.REJECTED,
    Reason.RED: Slot.RED,
}


def slot_of_reason(reason: str | None) -> int:
    """Return where a settled call is counted: one whose reason has no number of its own is undecided."""
    return _SLOT_OF.get(reason or "", Slot.UNDECIDED)


def slot_of_delay(seconds: float) -> int:
    """Return where a detection delay is counted."""
    return len(Slot) + bisect_left(DELAY_BOUNDS, seconds)


@dataclass(slots=True)
class Sums:
    """The sums of an hour, or of several."""

    numbers: list[int] = field(default_factory=lambda: [0] * SLOTS)

    def __getitem__(self, slot: Slot) -> int:
        return self.numbers[slot]

    @property
    def settled(self) -> int:
        """Return how many calls were settled."""
        return sum(self.numbers[Slot.AUTHENTICATED : Slot.UNDECIDED + 1])

    @property
    def delays(self) -> list[int]:
        """Return how many detection delays fell into each bucket."""
        return self.numbers[len(Slot) :]

    def delay(self, share: float) -> float | None:
        """Return about which delay a share of the calls did not exceed, in seconds; None if there was none."""
        return quantile(DELAY_BOUNDS, self.delays, share)

    def add(self, other: "Sums") -> None:
        self.numbers = [mine + theirs for mine, theirs in zip(self.numbers, other.numbers, strict=True)]


def hours_of(day: bytes | None) -> list[Sums]:
    """Read the 24 hours of a day. A shorter string, or none, counts as zeros behind its end."""
    stored = (day or b"").ljust(DAY_BYTES, b"\0")
    numbers = [int.from_bytes(stored[at : at + WIDTH]) for at in range(0, DAY_BYTES, WIDTH)]
    return [Sums(numbers[at : at + SLOTS]) for at in range(0, len(numbers), SLOTS)]


@dataclass(frozen=True, slots=True)
class Hours:
    """The sums of hours by their beginning, aware UTC, oldest first. ``since``: when the first one was written."""

    by_hour: Mapping[datetime, Sums]
    since: datetime | None


class HourlySums:
    """Reads the sums. It changes nothing."""

    def __init__(self, redis: Redis, *, keys: Keys = KEYS) -> None:
        self._redis = in_bytes(redis)
        self._keys = keys

    async def between(self, begin: datetime, end: datetime, institutions: Collection[str]) -> Hours:
        """Return the sums of the hours that begin from ``begin`` up to before ``end``, of these institutions together."""
        first, last = (int(at.timestamp() // 86400) for at in (begin, end))
        days = range(first, last + 1)
        by_day = [hours_of(None) for _ in days]
        for institution in institutions:
            stored = await self._redis.mget([self._keys.hours(day, institution) for day in days])
            for hours, day in zip(by_day, stored, strict=True):
                if day is not None:
                    for hour, more in zip(hours, hours_of(day), strict=True):
                        hour.add(more)
        since = await self._redis.get(self._keys.hours_since)
        return Hours(_within(by_day, first, begin, end), instant(int(since)) if since else None)


def _within(by_day: Sequence[Sequence[Sums]], first: int, begin: datetime, end: datetime) -> dict[datetime, Sums]:
    midnight = datetime.fromtimestamp(first * 86400, UTC)
    hours = [sums for day in by_day for sums in day]
    found = {midnight + timedelta(hours=n): sums for n, sums in enumerate(hours)}
    return {at: sums for at, sums in found.items() if begin <= at < end}

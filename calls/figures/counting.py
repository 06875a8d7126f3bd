"""Counting in one process: what was counted since the last writing, in memory."""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from calls.figures.catalogue import Figure
from calls.figures.fields import SUM, field_name, scaled

MOST_FIELDS = 4096
"""Different things counted between two writings; what is more is a mistake in labels, and not counted."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What was counted between two writings: a number to know it again by, fields and what to add to each."""

    number: int
    increments: dict[str, int]


class Figures:
    """Counts and measures. Cheap, never fails, and may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, Sequence[str]], int] = {}
        self._spreads: dict[tuple[str, Sequence[str]], list[float]] = {}
        self._pending: Batch | None = None
        self._batches = 0

    def count(self, figure: Figure, *labels: str, n: int = 1) -> None:
        """Count something, under the figure's labels in their order."""
        key = (figure.name, labels)
        with self._lock:
            if key in self._counts or len(self._counts) < MOST_FIELDS:
                self._counts[key] = self._counts.get(key, 0) + n

    def observe(self, figure: Figure, value: float, *labels: str) -> None:
        """Measure something: seconds, or checks."""
        key, bucket = (figure.name, labels), bisect_left(figure.bounds, value)
        with self._lock:
            spread = self._spreads.get(key)
            if spread is None:
                if len(self._spreads) >= MOST_FIELDS:
                    return
                spread = self._spreads[key] = [0.0] * (len(figure.bounds) + 2)
            spread[bucket] += 1
            spread[-1] += value

    def batch(self) -> Batch:
        """Return what has to be written: the batch whose writing was not confirmed, as it was, else a new one."""
        if self._pending is None:
            self._batches += 1
            self._pending = Batch(self._batches, self._take())
        return self._pending

    def written(self, batch: Batch) -> None:
        """Note that Redis has confirmed a batch."""
        if self._pending is batch:
            self._pending = None

    def _take(self) -> dict[str, int]:
        with self._lock:
            counts, self._counts = self._counts, {}
            spreads, self._spreads = self._spreads, {}
        increments = {field_name(name, labels): n for (name, labels), n in counts.items() if n}
        for (name, labels), spread in spreads.items():
            for bucket, n in enumerate(spread[:-1]):
                if n:
                    increments[field_name(name, labels, str(bucket))] = int(n)
            increments[field_name(name, labels, SUM)] = scaled(spread[-1])
        return increments

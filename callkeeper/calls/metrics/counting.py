"""Counts in one process: what was counted since the last write, in memory, and its field names in Redis.

A field is ``name|label|label`` for a counter, with ``|bucket`` or ``|sum`` after it for a histogram. All values are
integers, so that Redis can add them. Sums are stored in millionths.
"""

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from callkeeper.calls.metrics.catalogue import FIGURES, Figure

SUM: Final = "sum"
_MILLION: Final = 1_000_000


def field_name(name: str, labels: Sequence[str], part: str | None = None) -> str:
    """Return the field of a counter, or of one part of a histogram."""
    parts = [name, *(quote(label, safe=" /:.,+") for label in labels)]
    return "|".join(parts if part is None else [*parts, part])


def parse_field(field: str) -> tuple[Figure, tuple[str, ...], str | None] | None:
    """Return figure, labels and part of a field; None for one that this version does not know."""
    name, *parts = field.split("|")
    figure = FIGURES.get(name)
    if figure is None or len(parts) != len(figure.labels) + bool(figure.bounds):
        return None
    part = parts.pop() if figure.bounds else None
    return figure, tuple(map(unquote, parts)), part


def scaled(value: float) -> int:
    """Convert a sum for storage."""
    return round(value * _MILLION)


def unscaled(stored: int) -> float:
    """Convert a stored sum back."""
    return stored / _MILLION


def quantile(bounds: Sequence[float], counts: Sequence[int], q: float) -> float | None:
    """Return approximately the ``q`` quantile of a histogram, interpolated within its bucket; None if it is empty.

    For values above the highest bound that bound is returned.
    """
    wanted, seen = q * sum(counts), 0
    if not any(counts):
        return None
    for n, bound in enumerate(bounds):
        count, low = counts[n], bounds[n - 1] if n else 0.0
        if count and seen + count >= wanted:
            return low + (bound - low) * (wanted - seen) / count
        seen += count
    return bounds[-1]


MOST_WORDS: Final = 120
"""Most characters of words that are kept."""

MOST_FIELDS = 4096
"""Maximum number of fields between two writes. More would be a mistake in labels, and are not counted."""

MOST_PLACES: Final = 8
"""How many institutions are kept of each answer that contradicts an assumption. An answer is about the service, which is
one for all of them: those that follow are counted, and are not told of by themselves. Three hundred would stop Redis for
34 ms a second, and pushes may name any number."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What was counted between two writes: a number to recognise it by, and the fields with their increments.

    ``rows`` are the increments of rows; None: it ended. ``words`` are the last words about something, by its field.
    ``sums`` are the increments of hourly sums, by institution and slot.
    ``seen`` are the answers of the service that contradict an assumption, with how often and the last shape.
    """

    number: int
    increments: dict[str, int]
    rows: dict[str, int | None]
    words: dict[str, str]
    sums: dict[tuple[str, int], int]
    seen: "dict[Sighting, tuple[int, str]]"


class Sighting(NamedTuple):
    """An answer to one assumption of docs/assumptions.md, and where it was seen: an institution's key, or empty."""

    assumption: str
    answer: str
    institution_key: str


class Figures:
    """Counts and measures. It is cheap, never fails, and can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, Sequence[str]], int] = {}
        self._spreads: dict[tuple[str, Sequence[str]], list[float]] = {}
        self._words: dict[str, str] = {}
        self._sums: dict[tuple[str, int], int] = {}
        self._seen: dict[Sighting, tuple[int, str]] = {}
        self._pending: Batch | None = None
        self._batches = 0

    def count(self, figure: Figure, *labels: str, n: int = 1) -> None:
        """Add to a counter, with labels in the figure's order."""
        key = (figure.name, labels)
        with self._lock:
            before = self._counts.get(key, 0)
            if before or len(self._counts) < MOST_FIELDS:
                self._counts[key] = before + n

    def note_name(self, words: str, figure: Figure, *labels: str) -> None:
        """Keep the last name that a counter counted, such as a policy. It is shown, so it names no person."""
        with self._lock:
            self._words[field_name(figure.name, labels)] = words[:MOST_WORDS]

    def sum_up(self, institution: str, slot: int) -> None:
        """Add one to an institution's sum of this hour. ``slot`` is one of ``hourly``."""
        with self._lock:
            if (institution, slot) in self._sums or len(self._sums) < MOST_FIELDS:
                self._sums[institution, slot] = self._sums.get((institution, slot), 0) + 1

    def see(self, assumption: str, answer: str, institution_key: str = "", shape: str = "") -> None:
        """Count an answer of the service that contradicts an assumption.

        ``shape`` is shown, so it has field names, types, lengths and words of the Spec, and never a value of a person.
        """
        key = Sighting(assumption, answer, institution_key)
        with self._lock:
            count, last = self._seen.get(key, (0, ""))
            if count or len(self._seen) < MOST_FIELDS:
                self._seen[key] = count + 1, shape[:MOST_WORDS] or last

    def observe(self, figure: Figure, value: float, *labels: str) -> None:
        """Add a value, in seconds or checks, to a histogram."""
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
        """Return what must be written: the last batch again if it was not confirmed, else a new one."""
        if self._pending is None:
            self._batches += 1
            self._pending = self._taken(self._batches)
        return self._pending

    def written(self, batch: Batch) -> None:
        """Record that Redis has confirmed a batch."""
        if self._pending is batch:
            self._pending = None

    def _taken(self, number: int) -> Batch:
        with self._lock:
            counts, self._counts = self._counts, {}
            words, self._words = self._words, {}
            sums, self._sums = self._sums, {}
            seen, self._seen = self._seen, {}
            spreads, self._spreads = self._spreads, {}
        increments = {field_name(name, labels): n for (name, labels), n in counts.items() if n}
        for (name, labels), spread in spreads.items():
            for bucket, n in enumerate(spread[:-1]):
                if n:
                    increments[field_name(name, labels, str(bucket))] = int(n)
            increments[field_name(name, labels, SUM)] = scaled(spread[-1])
        return Batch(number, increments, _rows(increments), words, sums, seen)


def _rows(increments: Mapping[str, int]) -> dict[str, int | None]:
    """Return how rows change. A good one in the same second ends a row: which of them came first is not known."""
    rows: dict[str, int | None] = {}
    for name, n in increments.items():
        known = parse_field(name)
        if known is None or not known[0].good:
            continue
        figure, (*before, last), _ = known
        if last != figure.good:
            rows.setdefault(name, n)
        else:
            rows |= {field_name(figure.name, [*before, bad]): None for bad in figure.bad}
    return rows

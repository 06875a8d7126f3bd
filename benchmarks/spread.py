"""Several measurements of one thing: the median counts, the extremes say how much to believe it."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """What rounds have found of one thing."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Gather values."""
        return cls(tuple(values))

    @property
    def median(self) -> float:
        """Return the one in the middle."""
        return median(self.values)

    def __str__(self) -> str:
        """Say the median, and the least and the most where they differ."""
        told = [_told(value) for value in (self.median, min(self.values), max(self.values))]
        return told[0] if len(set(told)) == 1 else f"{told[0]} ({told[1]} to {told[2]})"


def _told(value: float) -> str:
    """Say a figure with three places that matter."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"

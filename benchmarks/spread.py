"""Several measurements of one figure: the median, and the extremes to show how reliable it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """The measurements of one figure, one for each round."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Gather values."""
        return cls(tuple(values))

    @property
    def median(self) -> float:
        """Return the median."""
        return median(self.values)

    def __str__(self) -> str:
        """Return the median, with the smallest and the largest value if they differ."""
        told = [_told(value) for value in (self.median, min(self.values), max(self.values))]
        return told[0] if len(set(told)) == 1 else f"{told[0]} ({told[1]} to {told[2]})"


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value within which the given share of values falls."""
    found = sorted(values)
    return found[min(len(found) - 1, int(len(found) * share))] if found else 0.0


def _told(value: float) -> str:
    """Format a figure with three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"

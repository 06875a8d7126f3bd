"""What a benchmark found: tables of figures, each the median of its rounds, and the goals and promises they keep."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """The measurements of one figure, one for each round."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
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


Cell = str | int | float | Spread


@dataclass(frozen=True, slots=True)
class Table:
    """Figures with a heading."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __str__(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ("---", *("---:" for _ in self.columns[1:])), *self.rows]
        told = ((_told(cell) if isinstance(cell, float) else str(cell) for cell in line) for line in lines)
        return "\n".join([self.title, "", *(f"| {' | '.join(line)} |" for line in told), ""])


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the median of a figure. A missed goal is reported, but does not fail the run."""

    words: str
    found: Spread
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        """Return the goal, the figure, and whether it is met."""
        bound = f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"
        is_met = (self.least or 0.0) <= self.found.median <= (float("inf") if self.most is None else self.most)
        return f"- {self.words}: {bound}. Found {self.found}: {'met' if is_met else 'NOT met'}."


@dataclass(frozen=True, slots=True)
class Answer:
    """What a benchmark found, its goals, and the promises that did not hold."""

    table: Table
    goals: tuple[Goal, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Effort:
    """The number of rounds, and whether to use tiny numbers that only show that a benchmark works."""

    rounds: int = 5
    is_smoke: bool = False

    def of(self, full: int) -> int:
        """Return the number to use in this run where a full run uses ``full``."""
        return max(2, full // 50) if self.is_smoke else full


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value within which the given share of values falls."""
    found = sorted(values)
    return found[min(len(found) - 1, int(len(found) * share))] if found else 0.0


def _told(value: float) -> str:
    """Format a figure with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

"""Goals, shown next to the measured figures. A missed goal is reported, but does not fail the run."""

from dataclasses import dataclass
from typing import Final, Self

from benchmarks.answer import Table
from benchmarks.spread import Spread

GOALS: Final = "Goals"
"""The title of every table of goals."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the median of a figure."""

    words: str
    found: Spread
    bound: float
    is_most: bool

    @classmethod
    def at_least(cls, words: str, found: Spread, bound: float) -> Self:
        """Require a figure that is not smaller."""
        return cls(words, found, bound, is_most=False)

    @classmethod
    def at_most(cls, words: str, found: Spread, bound: float) -> Self:
        """Require a figure that is not larger."""
        return cls(words, found, bound, is_most=True)

    @property
    def is_met(self) -> bool:
        """Return whether the median keeps the bound."""
        return self.found.median <= self.bound if self.is_most else self.found.median >= self.bound


def goals_table(*goals: Goal) -> Table:
    """Return the table of a question's goals, each with its measured figure."""
    rows = tuple((goal.words, goal.found, goal.bound, "met" if goal.is_met else "NOT met") for goal in goals)
    return Table(GOALS, ("goal", "found", "bound", ""), rows)

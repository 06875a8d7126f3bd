"""The size of a run: full rounds for figures, or a smoke run that only shows that a benchmark works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """The number of rounds, and the size of each.

    Attributes:
        rounds: How often everything is measured. The ways take turns.
        is_smoke: Use tiny numbers, need no other virtual environment, and judge no goals.
    """

    rounds: int = 5
    is_smoke: bool = False

    def of(self, full: int) -> int:
        """Return the number to use in this run where a full run uses ``full``."""
        return max(2, full // 50) if self.is_smoke else full


SMOKE = Effort(rounds=1, is_smoke=True)

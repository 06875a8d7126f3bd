"""How much trouble a benchmark takes: full rounds for figures, or a smoke that only shows that it works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Rounds, and how much of everything there is in one.

    Attributes:
        rounds: How often everything is measured, the ways taking turns.
        is_smoke: Tiny numbers, and only what needs no other virtual environment; goals are not judged.
    """

    rounds: int = 5
    is_smoke: bool = False

    def of(self, full: int) -> int:
        """Return how many there are of what would be ``full`` many in a full run."""
        return max(2, full // 50) if self.is_smoke else full


SMOKE = Effort(rounds=1, is_smoke=True)

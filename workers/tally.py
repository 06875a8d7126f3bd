"""What a shift did, in numbers and in one sentence that an operator can read."""

from collections import Counter
from dataclasses import dataclass, field

_WORDS = (
    ("calls", "call", "calls"),
    ("institutions", "institution looked at", "institutions looked at"),
    ("checks", "check", "checks"),
    ("reads", "read", "reads"),
    ("assigned", "assigned", "assigned"),
    ("enrolled", "enroll", "enrolls"),
    ("rejected", "reject", "rejects"),
    ("settled", "settled", "settled"),
    ("dropped", "hint dropped", "hints dropped"),
)


@dataclass(slots=True)
class Tally:
    """Counts by name; ``attention`` is how many calls need a person."""

    counts: Counter[str] = field(default_factory=Counter)
    attention: int = 0

    def add(self, name: str, n: int = 1) -> None:
        """Count something that happened."""
        self.counts[name] += n

    def sentence(self) -> str:
        """Return for example ``37 calls, 35 checks, 1 enroll; 2 need a human``. Holds no personal data."""
        parts = [f"{n} {one if n == 1 else many}" for name, one, many in _WORDS if (n := self.counts[name])]
        text = ", ".join(parts) or "nothing was due"
        if self.attention:
            text += f"; {self.attention} need{'s' if self.attention == 1 else ''} a human"
        return text

    def as_dict(self) -> dict[str, int]:
        """Return the counts as a job's result."""
        return {**{name: n for name, n in sorted(self.counts.items()) if n}, "attention": self.attention}

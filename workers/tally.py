"""What a shift did and what failed, in numbers and in one sentence that an operator can read."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

_WORDS = (
    ("calls", "call", "calls"),
    ("institutions", "queue listed", "queues listed"),
    ("checks", "check", "checks"),
    ("reads", "read", "reads"),
    ("assigned", "assigned", "assigned"),
    ("enrolled", "enroll", "enrolls"),
    ("rejected", "reject", "rejects"),
    ("settled", "settled", "settled"),
    ("dropped", "hint dropped", "hints dropped"),
)
_FAILURES = (
    ("listings_failed", "listing failed", "listings failed"),
    ("checks_failed", "check failed", "checks failed"),
    ("reads_failed", "read failed", "reads failed"),
    ("effects_in_doubt", "effect in doubt", "effects in doubt"),
    ("steps_failed", "step failed", "steps failed"),
)


@dataclass(slots=True)
class Tally:
    """Counts by name.

    ``attention`` is how many calls need a person. ``unreachable_since`` is when the service stopped answering; None while it
    answers. ``is_outage_report``: the job that carries this tally is to fail, so that the dashboard shows the outage.
    """

    counts: Counter[str] = field(default_factory=Counter)
    attention: int = 0
    unreachable_since: datetime | None = None
    is_outage_report: bool = False

    def add(self, name: str, n: int = 1) -> None:
        """Count something that happened."""
        self.counts[name] += n

    def sentence(self) -> str:
        """Return for example ``37 calls, 35 checks; 4 listings failed; 2 need a human``. It holds no personal data."""
        parts = [self._list(_WORDS) or "nothing was due", self._list(_FAILURES)]
        if self.unreachable_since is not None:
            parts.append(f"service unreachable since {self.unreachable_since:%H:%M} UTC")
        if self.attention:
            parts.append(f"{self.attention} need{'s' if self.attention == 1 else ''} a human")
        return "; ".join(part for part in parts if part)

    def as_dict(self) -> dict[str, int | str]:
        """Return the counts as a job's result."""
        result: dict[str, int | str] = {name: n for name, n in sorted(self.counts.items()) if n}
        if self.unreachable_since is not None:
            result["unreachable_since"] = self.unreachable_since.isoformat()
        return {**result, "attention": self.attention}

    def _list(self, words: tuple[tuple[str, str, str], ...]) -> str:
        return ", ".join(f"{n} {one if n == 1 else many}" for name, one, many in words if (n := self.counts[name]))

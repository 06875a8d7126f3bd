"""Counts what becomes of pushes."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from calls.figures import Figures
from calls.figures import catalogue as figure
from calls.intake import CALL_END, CALL_START
from reseller.push import PushEvent

FARTHEST: Final = timedelta(hours=1)
"""A push that names an instant farther away than this says nothing about how long it took."""


@dataclass(frozen=True, slots=True)
class PushCounting:
    """What the push endpoint counts and measures."""

    figures: Figures = field(default_factory=Figures)

    def accepted(self, event: PushEvent, received_at: datetime, took_s: float) -> None:
        """Count an event that is recorded, how long that took, and how long after its own instant it came."""
        kind = event.type if event.type in {CALL_START, CALL_END} else "other"
        self.figures.count(figure.PUSHES, "sample" if event.is_test else kind)
        self.figures.observe(figure.PUSH_ANSWER, took_s)
        lag = None if event.is_test else lag_of(event, received_at)
        if lag is not None:
            self.figures.observe(figure.PUSH_LAG, lag.total_seconds())

    def refused(self, reason: str) -> None:
        """Count an event that was not taken."""
        self.figures.count(figure.PUSHES_REFUSED, reason)


def lag_of(event: PushEvent, received_at: datetime) -> timedelta | None:
    """Return how long after the instant that it names a push came; None if it names none that can be believed."""
    written = event.end_date_time or event.start_date_time
    if written is None:
        return None
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        return None
    lag = received_at - (at if at.tzinfo else at.replace(tzinfo=UTC))
    return max(lag, timedelta()) if abs(lag) < FARTHEST else None

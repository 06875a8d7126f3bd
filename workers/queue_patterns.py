"""What the entries of a queue show of the service's behaviour where its document is silent. Counted for the survey."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.notes import plausible_start
from callkeeper.service import QueueEntry
from callkeeper.service.open_questions import USUAL, Shown

MOST_SKIPPED_SEEN = 10
"""How many entries of a page that are left out are counted, at most."""

_SKIPPED = {
    "odd_voice_id": ("voice-id-alphabet", "odd-id"),
    "no_voice_id": ("queue-entry-usable", "entry-without-id"),
    "unreadable": ("queue-entry-usable", "entry-unreadable"),
}
"""The assumption and the answer that an entry counts for, by why it is left out."""


@dataclass(frozen=True, slots=True)
class QueuePatterns:
    """Counts what the pages of one institution's queue show."""

    figures: Figures
    institution_key: str

    def see(self, seen: Shown) -> None:
        self.figures.see_all((seen,), self.institution_key)

    def page(self, since: datetime | None, entries: Sequence[QueueEntry], now: datetime, date_zone: str) -> None:
        """Count whether a page keeps to the bound ``since``. ``date_zone`` is how the service writes times."""
        # Local times without a zone would seem to lie before the bound, or after it.
        if since is not None and date_zone in ("Z", "offset"):
            for seen in _seen_in_bounds(since, entries, now):
                self.see(seen)

    def bounds_misread(self) -> None:
        self.see(Shown("queue-start-bounds", "bounds-misread", "a later call was left out"))

    def ended_listed(self) -> None:
        self.see(Shown("queue-lists-live", "ended-listed", "an entry of a call that has ended"))

    def skipped(self, reason: str, entries: int) -> None:
        """Count entries of a page that were left out, each by itself."""
        seen = Shown(*_SKIPPED[reason], f"{entries} entries of a page")
        self.figures.see_all([seen] * min(entries, MOST_SKIPPED_SEEN), self.institution_key)


def _seen_in_bounds(since: datetime, entries: Sequence[QueueEntry], now: datetime) -> Iterator[Shown]:
    """Yield whether a page shows starts before the bound that was asked for; nothing if it shows no start at all."""
    starts = [start for entry in entries if (start := plausible_start(entry, now))]
    before_s = (since - min(starts, default=since)).total_seconds()
    if before_s > 0:
        is_of_minute = min(starts) >= since.replace(second=0, microsecond=0)
        answer = "bounds-by-minute" if is_of_minute else "bounds-ignored"
        yield Shown("queue-start-bounds", answer, f"an entry {before_s:.0f} s before startDate")
    elif starts:
        yield Shown("queue-start-bounds", USUAL, "no entry before startDate")

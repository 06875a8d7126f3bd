"""What the entries of a queue show of the service where its document is silent."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from callkeeper.calls.metrics.counting import Figures
from callkeeper.service import QueueEntry
from callkeeper.service.open_questions import Shown
from workers.queue_patterns import MOST_SKIPPED_SEEN, QueuePatterns

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SINCE = NOW - timedelta(seconds=90)


class RecordingFigures(Figures):
    """Figures that keep what was seen, and at which institution."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[str, str]] = []

    def see_all(self, seen: Iterable[Shown], institution_key: str) -> None:
        """Keep the answers."""
        self.answers += [(one.answer, institution_key) for one in seen]


def entry(ago_s: float) -> QueueEntry:
    """Return an entry of a call that started so long ago."""
    return QueueEntry(voice_id="v-1", started_at=NOW - timedelta(seconds=ago_s))


@pytest.mark.parametrize(
    ("ago_s", "zone", "answers"),
    [
        ((60,), "Z", ["usual"]),
        ((60, 100), "offset", ["bounds-by-minute"]),
        ((60, 200), "Z", ["bounds-ignored"]),
        ((), "Z", []),
        ((60, 200), "local", []),
    ],
    ids=["kept", "by the minute", "ignored", "no entry", "local times"],
)
def test_page_shows_whether_the_service_keeps_to_the_bound(
    ago_s: tuple[float, ...], zone: str, answers: list[str]
) -> None:
    """Local times show nothing: they would seem to lie before the bound, or after it."""
    figures = RecordingFigures()
    QueuePatterns(figures, "cu-1").page(SINCE, [entry(one) for one in ago_s], NOW, zone)
    assert figures.answers == [(answer, "cu-1") for answer in answers]


def test_page_without_a_bound_shows_nothing() -> None:
    """The whole queue has calls of any age."""
    figures = RecordingFigures()
    QueuePatterns(figures, "cu-1").page(None, [entry(200)], NOW, "Z")
    assert figures.answers == []


def test_skipped_entries_are_counted_each_but_no_more_than_a_few() -> None:
    """One page with hundreds of them must not outweigh all others."""
    figures = RecordingFigures()
    QueuePatterns(figures, "cu-1").skipped("odd_voice_id", 3)
    assert figures.answers == [("odd-id", "cu-1")] * 3
    QueuePatterns(figures, "cu-1").skipped("unreadable", 500)
    assert figures.answers[3:] == [("entry-unreadable", "cu-1")] * MOST_SKIPPED_SEEN

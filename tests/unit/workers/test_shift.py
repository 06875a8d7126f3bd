"""What a shift logs of pauses."""

from itertools import pairwise

from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.pause import Pause, Pauses, PauseScope
from tests.sandbox_fixtures import START
from workers.shift import log_pauses


def test_pauses_are_logged_when_they_come_and_when_they_go(log: FilteringBoundLogger, logged: LogCapture) -> None:
    """A worker logs the start and the end of a pause once each."""
    pause = Pause(scope=PauseScope.ALL, operator="jane", because="drill", at=START)
    seen = [Pauses(), Pauses({"*": pause}), Pauses({"*": pause}), Pauses({"*": pause, "cu-1": pause}), Pauses()]
    for before, now in pairwise(seen):
        log_pauses(before, now, log)
    assert [(entry["event"], entry["institution"]) for entry in logged.entries] == [
        ("pause_seen", "*"),
        ("pause_seen", "cu-1"),
        ("pause_over", "*"),
        ("pause_over", "cu-1"),
    ]
    assert logged.entries[0]["operator"] == "jane"

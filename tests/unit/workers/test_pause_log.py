"""Pauses in a worker's log."""

from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.pause import Pause, Pauses, PauseScope
from tests.sandbox_fixtures import START
from workers.pause_log import PauseLog


def test_pauses_are_logged_when_they_come_and_when_they_go(log: FilteringBoundLogger, logged: LogCapture) -> None:
    """A worker logs the start and the end of a pause once each."""
    notice, pause = PauseLog(), Pause(scope=PauseScope.ALL, operator="jane", because="drill", at=START)
    for pauses in (Pauses(), Pauses({"*": pause}), Pauses({"*": pause}), Pauses({"*": pause, "cu-1": pause}), Pauses()):
        notice.see(pauses, log)
    assert [(entry["event"], entry["institution"]) for entry in logged.entries] == [
        ("pause_seen", "*"),
        ("pause_seen", "cu-1"),
        ("pause_over", "*"),
        ("pause_over", "cu-1"),
    ]
    assert logged.entries[0]["operator"] == "jane"

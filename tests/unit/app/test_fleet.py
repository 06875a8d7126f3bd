"""A process that does not start."""

from pathlib import Path

import pytest

from callkeeper_sandbox.demo.fleet import FleetFailed, ManagedProcess


class Silent:
    """A process that runs or has ended, and logs nothing."""

    pid = 0

    def __init__(self, code: int | None) -> None:
        self.code = code

    def poll(self) -> int | None:
        """Return the exit code, or None."""
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code."""
        return self.code or 0

    def send_signal(self, sig: int) -> None:
        """Ignore a signal."""

    def kill(self) -> None:
        """Ignore a signal."""


@pytest.mark.parametrize(("code", "why"), [(None, "did not start within 0 s"), (1, "did not start: ")])
def test_process_that_does_not_start_says_whether_it_was_slow(code: int | None, why: str, tmp_path: Path) -> None:
    """A slow process is told from one that has ended: its log may be empty, so the message must say it."""
    log = tmp_path / "web.log"
    log.touch()
    with pytest.raises(FleetFailed, match=why):
        ManagedProcess("web", Silent(code), log).wait_for(lambda line: line, 0 if code is None else 5)


def test_process_that_ended_very_often_is_still_revived(tmp_path: Path) -> None:
    """The pause before a restart stays at its longest, however many there were."""
    often = ManagedProcess("web", Silent(1), tmp_path / "web.log", start=lambda: Silent(None), restarts=2000)
    assert often.revive() is False

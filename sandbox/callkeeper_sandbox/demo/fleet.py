"""Starts and stops callkeeper processes. Each has a log file and is stopped by its own process id.

For ``callkeeper run`` and the tests that need real processes.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from callkeeper_sandbox.demo.guard import Guard

STOP_S = 10.0
"""How long a process may take to stop after SIGTERM, as in the platform manifests."""


START_S = 60.0
"""How long a process may take to start. On a busy machine the first start after an installation compiles every module."""


RESTART_AFTER_S = 1.0
LONGEST_PAUSE_S = 30.0
"""After how long a process that ended is started again: at first, and at most."""


class FleetFailed(Exception):
    """A process did not start; the message names it and its log."""


class RunningProcess(Protocol):
    """A running process: a ``subprocess.Popen``, or one that was started by other means."""

    pid: int

    def poll(self) -> int | None:
        """Return None while the process runs."""

    def send_signal(self, sig: int) -> None:
        """Send a signal if the process still runs."""

    def kill(self) -> None:
        """End the process."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended.

        Raises:
            subprocess.TimeoutExpired: It has not.
        """


def wait_on() -> None:
    """Let a wait go on."""


@dataclass(slots=True)
class ManagedProcess:
    """One process and its log. ``start``, where it is known, starts it once more; its output is added to the log."""

    name: str
    process: RunningProcess
    log: Path
    guard: Guard | None = None
    while_waiting: Callable[[], None] = wait_on
    start: Callable[[], RunningProcess] | None = None
    restarts: int = 0
    _ended_s: float | None = None

    def revive(self) -> bool:
        """Start the process again if it ended a while ago; tell whether it was started.

        The while doubles with each restart, so a process that cannot start costs little.
        """
        if self.is_running or self.start is None:
            return False
        now_s = time.monotonic()
        self._ended_s = now_s if self._ended_s is None else self._ended_s
        if now_s - self._ended_s < min(RESTART_AFTER_S * 2 ** min(self.restarts, 5), LONGEST_PAUSE_S):
            return False
        self._leave()
        self.process = self.start()
        self.guard = Guard(self.process.pid)
        self.restarts += 1
        self._ended_s = None
        return True

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait_for(self, find: Callable[[str], str | None], deadline_s: float = START_S) -> str:
        """Return what ``find`` finds in a line of the log, as soon as it does.

        Raises:
            FleetFailed: The process ended, or nothing was found in time.
        """
        until_s = time.monotonic() + deadline_s
        why = f"did not start within {deadline_s:.0f} s"
        while time.monotonic() < until_s:
            has_ended = not self.is_running
            for line in self.log.read_text(errors="replace").splitlines():
                found = find(line)
                if found is not None:
                    return found
            if has_ended:
                why = "did not start"
                break
            self.while_waiting()
            time.sleep(0.02)
        raise FleetFailed(f"{self.name} {why}: see {self.log}\n{self.tail()}")

    def tail(self, lines: int = 8) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, deadline_s: float = STOP_S) -> float:
        """Send SIGTERM, then SIGKILL after the deadline; return how many seconds it took."""
        started_s = time.monotonic()
        self._leave()
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return time.monotonic() - started_s

    def kill(self) -> None:
        """Send SIGKILL."""
        self._leave()
        self.process.kill()
        self.process.wait()

    def _leave(self) -> None:
        if self.guard is not None:
            self.guard.close()
            self.guard = None


@dataclass(slots=True)
class Fleet:
    """Processes that are started one after the other and ended together, the last first.

    ``while_waiting`` is called again and again while one of them starts. It ends the wait if it raises an exception.
    """

    log_dir: Path
    while_waiting: Callable[[], None] = wait_on
    members: list[ManagedProcess] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(
        self,
        name: str,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        module: tuple[str, ...] = ("callkeeper",),
    ) -> ManagedProcess:
        """Start ``callkeeper ARGUMENTS`` with the given environment, and write its output to a log file.

        A Ctrl-C in the terminal does not reach it: the fleet ends it, or its guard if we are killed. ``module`` runs
        instead of callkeeper, with its own arguments before the others.
        """
        log = self.log_dir / f"{name}.log"
        command = [sys.executable, "-m", *module, *arguments]
        log.unlink(missing_ok=True)
        start = partial(start_process, command, log, {**plain_environment(), **(environ or {})})
        process = start()
        member = ManagedProcess(name, process, log, Guard(process.pid), self.while_waiting, start)
        self.members.append(member)
        return member

    def stop(self) -> dict[str, float]:
        """End every process, the last started first; return the seconds each took."""
        took_s = {}
        while self.members:
            member = self.members.pop()
            took_s[member.name] = member.stop()
        return took_s


def start_process(
    command: Sequence[str | Path], log: Path, environ: Mapping[str, str], pass_fds: Collection[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that a Ctrl-C in the terminal does not reach it."""
    with log.open("ab") as sink:
        return subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environ,
            pass_fds=pass_fds,
            start_new_session=True,
        )


def plain_environment() -> dict[str, str]:
    """Return our environment without callkeeper's settings, so a member has only those that it is given."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CALLKEEPER_") and name not in {"REDIS_URL", "PORT"}
    }

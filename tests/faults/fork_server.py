"""A fork server: starts callkeeper processes by forking one that has already imported everything.

A forked process has its own session, environment and log, but starts without the half second of imports. This helps
tests that start hundreds of workers. Do not use it where the time of a start is measured.

``python -m tests.faults.fork_server`` forks one process for each line of its standard input and answers with its pid.
It does not reap its children until it ends itself, so that the system cannot reuse the pid of an ended process.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from callkeeper_sandbox.demo.fleet import STOP_S, ManagedProcess, plain_environment

PRELOADED = (
    "callkeeper.app.wiring",
    "callkeeper.app.commands.worker",
    "callkeeper.app.web_app",
    "callkeeper.app.commands.web",
)
"""Imported before the first fork."""

_POLL_EVERY_S = 0.01


class ForkedProcess:
    """A process that the fork server has started, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return 0 if the process has ended, None while it runs or is stopped."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return 0
        return 0 if status.rpartition(")")[2].split()[0] in {"Z", "X"} else None

    def send_signal(self, sig: int) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended.

        Raises:
            subprocess.TimeoutExpired: The process has not ended in time.
        """
        end_s = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_EVERY_S)
        return 0


@dataclass(slots=True)
class ForkServer:
    """Starts processes like a ``Fleet``, and ends them when its block ends."""

    log_dir: Path
    members: list[ManagedProcess] = field(default_factory=list)
    _server: "subprocess.Popen[str] | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self._server = subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        for member in reversed(self.members):
            member.process.send_signal(signal.SIGCONT)
            member.process.send_signal(signal.SIGTERM)
        end_s = time.monotonic() + STOP_S
        for member in self.members:
            member.stop(max(0.1, end_s - time.monotonic()))
        assert self._server is not None
        self._server.communicate(timeout=STOP_S)

    def start(
        self, name: str, *arguments: str, environ: Mapping[str, str], module: tuple[str, ...] = ("callkeeper",)
    ) -> ManagedProcess:
        """Start ``callkeeper ARGUMENTS`` with its own environment and log, as a `Fleet` does."""
        log = self.log_dir / f"{name}.log"
        log.touch()
        order = {"command": [*module, *arguments], "environ": {**plain_environment(), **environ}, "log": str(log)}
        with self._lock:
            assert self._server is not None
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            pid = int(self._server.stdout.readline())
            member = ManagedProcess(name, ForkedProcess(pid), log)
            self.members.append(member)
        return member


def _serve() -> None:
    """Fork one process for each line of input. At the end of input, kill the processes that still run."""
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    pids = []
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run(json.loads(line))
        pids.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _run(order: dict[str, object]) -> None:
    """Run the ordered module in this forked process, then exit."""
    os.setsid()
    nowhere, log = os.open(os.devnull, os.O_RDONLY), os.open(str(order["log"]), os.O_WRONLY | os.O_APPEND)
    for source, target in ((nowhere, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(order["environ"])  # type: ignore[call-overload]  # written by ``start``
    sys.argv = list(order["command"])  # type: ignore[call-overload]
    status = 1
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()

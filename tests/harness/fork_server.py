"""A fork server: starts callkeeper processes by forking one that has already imported everything.

A forked process has its own session, environment, folder and log, and ends with its own exit status, but starts without
the second of imports. This helps tests that start many processes. Do not use it where the time of a start is measured,
or what the system shows of a process, such as its arguments.

``python -m tests.harness.fork_server`` forks one process for each line of its standard input and answers with its pid.
It does not reap its children until it ends itself, so that the system cannot reuse the pid of an ended process.
"""

import atexit
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
from functools import cache
from pathlib import Path

from callkeeper.app.logs import flush_log
from callkeeper_sandbox.demo.fleet import STOP_S, Fleet, ManagedProcess, plain_environment

PRELOADED = (
    "callkeeper.app.wiring",
    "callkeeper.app.commands.worker",
    "callkeeper.app.web_app",
    "callkeeper.app.commands.web",
    "callkeeper_sandbox.commands.sandbox",
    "callkeeper_sandbox.service.launch",
)
"""Imported before the first fork."""

FORKED = {"callkeeper", "tests.faults.crashpoints"}
"""Modules that run in a forked process. Others change callkeeper before it is imported, so they start anew."""

_POLL_EVERY_S = 0.01
_STATE, _EXIT_STATUS = 0, 49
"""Fields of /proc/PID/stat behind the name of the program."""


class ForkedProcess:
    """A process that the fork server has started, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, None while it runs or is stopped."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return 0
        fields = stat.rpartition(")")[2].split()
        return os.waitstatus_to_exitcode(int(fields[_EXIT_STATUS])) if fields[_STATE] in {"Z", "X"} else None

    def send_signal(self, sig: int) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended, and return its exit code.

        Raises:
            subprocess.TimeoutExpired: The process has not ended in time.
        """
        end_s = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_EVERY_S)
        return code


class ForkServer:
    """The process that forks others. They end with it, and it ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self._process.communicate, timeout=STOP_S)

    def fork(self, command: tuple[str, ...], environ: Mapping[str, str], log: Path) -> ForkedProcess:
        """Run a module with its arguments in a forked process, which writes its output to a log."""
        order = {"command": command, "environ": dict(environ), "log": str(log.absolute()), "folder": str(Path.cwd())}
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return ForkedProcess(int(self._process.stdout.readline()))


_starting = threading.Lock()


@cache
def _server() -> ForkServer:
    return ForkServer()


class ForkingFleet(Fleet):
    """A fleet whose processes are forked."""

    def start(
        self,
        name: str,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        module: tuple[str, ...] = ("callkeeper",),
    ) -> ManagedProcess:
        """Start ``callkeeper ARGUMENTS`` with the given environment and a log file, as any fleet does."""
        if module[0] not in FORKED or "PYTHONPATH" in (environ or {}):
            return super().start(name, *arguments, environ=environ, module=module)
        log = self.log_dir / f"{name}.log"
        log.write_bytes(b"")
        with _starting:
            server = _server()
        forked = server.fork((*module, *arguments), {**plain_environment(), **(environ or {})}, log)
        member = ManagedProcess(name, forked, log)
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
        os.waitpid(pid, 0)


def _run(order: dict[str, object]) -> None:
    """Run the ordered module in this forked process, then exit."""
    os.setsid()
    nowhere, log = os.open(os.devnull, os.O_RDONLY), os.open(str(order["log"]), os.O_WRONLY | os.O_APPEND)
    for source, target in ((nowhere, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(str(order["folder"]))
    os.environ.clear()
    os.environ.update(order["environ"])  # type: ignore[call-overload]  # written by ``fork``
    sys.argv = list(order["command"])  # type: ignore[call-overload]
    status = 1
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:  # noqa: BLE001  (what Python itself would print)
        sys.excepthook(*sys.exc_info())
    finally:
        flush_log()  # what is registered with `atexit`
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()

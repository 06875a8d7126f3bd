"""A command in a pseudo-terminal of its own, as a person would start it: it has Ctrl-C, colours and a width."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

_CTRL_C: Final = b"\x03"
_TOLD: Final = 2000
"""How many of the last characters an error message repeats."""

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
# The leader of the session must not have threads. Therefore a small program opens the terminal.
# A test run in the background ignores SIGINT, and its children would too. A person's shell does not ignore it.
_ENTER: Final = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.login_tty(int(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"
)


class Terminal:
    """One running command and everything that it has shown."""

    def __init__(self, *command: str, cwd: Path, environ: Mapping[str, str], size: tuple[int, int] = (24, 80)) -> None:
        """Start a command.

        Args:
            command: The program and its arguments.
            cwd: The folder that it is started in.
            environ: All of its environment.
            size: Rows and columns of the terminal.
        """
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, size)
        self._process = subprocess.Popen(  # noqa: S603  (commands of tests and of our README)
            [sys.executable, "-c", _ENTER, str(slave), *command], cwd=cwd, env=dict(environ), pass_fds=[slave]
        )
        os.close(slave)
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the command if it runs: with SIGINT; if that does not help, with SIGTERM, then with SIGKILL."""
        for number, patience_s in ((signal.SIGINT, 15.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            if self._process.poll() is None:
                self.signal_group(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(patience_s)
        self._process.wait()
        self._reader.join(5)
        os.close(self._master)

    @property
    def text(self) -> str:
        """Return what was shown so far, without colours and movements of the cursor."""
        return _ESCAPES.sub("", self._shown.decode(errors="replace"))

    @property
    def has_ended(self) -> bool:
        """Tell whether the command has ended."""
        return self._process.poll() is not None

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C: the terminal sends SIGINT to the foreground process group."""
        os.write(self._master, _CTRL_C)

    def press_enter(self) -> None:
        """Press Enter: a question is answered with its default."""
        os.write(self._master, b"\n")

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process group of the command itself."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def wait_for(self, words: str, within_s: float) -> None:
        """Wait until a text was shown.

        Raises:
            AssertionError: They were not shown in time, or the command ended before.
        """
        until_s = time.monotonic() + within_s
        while words not in self.text:
            if self.has_ended and not self._reader.is_alive():
                raise AssertionError(f"the command ended without showing {words!r}; it showed:\n{self.text[-_TOLD:]}")
            if time.monotonic() > until_s:
                raise AssertionError(f"nothing showed {words!r} within {within_s:.0f} s, but:\n{self.text[-_TOLD:]}")
            time.sleep(0.05)

    def exit_code(self, within_s: float) -> int:
        """Wait for the end of the command and return its exit code, negative for a signal.

        Raises:
            AssertionError: It did not end in time.
        """
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the command runs on after {within_s:.0f} s; it showed:\n{self.text[-_TOLD:]}"
            ) from None
        self._reader.join(5)
        return code

    def _read(self) -> None:
        """Collect what is shown until no process has the terminal open."""
        while True:
            try:
                shown = os.read(self._master, 65536)
            except OSError:
                return
            if not shown:
                return
            self._shown += shown

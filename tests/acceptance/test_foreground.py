"""Ctrl-C in a real pseudo-terminal: for a program that make runs, a command that has not begun yet, and at a prompt."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from tests.terminals import Terminal

ROOT: Final = Path(__file__).parents[2]
PROGRAM = """
import signal, time
from callkeeper.app.process import take_foreground
take_foreground()
told = []
signal.signal(signal.SIGINT, lambda *_: told.append(1))
print("ready", flush=True)
while not told: time.sleep(0.01)
time.sleep(0.5)
print("ended well", flush=True)
"""


def make(folder: Path) -> Terminal:
    """Start make in a terminal; it runs the program."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "Makefile").write_text(f"run:\n\t@'{sys.executable}' program.py\n")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return Terminal("make", "run", cwd=folder, environ=environ)


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.night), 2])
def test_make_succeeds_after_ctrl_c(tmp_path: Path, times: int) -> None:
    """However often Ctrl-C is pressed, make waits until the program has ended and exits with the program's code."""
    with make(tmp_path) as terminal:
        terminal.wait_for("ready", 10)
        for _ in range(times):
            terminal.press_ctrl_c()
            time.sleep(0.1)
        assert terminal.exit_code(10) == 0
        assert "ended well" in terminal.text


def test_signals_to_the_group_of_make_reach_the_program(tmp_path: Path) -> None:
    """SIGINT to the process group of make is forwarded: the program ends before make does."""
    with make(tmp_path) as terminal:
        terminal.wait_for("ready", 10)
        terminal.signal_group(signal.SIGINT)
        assert terminal.exit_code(10) == -signal.SIGINT
        assert "ended well" in terminal.text


@pytest.mark.parametrize(
    ("library", "command"),
    [pytest.param("click", "--help", id="the command line"), pytest.param("httpx", "run", id="a command")],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_command_that_is_stopped_during_its_imports_ends_without_a_word(
    tmp_path: Path, library: str, command: str, number: signal.Signals, code: int
) -> None:
    """Ctrl-C ends it by the signal, so that a shell's loop ends too; SIGTERM also if it is a container's first process."""
    (tmp_path / f"{library}.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}:{ROOT}:{ROOT / 'sandbox'}"}
    with Terminal(sys.executable, "-m", "callkeeper", command, cwd=tmp_path, environ=environ) as terminal:
        terminal.wait_for("importing", 10)
        terminal.signal_group(number)
        assert (terminal.exit_code(10), terminal.text.split()) == (code, ["importing"])

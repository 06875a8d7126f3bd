"""A newcomer's machine: a fresh clone in a folder of its own, a shell with four variables, and terminals to type in."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.readme.plan import Known, Where
from tests.terminals import Terminal

PORTS: Final = (6379, 8000, 8790, 9000)
"""Ports that README.md and the tutorial name."""

NEEDED: Final = ("curl", "git", "make", "redis-server")
_COMMAND_S: Final = 60.0


class Newcomer:
    """Types commands in a fresh clone."""

    def __init__(self, clone: Path, environ: dict[str, str]) -> None:
        self.clone = clone
        self._environ = environ

    def terminal(self, command: str) -> Terminal:
        """Type a command in a terminal of its own, 80 columns wide."""
        return Terminal("sh", "-c", command, cwd=self.clone, environ=self._environ)

    def output(self, command: str, known: Known, within_s: float = _COMMAND_S) -> str:
        """Run a command in the virtual environment and return all that it showed.

        Raises:
            AssertionError: It ended with another exit code, or did not show what it should.
        """
        try:
            ran = subprocess.run(  # noqa: S603  (commands of our README)
                ["/bin/sh", "-c", f". .venv/bin/activate && {command}"],
                cwd=self.clone,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=within_s,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it runs on after {within_s:.0f} s") from None
        if ran.returncode != known.code or known.shows not in ran.stdout:
            wanted = f"exit code {known.code}" + (f" and {known.shows!r}" if known.shows else "")
            raise AssertionError(f"it should show {wanted}; exit code {ran.returncode}, and it showed:\n{ran.stdout}")
        return ran.stdout

    def live_calls(self, settings: str) -> list[str]:
        """Return the voice ids that ``calls list`` shows with the settings of a file."""
        lines = self.output(f". {settings} && callkeeper calls list --json", Known(Where.CLONE))
        # Lines that are no JSON are warnings.
        return [json.loads(line)["voice_id"] for line in lines.splitlines() if line.startswith("{")]


@contextmanager
def newcomer(repository: Path, python: Path) -> Iterator[Newcomer]:
    """Clone a repository's HEAD into a new folder; ``python3`` is a given Python, and nothing else is set.

    The folder's name has a space in it, because a person's folders may.
    """
    with TemporaryDirectory() as place:
        programs, clone = Path(place) / "bin", Path(place) / "fresh clone"
        programs.mkdir()
        # Not a link: a Python that is started by a link takes the link's folder for its home.
        (programs / "python3").write_text(f"#!/bin/sh\nexec '{python}' \"$@\"\n")
        (programs / "python3").chmod(0o755)
        subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)], check=True)  # noqa: S603, S607
        others = [folder for folder in os.get_exec_path() if not folder.startswith(sys.prefix)]
        environ = {"PATH": os.pathsep.join([str(programs), *others]), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        yield Newcomer(clone, environ | {"HOME": str(Path.home())})


def obstacles() -> list[str]:
    """Return what keeps this machine from doing what README.md says: programs that are missing, ports that are taken."""
    missing = [f"{name} is not installed" for name in NEEDED if shutil.which(name) is None]
    return missing + [f"port {port} is in use, and README.md needs it" for port in PORTS if _is_taken(port)]


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False

"""What ``make`` says if the virtual environment cannot be used."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALLED_FROM = ("requirements-dev.txt", "pyproject.toml", "sandbox/pyproject.toml")


def _dead_link(venv: Path) -> None:
    """Link to an environment that was removed."""
    venv.symlink_to("removed")


def _python_gone(venv: Path) -> None:
    """Make an environment whose Python was removed, before everything was installed into it."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to("/removed/python3")


def _python_upgraded(venv: Path) -> None:
    """Make one whose Python is another version now, and does not find what was installed for the one before."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").write_text("#!/bin/sh\nexit 1\n")
    (venv / "bin/python").chmod(0o755)
    (venv / ".installed").touch()


@pytest.mark.parametrize("make_broken", [_dead_link, _python_gone, _python_upgraded])
def test_make_says_how_to_replace_an_environment_that_does_not_work(
    make_broken: Callable[[Path], None], tmp_path: Path
) -> None:
    """One line with the remedy, and not what the shell says of a file that is not there."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "sandbox").mkdir()
    for name in INSTALLED_FROM:
        (tmp_path / name).touch()
    make_broken(tmp_path / ".venv")
    done = subprocess.run(
        ["make", "check"],  # noqa: S607  (whichever the developer has)
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = ".venv does not work: what it links to, or the Python that made it, is gone. Remove it: rm -rf .venv\n"
    assert (done.returncode, done.stdout) == (2, said)
    assert len(done.stderr.splitlines()) == 1, done.stderr

"""The Pythons of this machine that callkeeper supports: those on PATH, and those of pyenv.

``python -m tests.readme.pythons`` prints one other than the running one, for `.ci/run`.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_NAME: Final = re.compile(r"python3\.\d+")
_ABOUT: Final = "import ensurepip, sys; print(*sys.version_info[:2], sys.executable)"


def oldest() -> tuple[int, int]:
    """Return the oldest supported version, as pyproject.toml names it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    major, minor = project["requires-python"].removeprefix(">=").split(".")
    return int(major), int(minor)


def supported() -> list[Path]:
    """Return one program for each supported version, the oldest version first."""
    return list(_by_version().values())


def another() -> Path | None:
    """Return the newest supported Python, or the oldest if this is the newest; None if there is no other."""
    this, found = sys.version_info[:2], _by_version()
    others = [version for version in found if version != this]
    return found[others[-1] if others[-1] > this else others[0]] if others else None


def _by_version() -> dict[tuple[int, int], Path]:
    found: dict[tuple[int, int], Path] = {}
    for program in _programs():
        about = _about(program)
        if about is not None and about[0] >= oldest():
            found.setdefault(*about)
    return dict(sorted(found.items()))


def _programs() -> Iterator[Path]:
    folders = [Path(folder) for folder in os.get_exec_path()]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
        folders += sorted(Path(root).glob("versions/*/bin"))
    for folder in folders:
        if folder.is_dir():
            yield from sorted(program for program in folder.glob("python3.*") if _NAME.fullmatch(program.name))


def _about(program: Path) -> tuple[tuple[int, int], Path] | None:
    """Return a Python's version and where it really is; None if it does not run or cannot make virtual environments.

    pyenv puts a placeholder on PATH for every version that it knows; most of them do not run.
    """
    asked = subprocess.run([program, "-c", _ABOUT], capture_output=True, text=True, check=False)  # noqa: S603
    if asked.returncode != 0:
        return None
    major, minor, real = asked.stdout.strip().split(" ", 2)
    return (int(major), int(minor)), Path(real)


if __name__ == "__main__":
    sys.stdout.write(str(another() or ""))

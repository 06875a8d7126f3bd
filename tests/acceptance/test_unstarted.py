"""Processes that do not start: the board and the doctor learn of them, because their platform may only restart them."""

import os
import signal
import subprocess
import sys

import pytest
from redis import Redis as BlockingRedis

from callkeeper.app.settings import ServiceSettings
from callkeeper.calls.metrics.redis_writer import host
from callkeeper.calls.store.account_use import AccountUse
from callkeeper.calls.store.keys import Keys


@pytest.mark.parametrize("kind", ["web", "worker"])
@pytest.mark.parametrize(
    "fault", [{"CALLKEEPER_EMAIL": ""}, {"CALLKEEPER_INSTITUTION": "cu-1"}], ids=lambda one: next(iter(one))
)
def test_process_with_a_wrong_setting_is_reported(
    kind: str, fault: dict[str, str], redis_url: str, blocking_redis: BlockingRedis
) -> None:
    """A process that refuses its settings exits with 2, and the incident *process gone* names it and its host.

    The second one is almost the name of a setting.
    """
    environ = {"PATH": os.environ["PATH"], "REDIS_URL": redis_url, "CALLKEEPER_ADMIN": "ops", **fault}
    command = [sys.executable, "-m", "callkeeper", kind]
    ended = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)  # noqa: S603  (our own)
    assert ended.returncode == 2
    assert blocking_redis.hkeys(Keys().unstarted) == [f"{kind}:{host()}".encode()]


SETTINGS = {
    "CALLKEEPER_SERVICE_URL": "http://127.0.0.1:9",
    "CALLKEEPER_ACCESS_TOKEN": "as-issued-at-onboarding",
    "CALLKEEPER_EMAIL": "svc@bank.test",
    "CALLKEEPER_PASSWORD": "as-issued-at-onboarding",
    "CALLKEEPER_REQUESTED_BY": "bot",
}


@pytest.mark.parametrize("kind", ["web", "worker"])
def test_process_without_an_output_for_its_log_says_so(
    kind: str, redis_url: str, blocking_redis: BlockingRedis
) -> None:
    """With a closed standard output it does not start, and names that instead of a bug."""
    header = "X-Push-Key: 9f2c-closed-output-41d7"
    environ = {"PATH": os.environ["PATH"], "REDIS_URL": redis_url, "CALLKEEPER_PUSH_HEADERS": header, **SETTINGS}
    command = ["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-m", "callkeeper", kind]
    ended = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)  # noqa: S603  (our own)
    assert ended.returncode == 2
    assert ended.stderr.decode().startswith("Error: standard output is closed, but the log goes there: redirect it")
    assert blocking_redis.hkeys(Keys().unstarted) == [f"{kind}:{host()}".encode()]


def test_worker_under_another_prefix_does_not_start_beside_one_of_the_same_account(
    redis_url: str, blocking_redis: BlockingRedis
) -> None:
    """It would make its own checks, and enroll and reject once more. The board of the one that works names it."""
    AccountUse(Keys(), ServiceSettings.load(SETTINGS).account, None).note(blocking_redis)
    environ = {"PATH": os.environ["PATH"], "REDIS_URL": redis_url, "CALLKEEPER_REDIS_PREFIX": "ck2", **SETTINGS}
    command = [sys.executable, "-m", "callkeeper", "worker"]
    ended = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)  # noqa: S603  (our own)
    assert ended.returncode == 2
    assert "workers with CALLKEEPER_REDIS_PREFIX=ck work with this account; ours is ck2" in ended.stderr.decode()
    for keys in (Keys(), Keys("ck2")):
        assert blocking_redis.hkeys(keys.unstarted) == [f"worker:{host()}".encode()]


IN_A_CALLBACK = """
import signal, weakref
from callkeeper import __main__
from callkeeper.app import cli

class One: pass
def start():
    one = One()
    told = weakref.ref(one, lambda _: signal.raise_signal(signal.SIGTERM))
    del one
    print("goes on")
cli.main = start
__main__.main()
"""


def test_process_that_starts_never_misses_its_end() -> None:
    """Also if SIGTERM comes where Python ignores exceptions, as in the collection of garbage at the start."""
    command = [sys.executable, "-c", IN_A_CALLBACK]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False)  # noqa: S603  (our own)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, b"")

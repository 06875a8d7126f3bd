"""The loop of a worker process: it ends when it was told to, whatever Redis does."""

import logging
from importlib import metadata
from typing import Any

import pytest
import structlog
from fakeredis import FakeRedis
from redis.exceptions import ConnectionError as RedisAway
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError
from structlog.testing import capture_logs

from workers.jobs import CallJob
from workers.rq_worker import SILENT_S, CallWorker, is_not_about_redis, work


class FakeWorker:
    """Works once, and is told to stop meanwhile."""

    name = "w-1"
    on_birth: Any = None
    has_stop_request = False

    def work(self) -> None:
        """Begin, and be told to stop."""
        self.on_birth()
        self.has_stop_request = True


def test_work_goes_on_when_redis_is_away_as_a_worker_is_made() -> None:
    """Making a worker asks Redis: while that fails the process goes on, and the next one that can be made works."""
    attempts: list[FakeWorker] = []

    def make() -> Any:
        attempts.append(FakeWorker())
        if len(attempts) < 3:
            raise RedisAway
        return attempts[-1]

    work(make, structlog.get_logger(), pause_s=0.0)
    assert [worker.has_stop_request for worker in attempts] == [False, False, True]


def test_worker_that_starts_logs_its_release() -> None:
    """While a deployment goes on, the log tells which worker is of which release."""

    def make() -> Any:
        return FakeWorker()

    with capture_logs() as logged:
        work(make, structlog.get_logger(), pause_s=0.0)
    assert [(entry["event"], entry.get("release")) for entry in logged] == [
        ("worker_started", metadata.version("callkeeper")),
        ("worker_stopped", None),
    ]


def test_worker_that_redis_refuses_logs_once_why() -> None:
    """The class of an error does not say that Redis cannot write to its disk."""
    refusal, attempts = ResponseError("MISCONF Errors writing to the AOF file"), [0]

    def make() -> Any:
        attempts[0] += 1
        if attempts[0] < 4:
            raise refusal
        return FakeWorker()

    with capture_logs() as logged:
        work(make, structlog.get_logger(), pause_s=0.0)
    refused = [(entry["error"], entry["because"]) for entry in logged if entry["event"] == "worker_restarts"]
    assert refused == [("ResponseError", "it cannot write to its disk (MISCONF)")]


def _fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        (RedisAway("refused"), False),
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), False),
        (ReadOnlyError("You can't write against a read only replica."), False),
        (ResponseError("MISCONF Errors writing to the AOF file"), False),
        (ResponseError("WRONGTYPE Operation against a key"), True),
        (KeyError("bug"), True),
    ],
    ids=["away", "full", "replica", "disk", "wrong type", "bug"],
)
def test_rq_logs_bugs_only(error: Exception, is_logged: bool) -> None:
    """What Redis does is logged by us, once. RQ would log it as an unhandled exception, with its trace."""
    record = logging.makeLogRecord({"msg": "found an unhandled exception, quitting..."})
    try:
        _fail(error)
    except Exception:  # noqa: BLE001  (each of the table)
        assert is_not_about_redis(record) is is_logged


def test_silent_redis_is_noticed_soon() -> None:
    """A command of RQ's takes little longer than an idle worker waits for a job. RQ raises the connection's timeout."""
    redis = FakeRedis()
    worker = CallWorker(redis, job_class=CallJob, on_stop=lambda: None, leave=lambda _: None)
    assert redis.connection_pool.connection_kwargs["socket_timeout"] == worker.dequeue_timeout + SILENT_S == 5

"""RQ jobs that are repeated, foreign or broken do not stop the worker, and no foreign function is called."""

import signal
import socket
from collections.abc import Iterator

import pytest
from redis import Redis
from rq import Callback, Queue
from rq.job import Job
from rq.registry import FailedJobRegistry
from rq.serializers import JSONSerializer
from rq.webhook import Webhook

from callkeeper.calls.store.job_queue import ADVANCE, calls_queue
from workers.job_summary import JobSummary
from workers.jobs import job_class
from workers.rq_worker import CallWorker


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """Return a client of the real Redis."""
    with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def queue(redis: Redis) -> Queue:
    """Return the queue of the workers."""
    return calls_queue(redis)


class Shifts:
    """The worker's jobs: an ``advance`` that counts its runs."""

    def __init__(self) -> None:
        self.worked = 0

    def advance(self, _job_key: str) -> JobSummary:
        """Count a shift."""
        self.worked += 1
        return JobSummary()


@pytest.fixture
def shifts() -> Shifts:
    """Return the jobs of the test's worker."""
    return Shifts()


def work_off(redis: Redis, shifts: Shifts) -> None:
    """Run our worker class until the queue is empty, then restore the signal handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    worker = CallWorker(
        redis, job_class=job_class({ADVANCE: shifts.advance}), on_stop=lambda: None, leave=lambda _: None
    )
    try:
        worker.work(burst=True, logging_level="CRITICAL")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def trap() -> Iterator[socket.socket]:
    """Return a listening socket to which nothing may connect."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def was_called(trap: socket.socket) -> bool:
    """Tell whether anybody connected."""
    try:
        trap.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_foreign_job_with_webhooks_is_parked_and_calls_nobody(
    redis: Redis, queue: Queue, shifts: Shifts, trap: socket.socket
) -> None:
    """A foreign job fails without its webhooks and callbacks being called, and the next job runs (D15)."""
    url = "http://{}:{}/".format(*trap.getsockname())
    foreign = queue.enqueue(
        "os.getcwd",
        job_id="foreign",
        webhooks=[Webhook(url, "failed", method="POST"), Webhook(url, "finished")],
        on_failure=Callback("os.abort"),
        on_success=Callback("os.abort"),
    )
    queue.enqueue(ADVANCE)
    work_off(redis, shifts)
    assert shifts.worked == 1
    assert FailedJobRegistry(queue=queue).get_job_ids() == [foreign.id]
    assert not was_called(trap)


def test_dependent_of_a_foreign_job_never_runs(redis: Redis, queue: Queue, shifts: Shifts) -> None:
    """A job that depends on a foreign job is not enqueued (D15)."""
    queue.enqueue("os.getcwd", job_id="foreign")
    dependent = queue.enqueue("os.getcwd", depends_on="foreign")
    work_off(redis, shifts)
    assert Job.fetch(dependent.id, connection=redis, serializer=JSONSerializer).return_value() is None
    assert redis.llen(queue.key) == 0


def test_pickled_and_malformed_jobs_are_failed_and_the_worker_lives(redis: Redis, queue: Queue, shifts: Shifts) -> None:
    """A pickled job, one without data and one with a broken date are parked, and the job after them runs (C10)."""
    Queue(queue.name, connection=redis).enqueue("os.getcwd", job_id="pickled")
    queue.enqueue(ADVANCE, job_id="no-data")
    redis.hdel("rq:job:no-data", "data")
    queue.enqueue(ADVANCE, job_id="no-date")
    redis.hset("rq:job:no-date", "created_at", b"yesterday")
    queue.enqueue(ADVANCE)
    work_off(redis, shifts)
    assert shifts.worked == 1
    assert set(FailedJobRegistry(queue=queue).get_job_ids()) == {"pickled", "no-data", "no-date"}


def test_requeued_jobs_run_again_and_leave_nothing_behind(redis: Redis, queue: Queue, shifts: Shifts) -> None:
    """Each requeued job runs once more and leaves no other job behind (C9)."""
    jobs = [queue.enqueue(ADVANCE) for _ in range(5)]
    work_off(redis, shifts)
    for job in jobs:
        queue.enqueue_job(Job.fetch(job.id, connection=redis, serializer=JSONSerializer))
    work_off(redis, shifts)
    assert shifts.worked == 10
    assert redis.llen(queue.key) == 0

"""The one place that enqueues ``advance``."""

import json
import re

from fakeredis import FakeRedis
from rq.job import Job
from rq.serializers import JSONSerializer

from callkeeper.calls.store.job_queue import ADVANCE, RESULT_TTL_S, Waker, calls_queue
from callkeeper.calls.store.keys import FAILURE_TTL_S, QUEUE_NAME


def test_waker_enqueues_a_job_that_carries_nothing() -> None:
    """The job contains only the function's name, so a lost or doubled job costs only time."""
    redis = FakeRedis()
    Waker(redis).enqueue("a push")
    [job_id] = calls_queue(redis).job_ids
    job = Job.fetch(job_id, redis, JSONSerializer)
    assert (job.func_name, job.args, job.kwargs, job.origin) == (ADVANCE, [], {}, QUEUE_NAME)


def test_waker_never_pickles() -> None:
    """Jobs are stored as JSON, so reading one cannot execute code."""
    redis = FakeRedis()
    Waker(redis).enqueue("a push")
    [job_id] = calls_queue(redis).job_ids
    assert json.loads(Job.fetch(job_id, redis, JSONSerializer).data) == [ADVANCE, None, [], {}]


def test_waker_sets_every_limit_itself() -> None:
    """Results stay ten minutes, failures an hour; RQ's alarm is off: it would fire into the event loop."""
    redis = FakeRedis()
    Waker(redis).enqueue("a push")
    [job] = calls_queue(redis).jobs
    assert job.description == "a push: waiting for a worker"
    assert (job.result_ttl, job.failure_ttl, job.timeout) == (RESULT_TTL_S, FAILURE_TTL_S, -1)


def test_waker_ids_are_legal_and_different() -> None:
    """A job id holds letters, digits, dashes; two wake-ups are two jobs."""
    redis = FakeRedis()
    Waker(redis).enqueue("a push")
    Waker(redis).enqueue("a push")
    job_ids = calls_queue(redis).job_ids
    assert len(set(job_ids)) == 2
    assert all(re.fullmatch(r"advance-[0-9a-f]{32}", job_id) for job_id in job_ids)

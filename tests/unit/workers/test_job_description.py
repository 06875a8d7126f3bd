"""The description of a job."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis
from rq.job import Job

from workers import job_description
from workers.job_description import describe, progress
from workers.job_summary import JobSummary


def test_ended_job_says_what_it_did() -> None:
    """After what it was enqueued for, whatever was written while it ran."""
    redis = FakeRedis()
    job = SimpleNamespace(
        connection=redis, key="rq:job:1", description="CallEnd v-1 of cu-1, running: 1 call; v-1: green"
    )
    describe(cast("Job", job), "3 calls")
    assert job.description == "CallEnd v-1 of cu-1: 3 calls"
    assert redis.hget("rq:job:1", "description") == b"CallEnd v-1 of cu-1: 3 calls"


async def test_job_without_a_key_is_not_described(fake_redis: FakeAsyncRedis) -> None:
    """A shift outside RQ."""
    async with progress(fake_redis, JobSummary(), None):
        pass
    assert await fake_redis.keys() == []


@pytest.fixture
def soon() -> Callable[[FakeAsyncRedis, JobSummary], Any]:
    """Return what waits for a second's progress."""

    async def wait(redis: FakeAsyncRedis, summary: JobSummary) -> None:
        async with progress(redis, summary, "rq:job:1"):
            await asyncio.sleep(job_description.PROGRESS_EVERY_S * 1.2)

    return wait


async def test_running_job_says_what_it_has_done(fake_redis: FakeAsyncRedis, soon: Any) -> None:
    """Once a second."""
    await fake_redis.hset("rq:job:1", "description", "CallStart v-1 of cu-1: waiting for a worker")
    summary = JobSummary()
    summary.add("calls")
    await soon(fake_redis, summary)
    await soon(fake_redis, summary)
    assert await fake_redis.hget("rq:job:1", "description") == b"CallStart v-1 of cu-1, running: 1 call"


async def test_deleted_job_is_not_made_again(fake_redis: FakeAsyncRedis, soon: Any) -> None:
    """Its hash would never expire."""
    await soon(fake_redis, JobSummary())
    assert await fake_redis.keys() == []

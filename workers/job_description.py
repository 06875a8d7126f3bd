"""The description of an RQ job, which the dashboard shows: the progress while it runs, and the result at its end.

It begins with what the job was enqueued for, up to a colon: a push, a person's word, a queue. That part stays.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from rq.job import Job

from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from workers.job_summary import JobSummary

PROGRESS_EVERY_S: Final = 1.0

RUNNING: Final = ", running"


@asynccontextmanager
async def progress(redis: Redis, summary: JobSummary, job_key: str | None) -> AsyncIterator[None]:
    """Write the summary so far into a job's description, once a second while the block runs."""
    if job_key is None:
        yield
        return
    writing = asyncio.ensure_future(_write_progress(in_bytes(redis), summary, job_key))
    try:
        yield
    finally:
        await end({writing})


async def _write_progress(redis: RedisInBytes, summary: JobSummary, job_key: str) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        with suppress(RedisError):
            # If somebody deleted the job meanwhile, writing would create a hash that never expires.
            if (described := await redis.hget(job_key, "description")) is not None:
                name = _name_in(described.decode()).removesuffix(RUNNING)
                await redis.hset(job_key, "description", f"{name}{RUNNING}: {summary.description()}")


def describe(job: Job, sentence: str) -> None:
    """Write a sentence into the description of a job that has ended, after what it was enqueued for."""
    job.description = f"{_name_in(job.description or '').removesuffix(RUNNING)}: {sentence}"
    job.connection.hset(job.key, "description", job.description)


def _name_in(description: str) -> str:
    return description.partition(": ")[0]

"""The description of an RQ job, which the dashboard shows: the progress while it runs, and the result at its end."""

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
    name = f"reconcile {summary.about}" if summary.about else "advance"
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        with suppress(RedisError):
            # If somebody deleted the job meanwhile, writing would create a hash that never expires.
            if await redis.exists(job_key):
                await redis.hset(job_key, "description", f"{name}, running: {summary.sentence()}")


def describe(job: Job, sentence: str) -> None:
    """Write a sentence into the description of a job that has ended, after its function and its institution."""
    name = " ".join([str(job.func_name).rpartition(".")[2], *map(str, job.args)])
    job.description = f"{name}: {sentence}"
    job.connection.hset(job.key, "description", job.description)

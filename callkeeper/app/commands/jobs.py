"""``callkeeper jobs``: the RQ jobs of our queue. The RQ dashboard shows them too, but changes none.

Due calls are stored in keys of our own, so no call is lost with a job, and a job that runs twice repeats no effect.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final, TypeVar

import click
import msgspec
from rq import Queue
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.job import JobStatus
from rq.results import Result

from callkeeper.app.redis_query import query_jobs, record_command
from callkeeper.app.terminal import CommandGroup, Failed, Misused, WholeNumber, safe, say, say_json, say_table
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.job_queue import calls_queue
from callkeeper.desk.readable_jobs import UNREADABLE, ReadableJob, readable_job

T = TypeVar("T")

_NONE_FAILED: Final = "No job has failed."


class JobRow(msgspec.Struct, frozen=True):
    """A job in the list. ``since``: when its state began, in UTC; None if RQ did not record it."""

    id: str
    state: str
    since: datetime | None
    description: str | None


@click.group(cls=CommandGroup)
def jobs() -> None:
    """List the RQ jobs of our queue, enqueue failed ones again, delete jobs."""


@jobs.command(name="list")
@click.option("--limit", type=WholeNumber(1), default=50, show_default=True, help="Jobs of each state at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_jobs(limit: int, *, as_json: bool) -> None:
    """List the queued, started, finished and failed jobs."""
    rows = _with_queue(lambda queue: list(_rows(queue, limit)))
    if as_json:
        say_json(*rows)
        return
    cells = ((row.id, row.state, row.since, row.description) for row in rows)
    say_table(("id", "state", "since (UTC)", "description"), cells, width_if_piped=160, whole=("id",))


@jobs.command()
@click.argument("job_id", required=False)
@click.option("--all-failed", is_flag=True, help="All jobs that have failed.")
def requeue(job_id: str | None, *, all_failed: bool) -> None:
    """Enqueue failed jobs again: one by JOB_ID, or all. The next worker that is free runs them.

    A job that is not one of ours is left alone: delete it.
    """
    _refuse_both_or_none(job_id, all_failed=all_failed)
    if job_id is not None:
        _with_queue(lambda queue: _requeue(queue, [_failed_job(queue, job_id)], job_id))
        say(f"{job_id}: enqueued again")
        return
    count, unreadable = _with_queue(_requeue_all)
    if count or not unreadable:
        say(f"{quantity(count, 'failed job')}: enqueued again" if count else _NONE_FAILED)
    if unreadable:
        say(f"{quantity(unreadable, 'failed job')}: {UNREADABLE}", err=True)


@jobs.command()
@click.argument("job_id", required=False)
@click.option("--all-failed", is_flag=True, help="All jobs that have failed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(job_id: str | None, *, all_failed: bool, yes: bool) -> None:
    """Delete jobs: one by JOB_ID that no worker runs now, or all that have failed."""
    _refuse_both_or_none(job_id, all_failed=all_failed)
    wanted = _with_queue(_failed_ids) if job_id is None else [_with_queue(lambda queue: _idle_job(queue, job_id)).id]
    if not wanted:
        say(_NONE_FAILED)
        return
    what = job_id or quantity(len(wanted), "failed job")
    if not yes:
        click.confirm(safe(f"Delete {what}?"), abort=True)
    _note("delete", what)
    _with_queue(lambda queue: _delete(queue, wanted))
    say(f"{what}: deleted")


def _refuse_both_or_none(job_id: str | None, *, all_failed: bool) -> None:
    if (job_id is None) is not all_failed:
        raise Misused("give one JOB_ID, or --all-failed")


def _note(verb: str, what: str) -> None:
    """Record a change before it is made: without an entry nothing is changed."""
    record_command(AuditEvent.JOB_CHANGED, detail=f"{verb} {what}")


def _with_queue(question: Callable[[Queue], T]) -> T:
    return query_jobs(lambda redis, keys: question(calls_queue(redis, keys.queue_name)))


def _rows(queue: Queue, limit: int) -> Iterator[JobRow]:
    """Yield the jobs of each state: queued ones in their order, the others as RQ sorts them, newest first."""
    yield from _rows_of(queue, "queued", queue.get_job_ids(0, limit), "enqueued_at")
    for state, registry, field in (
        ("started", queue.started_job_registry, "started_at"),
        ("finished", queue.finished_job_registry, "ended_at"),
        ("failed", queue.failed_job_registry, "ended_at"),
    ):
        yield from _rows_of(queue, state, registry.get_job_ids(0, limit - 1, desc=True, cleanup=False), field)


def _rows_of(queue: Queue, state: str, job_ids: list[str], field: str) -> Iterator[JobRow]:
    for job_id in job_ids:
        with suppress(NoSuchJobError):
            job = readable_job(queue.connection, queue.name, job_id)
            yield JobRow(job.id, state, getattr(job, field), job.description)


def _job(queue: Queue, job_id: str) -> ReadableJob:
    """Read a job, as JSON: a foreign one is never unpickled.

    Raises:
        Failed: There is none, or it is another queue's.
    """
    try:
        return readable_job(queue.connection, queue.name, job_id)
    except NoSuchJobError:
        raise Failed(f"there is no job {job_id} in the queue {queue.name}") from None


def _failed_ids(queue: Queue) -> list[str]:
    job_ids: list[str] = queue.failed_job_registry.get_job_ids(cleanup=False)
    return job_ids


def _failed_job(queue: Queue, job_id: str) -> ReadableJob:
    """Read a job that can be enqueued again."""
    job = _job(queue, job_id)
    if not job.is_readable:
        raise Failed(f"{job_id}: {UNREADABLE}")
    if job.id not in _failed_ids(queue):
        raise Failed(f"{job_id} has not failed")
    return job


def _idle_job(queue: Queue, job_id: str) -> ReadableJob:
    """Read a job that can be deleted."""
    job = _job(queue, job_id)
    if job in queue.started_job_registry:
        raise Failed(f"{job_id}: a worker runs it now; it ends by itself")
    return job


def _requeue_all(queue: Queue) -> tuple[int, int]:
    """Enqueue every failed job again that can be read; return how many there are, and how many cannot be read."""
    found = []
    for job_id in _failed_ids(queue):
        with suppress(NoSuchJobError):
            found.append(readable_job(queue.connection, queue.name, job_id))
    readable = [job for job in found if job.is_readable]
    if readable:
        _requeue(queue, readable, quantity(len(readable), "failed job"))
    return len(readable), len(found) - len(readable)


def _requeue(queue: Queue, wanted: list[ReadableJob], what: str) -> None:
    _note("requeue", what)
    for job in wanted:
        with suppress(InvalidJobOperation):  # somebody else has enqueued or deleted it meanwhile
            queue.failed_job_registry.requeue(job)


def _delete(queue: Queue, job_ids: list[str]) -> None:
    """Delete jobs, also those that RQ cannot read. Ids of other queues' jobs are only removed from our lists.

    RQ's own ``delete`` fails at a state or group that it does not know, and at a run that is gone already.
    """
    for job_id in job_ids:
        with suppress(NoSuchJobError):
            job = readable_job(queue.connection, queue.name, job_id)
            job.group_id = None
            job.set_status(JobStatus.FAILED)
            queue.connection.delete(job.execution_registry.key)
            Result.delete_all(job)
            job.delete()
        queue.failed_job_registry.remove(job_id)
        queue.finished_job_registry.remove(job_id)

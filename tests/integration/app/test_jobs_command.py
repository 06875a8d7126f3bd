"""``callkeeper jobs``: RQ jobs listed, enqueued again and deleted at the command line, over a real Redis."""

import json
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis import Redis
from rq import Queue, SimpleWorker
from rq.registry import FailedJobRegistry
from rq.serializers import JSONSerializer

from callkeeper.app.cli import main
from callkeeper.calls.store.job_queue import calls_queue
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.readable_jobs import UNREADABLE
from tests.integration.stock_worker import TAKEN, failed_job, take, work


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """Return a connection as RQ needs it."""
    TAKEN.clear()
    with Redis.from_url(redis_url) as redis:
        yield redis


@pytest.fixture
def queue(redis: Redis) -> Queue:
    """Return the queue of the web process and the workers."""
    return calls_queue(redis)


def command(queue: Queue, *arguments: str, typed: str | None = None) -> Result:
    """Run a subcommand of ``callkeeper jobs``."""
    place = queue.connection.connection_pool.connection_kwargs
    url = f"unix://{place['path']}" if "path" in place else f"redis://{place['host']}:{place['port']}/{place['db']}"
    return CliRunner(env={"REDIS_URL": url}).invoke(main, ["jobs", *arguments], input=typed)


def failed_ids(queue: Queue) -> list[str]:
    """Return the ids in the list of failed jobs."""
    return FailedJobRegistry(queue=queue).get_job_ids(cleanup=False)


def audited(queue: Queue) -> list[tuple[str, str]]:
    """Return who did what to the jobs, oldest first."""
    entries: Any = queue.connection.xrange(Keys().audit)
    assert {fields[b"event"] for _, fields in entries} <= {b"job_changed"}
    return [(fields[b"who"].decode(), fields[b"detail"].decode()) for _, fields in entries]


def test_list_shows_jobs_of_each_state(queue: Queue) -> None:
    """A line for each job with its state, since when, and what it did; nothing is changed or audited."""
    done = queue.enqueue(take, "x", description="advance: 37 calls")
    bad = failed_job(queue)
    waiting = queue.enqueue(take, "y", description="reconcile cu-1")
    rows = [json.loads(line) for line in command(queue, "list", "--json").output.splitlines()]
    assert [(row["id"], row["state"], row["description"]) for row in rows] == [
        (waiting.id, "queued", "reconcile cu-1"),
        (done.id, "finished", "advance: 37 calls"),
        (bad, "failed", "advance: 3 calls, 1 check"),
    ]
    assert all(re.match(r"\d{4}-\d\d-\d\dT.*(Z|\+00:00)$", row["since"]) for row in rows)
    told = command(queue, "list").output
    assert re.search(rf"{bad} +failed +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d +advance: 3 calls, 1 check", told), told
    assert audited(queue) == []


def test_list_shows_a_job_that_runs(queue: Queue) -> None:
    """A job that a worker runs is listed once, as started."""
    job = queue.enqueue(take, "x")
    queue.connection.lrem(queue.key, 1, job.id)
    worker = SimpleWorker([queue], connection=queue.connection, serializer=JSONSerializer)
    worker.prepare_execution(job)
    worker.prepare_job_execution(job)
    [row] = [json.loads(line) for line in command(queue, "list", "--json").output.splitlines()]
    assert (row["id"], row["state"]) == (job.id, "started")


def test_list_shows_only_so_many_of_each_state(queue: Queue) -> None:
    """``--limit`` counts by state. Failed jobs are listed newest first."""
    failed = [failed_job(queue, text) for text in ("1", "2", "3")]
    for at, job_id in enumerate(failed):
        queue.connection.zadd(queue.failed_job_registry.key, {job_id: 4e9 + at})
    waiting = [queue.enqueue(take, "x").id for _ in range(3)]
    rows = [json.loads(line)["id"] for line in command(queue, "list", "--limit", "2", "--json").output.splitlines()]
    assert rows == [*waiting[:2], *failed[:0:-1]]


def test_list_makes_descriptions_safe(queue: Queue) -> None:
    """A description cannot command the terminal, and cannot forge a line."""
    queue.enqueue(take, "x", description="red\x1b[31m\nok")
    assert "\x1b" not in command(queue, "list").output
    assert r"red\x1b[31m\nok" in command(queue, "list").output


def test_requeue_runs_a_failed_job_again(queue: Queue) -> None:
    """The job is in the queue again, as JSON that a worker runs, and the audit log says who did it."""
    job_id = failed_job(queue)
    queue.connection.hset(f"rq:job:{job_id}", "meta", json.dumps({"calls": 3}))
    told = command(queue, "requeue", job_id)
    assert (told.exit_code, told.output) == (0, f"{job_id}: enqueued again\n")
    assert (queue.job_ids, failed_ids(queue)) == ([job_id], [])
    assert json.loads(queue.connection.hget(f"rq:job:{job_id}", "meta") or b"") == {"calls": 3}
    work(queue)
    assert TAKEN == ["boom", "boom"]
    assert audited(queue) == [("command", f"requeue {job_id}")]


def test_requeue_returns_a_job_that_has_lost_its_origin_to_our_queue(queue: Queue) -> None:
    """RQ would put it into a queue without a name."""
    job_id = failed_job(queue)
    queue.connection.hdel(f"rq:job:{job_id}", "origin")
    assert command(queue, "requeue", job_id).exit_code == 0
    assert queue.job_ids == [job_id]


def test_requeue_takes_all_failed_jobs(queue: Queue) -> None:
    """All failed jobs run again, and there is one audit entry; without failed jobs there is none."""
    assert command(queue, "requeue", "--all-failed").output == "No job has failed.\n"
    assert audited(queue) == []
    failed = {failed_job(queue, "1"), failed_job(queue, "2")}
    assert command(queue, "requeue", "--all-failed").output == "2 failed jobs: enqueued again\n"
    assert set(queue.job_ids) == failed
    assert audited(queue) == [("command", "requeue 2 failed jobs")]


def test_requeue_leaves_jobs_alone_that_are_not_ours(queue: Queue) -> None:
    """A job that cannot be read is not enqueued again, alone or with the others; the command says what to do."""
    good, bad = failed_job(queue, "good"), failed_job(queue, "bad")
    queue.connection.hset(f"rq:job:{bad}", "created_at", "yesterday")
    told = command(queue, "requeue", bad)
    assert (told.exit_code, told.output) == (1, f"Error: {bad}: {UNREADABLE}\n")
    told = command(queue, "requeue", "--all-failed")
    assert told.output == f"1 failed job: enqueued again\n1 failed job: {UNREADABLE}\n"
    assert (queue.job_ids, failed_ids(queue)) == ([good], [bad])
    told = command(queue, "requeue", "--all-failed")
    assert told.output == f"1 failed job: {UNREADABLE}\n"


@pytest.mark.parametrize("verb", ["requeue", "delete"])
def test_commands_refuse_jobs_that_are_not_there(verb: str, queue: Queue) -> None:
    """Another queue's job, one that is gone and an id that RQ would not give do not exist: exit 1, nothing is audited."""
    theirs = Queue("other", connection=queue.connection).enqueue("a.b")
    for job_id in (theirs.id, "gone", "<odd>"):
        told = command(queue, verb, job_id)
        assert (told.exit_code, told.output) == (1, f"Error: there is no job {job_id} in the queue calls:2\n")
    assert theirs.get_status() == "queued"
    assert audited(queue) == []


def test_requeue_refuses_a_job_that_has_not_failed(queue: Queue) -> None:
    """A job that waits is not enqueued a second time."""
    waiting = queue.enqueue(take, "x")
    told = command(queue, "requeue", waiting.id)
    assert (told.exit_code, told.output) == (1, f"Error: {waiting.id} has not failed\n")
    assert queue.job_ids == [waiting.id]
    assert audited(queue) == []


@pytest.mark.parametrize("verb", ["requeue", "delete"])
@pytest.mark.parametrize("arguments", [(), ("some-job", "--all-failed")], ids=["none", "both"])
def test_commands_want_one_job_or_all(verb: str, arguments: tuple[str, ...], queue: Queue) -> None:
    """Without a job, or with both, the command line is wrong: exit 2, and nothing is done."""
    job_id = failed_job(queue)
    told = command(queue, verb, *arguments)
    assert (told.exit_code, "give one JOB_ID, or --all-failed" in told.output) == (2, True)
    assert failed_ids(queue) == [job_id]


@pytest.mark.parametrize("typed", ["n\n", ""], ids=["no", "no answer"])
def test_delete_asks_first(typed: str, queue: Queue) -> None:
    """Without ``--yes`` the command asks; without a yes nothing is deleted or audited, and it exits with 1."""
    job_id = failed_job(queue)
    for arguments, what in (((job_id,), job_id), (("--all-failed",), "1 failed job")):
        told = command(queue, "delete", *arguments, typed=typed)
        assert (told.exit_code, f"Delete {what}?" in told.output) == (1, True)
    assert failed_ids(queue) == [job_id]
    assert audited(queue) == []


@pytest.mark.parametrize("state", ["failed", "finished", "queued"])
def test_delete_removes_a_job_from_every_list(state: str, queue: Queue) -> None:
    """Nothing of the job stays in Redis, and the audit log says who deleted it."""
    if state == "failed":
        job_id = failed_job(queue)
    else:
        job_id = queue.enqueue(take, "x").id
        if state == "finished":
            work(queue)
    told = command(queue, "delete", job_id, typed="y\n")
    assert (told.exit_code, told.output.endswith(f"{job_id}: deleted\n")) == (0, True)
    assert [key for key in queue.connection.keys("*") if job_id.encode() in key] == []
    assert command(queue, "list", "--json").output == ""
    assert [queue.job_ids, failed_ids(queue), queue.finished_job_registry.get_job_ids(cleanup=False)] == [[], [], []]
    assert audited(queue) == [("command", f"delete {job_id}")]


def test_delete_takes_all_failed_jobs(queue: Queue) -> None:
    """All failed jobs go and the others stay. An id of another queue's job leaves the list, and that job stays."""
    assert command(queue, "delete", "--all-failed").output == "No job has failed.\n"
    failed_job(queue, "1")
    failed_job(queue, "2")
    waiting = queue.enqueue(take, "x")
    theirs = Queue("other", connection=queue.connection).enqueue("a.b", description="theirs")
    queue.connection.zadd(queue.failed_job_registry.key, {theirs.id: 4e9, "<odd>": 4e9})
    told = command(queue, "delete", "--all-failed", "--yes")
    assert (told.exit_code, told.output) == (0, "4 failed jobs: deleted\n")
    assert (failed_ids(queue), queue.job_ids) == ([], [waiting.id])
    assert queue.connection.hget(theirs.key, "description") == b"theirs"
    assert audited(queue) == [("command", "delete 4 failed jobs")]


@pytest.mark.parametrize("lost", ["run", "group", "status", "origin"])
def test_delete_takes_a_job_that_has_lost_a_part(lost: str, queue: Queue) -> None:
    """A killed worker or another program may have removed a part of a job: the rest goes."""
    job_id = failed_job(queue)
    key = f"rq:job:{job_id}"
    if lost == "run":
        queue.connection.zadd(f"rq:executions:{job_id}", {"run-1": 4e9})
    elif lost == "group":
        queue.connection.hset(key, "group_id", "gone")
    else:
        queue.connection.hdel(key, lost)
    assert command(queue, "delete", job_id, "--yes").exit_code == 0
    assert [key for key in queue.connection.keys("*") if job_id.encode() in key] == []
    assert failed_ids(queue) == []


def test_delete_refuses_a_job_that_runs(queue: Queue) -> None:
    """A worker would write parts of it again, so the command says that it ends by itself."""
    job = queue.enqueue(take, "x")
    SimpleWorker([queue], connection=queue.connection, serializer=JSONSerializer).prepare_execution(job)
    told = command(queue, "delete", job.id, "--yes")
    assert (told.exit_code, told.output) == (1, f"Error: {job.id}: a worker runs it now; it ends by itself\n")
    assert queue.connection.exists(job.key)
    assert audited(queue) == []


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "w")


@pytest.mark.parametrize("field", ["data", "meta", "result", "status", "timeout", "group_id"])
def test_a_foreign_job_is_never_unpickled_and_can_be_deleted(
    field: str, queue: Queue, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """C10: listing, requeueing or deleting a job never executes data from Redis, and none of them fails."""
    trap = tmp_path_factory.mktemp("trap") / "sprung"
    good, bad = failed_job(queue, "good"), failed_job(queue, "bad")
    queue.connection.hset(f"rq:job:{bad}", field, pickle.dumps(Planted(str(trap))))
    assert {json.loads(line)["id"] for line in command(queue, "list", "--json").output.splitlines()} == {good, bad}
    command(queue, "requeue", bad)
    told = command(queue, "delete", bad, "--yes")
    assert told.exit_code == 0, told.output
    assert not trap.exists()
    assert not queue.connection.exists(f"rq:job:{bad}")
    assert (failed_ids(queue), queue.job_ids) == ([good], [])


def test_jobs_of_an_own_prefix_are_in_an_own_queue(queue: Queue, redis_url: str) -> None:
    """If several installations share a Redis, the command has access to the jobs of its own."""
    failed_job(queue)
    told = CliRunner(env={"REDIS_URL": redis_url, "CALLKEEPER_REDIS_PREFIX": "other"}).invoke(main, ["jobs", "list"])
    assert (told.exit_code, "failed" in told.output) == (0, False), told.output

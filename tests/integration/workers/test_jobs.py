"""The RQ worker runs our jobs and refuses all others."""

import json
import re
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from rq import Callback, Queue, Repeat
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.suspension import suspend
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.metrics.cpu_share import CpuShare
from callkeeper.calls.metrics.snapshot import read_present
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.store.job_queue import ADVANCE, BUG_TTL_S, RECONCILE, calls_queue
from callkeeper.calls.store.keys import FAILURE_TTL_S, QUEUE_NAME, Keys
from callkeeper.service import Secret, ServiceConfig
from tests.http_servers import serving
from tests.sandbox_fixtures import KEY, ServedSandbox
from tests.workers_built import worker_runtime
from workers import runtime
from workers.claimed_call import Tools
from workers.job_summary import JobSummary
from workers.jobs import MAX_JOB, CallJob, job_class
from workers.rq_worker import CallWorker
from workers.runtime import WorkerRuntime


def did(**counts: int) -> JobSummary:
    """Return what a shift did."""
    tally = JobSummary()
    for name, n in counts.items():
        tally.add(name, n)
    return tally


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """Return a client as RQ needs it."""
    with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def ran() -> list[tuple[str, ...]]:
    """Return the arguments of every job function that ran."""
    return []


@pytest.fixture
def work(redis: Redis, ran: list[tuple[str, ...]]) -> Callable[[], None]:
    """Return a worker's burst: it takes what is in the queue and comes back."""

    def run(_job_key: str, *args: str) -> JobSummary:
        ran.append(args)
        return did(calls=37, checks=35, enrolled=1)

    def burst() -> None:
        employed = job_class({ADVANCE: run, RECONCILE: run})
        worker = CallWorker(redis, job_class=employed, on_stop=lambda: None, leave=lambda _: None)
        worker.work(burst=True, logging_level="ERROR")

    return burst


def stock(redis: Redis) -> Queue:
    """Return RQ's own queue, with JSON jobs."""
    return Queue(QUEUE_NAME, connection=redis, serializer=JSONSerializer)


def fetch(redis: Redis, job_id: str) -> Job:
    """Return a job as RQ itself reads it."""
    return Job.fetch(job_id, redis, JSONSerializer)


def test_job_of_a_stock_queue_is_run_and_says_what_it_did(
    redis: Redis, work: Callable[[], None], ran: list[tuple[str, ...]]
) -> None:
    """An ``advance`` put by RQ's own queue is run; its description gets the sentence that the dashboard shows."""
    job = stock(redis).enqueue(ADVANCE, description="whatever")
    work()
    done = fetch(redis, job.id)
    assert ran == [()]
    assert done.description == "whatever: 37 calls, 35 checks, 1 enroll"
    assert done.is_finished
    assert done.return_value() == {"attention": 0, "calls": 37, "checks": 35, "enrolled": 1}


def test_suspension_by_rq_stops_no_worker(redis: Redis, work: Callable[[], None], ran: list[tuple[str, ...]]) -> None:
    """``rq suspend`` is about every queue of a Redis, also another application's: only our own pause holds calls."""
    suspend(redis)
    stock(redis).enqueue(ADVANCE)
    work()
    assert ran == [()]


def test_job_with_an_institution_is_run(redis: Redis, work: Callable[[], None], ran: list[tuple[str, ...]]) -> None:
    """A ``reconcile`` names its institution."""
    stock(redis).enqueue(RECONCILE, "cu-1")
    work()
    assert ran == [("cu-1",)]


def tallying(redis: Redis, *tallies: JobSummary) -> None:
    """Run what is in the queue with a function that returns one tally after the other."""
    answers = iter(tallies)
    employed = job_class({ADVANCE: lambda _job_key: next(answers)})
    CallWorker(redis, job_class=employed, on_stop=lambda: None, leave=lambda _: None).work(
        burst=True, logging_level="CRITICAL"
    )


async def test_job_of_an_outage_fails_once_and_says_so(redis: Redis, redis_url: str) -> None:
    """In an outage one job fails with a sentence that says so; it is kept for an hour and not counted as a bug."""
    since = datetime(2026, 11, 2, 3, 12, tzinfo=UTC)
    report, other = (stock(redis).enqueue(ADVANCE).id for _ in range(2))
    tallying(redis, JobSummary(unreachable_since=since, is_outage_report=True), JobSummary(unreachable_since=since))
    failed, finished = fetch(redis, report), fetch(redis, other)
    sentence = "nothing was due; service unreachable since 03:12 UTC"
    assert failed.is_failed
    assert failed.latest_result() is not None
    assert failed.latest_result().exc_string == f"ServiceUnreachable: {sentence}"  # type: ignore[union-attr]
    assert finished.is_finished
    assert failed.description == finished.description == f"workers.jobs.advance(): {sentence}"
    assert kept_for_s(redis, report) <= FAILURE_TTL_S
    async with AsyncRedis.from_url(redis_url) as client:
        assert (await read_present(client)).jobs_failed == 0


async def test_job_of_a_killed_worker_is_no_bug(redis: Redis, redis_url: str) -> None:
    """The job of a killed worker says so, expires after an hour, and is not counted as failed."""
    employed = job_class({ADVANCE: lambda _job_key: JobSummary()})
    worker = CallWorker(redis, job_class=employed, on_stop=lambda: None, leave=lambda _: None)
    job = employed.fetch(stock(redis).enqueue(ADVANCE).id, redis, JSONSerializer)
    execution = worker.prepare_execution(job)
    redis.lrem("rq:queue:calls:2", 0, job.id)
    redis.zadd("rq:wip:calls:2", {execution.composite_key: 1})
    worker.clean_registries()  # type: ignore[no-untyped-call]
    assert fetch(redis, job.id).is_failed
    assert fetch(redis, job.id).description == (
        "workers.jobs.advance(): its worker ended before the job was finished; other workers took over its calls"
    )
    assert 0 < kept_for_s(redis, job.id) <= FAILURE_TTL_S
    async with AsyncRedis.from_url(redis_url) as client:
        assert (await read_present(client)).jobs_failed == 0


async def test_job_that_failed_by_a_bug_is_counted_for_a_week(redis: Redis, redis_url: str) -> None:
    """A bug's job is kept for seven days and counted as failed; so is a foreign one."""
    stock(redis).enqueue(ADVANCE)
    foreign = stock(redis).enqueue("os.getcwd")
    tallying(redis)  # the function raises StopIteration
    assert kept_for_s(redis, foreign.id) > BUG_TTL_S - 60
    async with AsyncRedis.from_url(redis_url) as client:
        assert (await read_present(client)).jobs_failed == 2


def kept_for_s(redis: Redis, job_id: str) -> float:
    """Return for how long a failed job will be listed."""
    until_s = redis.zscore("rq:failed:calls:2", job_id)
    assert isinstance(until_s, float)
    return until_s - time.time()


def pickled(redis: Redis) -> str:
    """Put a job as a stock RQ does: pickled."""
    return Queue(QUEUE_NAME, connection=redis).enqueue("os.getcwd").id


def raw(**fields: bytes) -> Callable[[Redis], str]:
    """Put a job hash of our own making."""

    def put(redis: Redis) -> str:
        redis.hset("rq:job:odd", mapping=fields)  # type: ignore[arg-type]
        redis.rpush("rq:queue:calls:2", "odd")
        redis.sadd("rq:queues", "rq:queue:calls:2")
        return "odd"

    return put


def unfolding(redis: Redis) -> str:
    """Put a job of 62 KB that would decompress to 64 MB."""
    return raw(data=zlib.compress(b" " * 64_000_000 + OURS), status=b"queued")(redis)


OURS = json.dumps([ADVANCE, None, [], {}]).encode()
FOREIGN: dict[str, Callable[[Redis], str]] = {
    "a foreign function": lambda redis: stock(redis).enqueue("os.getcwd").id,
    "a function of ours that is no job": lambda redis: stock(redis).enqueue("workers.jobs.job_class", {}).id,
    "a job with keywords": lambda redis: stock(redis).enqueue(ADVANCE, colour="red").id,
    "a job with other arguments": lambda redis: stock(redis).enqueue(RECONCILE, {"a": 1}).id,
    "a pickled job": pickled,
    "no data": raw(status=b"queued"),
    "nonsense for data": raw(data=b"\xff\xfe\x00", status=b"queued"),
    "an unknown status": raw(data=OURS, status=b"dancing"),
    "no dates that anybody can read": raw(data=OURS, created_at=b"yesterday", status=b"queued"),
    "numbers that are none": raw(data=OURS, timeout=b"soon", result_ttl=b"long", status=b"queued"),
    "bytes that are no text": raw(data=OURS, description=b"\xff", origin=b"\xfe", status=b"queued"),
    "a large one": raw(data=OURS, description=b"x" * 2 * MAX_JOB, status=b"queued"),
    "a small one that unfolds into a large one": unfolding,
    "an instance to call": raw(data=json.dumps(["advance", "os", [], {}]).encode(), status=b"queued"),
}


@pytest.mark.parametrize("put", FOREIGN.values(), ids=FOREIGN)
def test_job_that_is_not_ours_is_refused_and_the_worker_lives(
    redis: Redis, work: Callable[[], None], ran: list[tuple[str, ...]], put: Callable[[Redis], str]
) -> None:
    """Foreign, pickled and malformed jobs are parked as failed, nothing is called, and the next job is run (C10)."""
    put(redis)
    ours = calls_queue(redis).enqueue(ADVANCE)
    work()
    assert ran == [()]
    assert fetch(redis, ours.id).is_finished
    assert calls_queue(redis).count == 0


def test_job_that_is_refused_says_why_without_its_content(redis: Redis, work: Callable[[], None]) -> None:
    """The dashboard shows why a job was refused, but nothing of its content."""
    job = stock(redis).enqueue("os.system", "a secret command")
    work()
    failed = fetch(redis, job.id)
    assert failed.is_failed
    assert failed.latest_result().exc_string is not None  # type: ignore[union-attr]
    assert "not one of our jobs" in failed.latest_result().exc_string  # type: ignore[union-attr,operator]


@pytest.fixture
def posted() -> Iterator[tuple[str, list[httpx.Request]]]:
    """Return the address of a listener, and what was posted to it."""
    requests: list[httpx.Request] = []

    def listen(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(204)

    with serving(listen) as port:
        yield f"http://127.0.0.1:{port}/", requests


@pytest.mark.parametrize("function", [ADVANCE, "os.getcwd"], ids=["ours", "foreign"])
def test_job_makes_rq_call_post_and_enqueue_nothing(
    redis: Redis,
    work: Callable[[], None],
    ran: list[tuple[str, ...]],
    posted: tuple[str, list[httpx.Request]],
    function: str,
) -> None:
    """Webhooks, callbacks, repeats and dependencies of a job are ignored, ours or not (D15)."""
    url, requests = posted
    queue = stock(redis)
    job = queue.enqueue(
        function,
        on_success=Callback("workers.nowhere.success"),
        on_failure=Callback("workers.nowhere.failure"),
        repeat=Repeat(times=3, interval=1),
    )
    hooks = [{"url": url, "job_status": status, "method": "POST"} for status in ("finished", "failed")]
    redis.hset(job.key, mapping={"webhooks": json.dumps(hooks), "dependency_ids": json.dumps(["nowhere"])})
    work()
    assert requests == []
    assert len(ran) == (1 if function == ADVANCE else 0)
    assert queue.count == queue.scheduled_job_registry.count == 0


def test_job_never_runs_under_an_alarm(redis: Redis, work: Callable[[], None], ran: list[tuple[str, ...]]) -> None:
    """A job's own timeout is ignored, because RQ's alarm would interrupt the shift's event loop."""
    job = stock(redis).enqueue(ADVANCE, job_timeout=1)
    employed = job_class({})
    assert issubclass(employed, CallJob)
    assert employed.fetch(job.id, redis, JSONSerializer).timeout == -1


def crew_of(redis_url: str, sandbox_server: ServedSandbox, log: FilteringBoundLogger) -> WorkerRuntime:
    """Return what a worker process works with, in front of a sandbox."""
    credentials = sandbox_server.credentials
    config = ServiceConfig(
        base_url=sandbox_server.url,
        access_token=Secret(credentials.access_token),
        email=Secret(credentials.email),
        password=Secret(credentials.password),
    )
    return worker_runtime(redis_url, config, log)


def test_running_job_says_how_far_it_is(
    redis: Redis, redis_url: str, sandbox_server: ServedSandbox, log: FilteringBoundLogger
) -> None:
    """While a shift runs, its job's description shows every second what was done."""
    runtime = crew_of(redis_url, sandbox_server, log)
    job = stock(redis).enqueue(ADVANCE)
    seen: list[str | None] = []

    def watch() -> None:
        end_s = time.monotonic() + 8
        while time.monotonic() < end_s and not any(text and "queue listed" in text for text in seen):
            time.sleep(0.1)
            seen.append(fetch(redis, job.id).description)
        runtime.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    runtime.advance(job.key)
    watcher.join()
    runtime.close()
    assert re.fullmatch(r"workers.jobs.advance\(\), running: \d+ queues? listed", seen[-1] or "")


def test_calls_are_moved_with_the_worker_s_own_share_of_a_core(
    redis_url: str, sandbox_server: ServedSandbox, log: FilteringBoundLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker measures how busy it is, so that a busy one makes fewer reads."""
    worker, seen = crew_of(redis_url, sandbox_server, log), list[Any]()

    def spied(*parts: Any, **named: Any) -> Tools:
        seen.append(named["cpu_share"])
        return Tools(*parts, **named)

    monkeypatch.setattr(runtime, "Tools", spied)
    worker.stop()
    worker.advance()
    worker.close()
    assert [type(share) for share in seen] == [CpuShare]


def test_outage_is_reported_by_one_job_in_ten_minutes(
    redis: Redis, redis_url: str, sandbox_server: ServedSandbox, log: FilteringBoundLogger
) -> None:
    """Of the shifts in an outage the first asks its job to fail; the others only say since when."""
    runtime, keys = crew_of(redis_url, sandbox_server, log), Keys()
    now_ms = int(time.time() * 1000)
    redis.hset(keys.breakers, "", f"9 {now_ms} {now_ms + 60_000} failure")
    stock(redis).enqueue(ADVANCE)  # a job that waits ends an idle shift at once
    tallies = [runtime.advance() for _ in range(2)]
    runtime.close()
    assert [tally.is_outage_report for tally in tallies] == [True, False]
    assert all(tally.unreachable_since is not None for tally in tallies)
    assert 590 <= int(str(redis.ttl(keys.outage_reported))) <= 600


def test_job_during_a_pause_says_so(
    redis: Redis, redis_url: str, sandbox_server: ServedSandbox, log: FilteringBoundLogger
) -> None:
    """A shift knows the pauses in force from its claims."""
    runtime = crew_of(redis_url, sandbox_server, log)
    pause = Pause(scope=PauseScope.ALL, operator="ann", because="a migration", at=datetime.now(UTC))
    redis.hset(Keys().pause, KEY, msgspec.json.encode(pause))
    stock(redis).enqueue(ADVANCE)  # a job that waits ends an idle shift at once
    tally = runtime.advance()
    runtime.close()
    assert f"paused: {KEY} (all)" in tally.sentence()


def test_requeue_of_everything_repeats_no_effect(
    redis: Redis, redis_url: str, sandbox_server: ServedSandbox, log: FilteringBoundLogger
) -> None:
    """Requeue all, finished and failed jobs alike: shifts run that find nothing new to do (C9).

    The first run's description and result name the call and what happened to it.
    """
    runtime = crew_of(redis_url, sandbox_server, log)
    employed = job_class({ADVANCE: runtime.advance, RECONCILE: runtime.reconcile})
    call = sandbox_server.call()
    queue = stock(redis)
    first = queue.enqueue(RECONCILE, KEY)
    refused = queue.enqueue("os.getcwd")
    told: list[str] = []
    for _ in range(3):
        worker = CallWorker(redis, job_class=employed, on_stop=runtime.stop, leave=lambda _: None)
        worker.work(burst=True, logging_level="ERROR")
        assert fetch(redis, first.id).is_finished
        assert "1 call in the queue" in (fetch(redis, first.id).description or "")
        done = fetch(redis, first.id)
        told.append(f"{done.description} {done.return_value()}")
        for registry in (queue.finished_job_registry, queue.failed_job_registry):
            for job_id in registry.get_job_ids():
                registry.remove(job_id)
                queue.push_job_id(job_id)
        assert {first.id, refused.id} == set(queue.job_ids)
    runtime.close()
    assert sandbox_server.tally(call["voice_id"])["arrived"]["assign"] == 1
    assert f"; {call['voice_id']}: assigned, " in told[0]
    assert f"'latest': {{'{call['voice_id']}': 'assigned, " in told[0]


def test_job_that_unfolds_is_never_unfolded(redis: Redis, work: Callable[[], None]) -> None:
    """A small job that would decompress to 64 MB is refused before that."""
    unfolding(redis)
    tracemalloc.start()
    try:
        work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16_000_000

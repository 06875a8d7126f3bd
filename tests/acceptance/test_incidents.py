"""Each incident with real processes: the board, the doctor, metrics, alerts and /readyz show its cause until it ends.

``TEST_NIGHT=1`` runs all of them.
"""

import os
import time
from collections.abc import Iterator

import pytest

from callkeeper.calls.store.keys import FAILURE_TTL_S
from tests.acceptance.incidents import FREQUENT, INCIDENTS, Case, Watchers, assert_told
from tests.acceptance.troubles import redis_full, workers_dead
from tests.harness.processes import Stack, end, stack
from tests.waiting import until

TRIED = INCIDENTS if os.environ.get("TEST_NIGHT") else FREQUENT


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack with two workers and no calls. Every incident leaves it without a fault."""
    with stack(tmp_path_factory.mktemp("incidents"), workers=2) as running:
        running.control("POST", "/push/sample", {"institution_key": "cu-1"})
        yield running


@pytest.mark.timeout(360)  # some troubles are noticed, or over, after two minutes
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name.replace(" ", "-"))
def test_incident_is_shown_everywhere(watched: Stack, case: Case) -> None:
    """Everything shows the incident's cause alone, and its end, within 15 seconds."""
    assert_told(case, watched)


@pytest.mark.night
def test_worker_that_starts_while_redis_is_full_says_why_once(watched: Stack) -> None:
    """A worker that cannot start because Redis is full logs the reason once, and starts when there is room."""
    with redis_full(watched):
        worker = watched.start("worker", waits=False)
        worker.wait_for(lambda line: line if "worker_restarts" in line else None)
        time.sleep(3)  # half a dozen further attempts
        assert worker.log.read_text().count("worker_restarts") == 1
    worker.wait_for(lambda line: line if "worker_started" in line else None)
    worker.stop()


@pytest.mark.night
def test_job_of_a_killed_worker_looks_like_no_bug(watched: Stack) -> None:
    """The failed job of a killed worker says what happened, and is kept for too short a time to count as a bug."""
    redis, watchers = watched.redis, Watchers(watched)
    watched.call(end(60))
    until(lambda: redis.zrange("rq:wip:calls:2", 0, -1), 15, "a job under way")
    with workers_dead(watched):
        [execution, *_] = redis.zrange("rq:wip:calls:2", 0, -1)
        redis.zadd("rq:wip:calls:2", {execution: 1})  # as after a minute without a heartbeat
    job_id = execution.decode().partition(":")[0]
    kept_until_s = until(lambda: redis.zscore("rq:failed:calls:2", job_id), 20, "the next worker to look after it")
    assert kept_until_s - time.time() <= FAILURE_TTL_S, "a failed job that is kept longer counts as a bug"
    page = watchers.http.get("/rq/0/data/jobs/calls:2/failed/8/dsc/1.json").text
    assert "its worker ended before the job was finished; other workers took over its calls" in page
    watchers.http.close()

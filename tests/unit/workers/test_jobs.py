"""What RQ is told of a job of ours that failed."""

import traceback

import pytest
from fakeredis import FakeRedis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError
from rq.serializers import JSONSerializer

from callkeeper.calls.store.job_queue import ADVANCE
from callkeeper.calls.store.keys import FAILURE_TTL_S
from workers.job_summary import JobSummary
from workers.jobs import REFUSED_PAUSE_S, JobFailed, RedisAway, RedisRefused, job_class


def stumble(_job_key: str) -> JobSummary:
    """Fail over what a caller has said."""
    said = "canary-ssn-078-05-1120"
    try:
        int(said)
    except ValueError as error:
        raise LookupError(f"no such member: {said}") from error
    return JobSummary()


def test_failed_job_tells_types_and_places_only() -> None:
    """RQ writes the whole traceback of a failure into Redis, for days: it holds no message and no source of a message."""
    employed = job_class({ADVANCE: stumble})
    job = employed.create(ADVANCE, connection=FakeRedis(), serializer=JSONSerializer)
    with pytest.raises(JobFailed) as failed:
        job.perform()
    written = "".join(traceback.format_exception(failed.value))
    assert "canary" not in written
    assert "LookupError < workers/test_jobs.py" in written
    assert "ValueError < workers/test_jobs.py" in written


def cut_off(_job_key: str) -> JobSummary:
    """Lose Redis."""
    raise RedisConnectionError("Error 111 connecting to canary:6379")


def test_job_that_lost_redis_is_no_bug() -> None:
    """It says so in a sentence, without Redis's own words, and is kept for an hour and not for a week."""
    employed = job_class({ADVANCE: cut_off})
    job = employed.create(ADVANCE, connection=FakeRedis(), serializer=JSONSerializer)
    with pytest.raises(RedisAway, match=r"Redis did not answer \(connection broken\); due work stays due") as failed:
        job.perform()
    assert job.failure_ttl == FAILURE_TTL_S
    assert "canary" not in "".join(traceback.format_exception(failed.value))


def lack_a_right(_job_key: str) -> JobSummary:
    """Run a command that the Redis user may not run."""
    raise NoPermissionError("this user has no permissions to run the 'canary' command")


def test_job_whose_command_redis_refuses_pauses_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job would be refused too: without a pause, dozens fail every second. The job says what is wrong."""
    slept: list[float] = []
    monkeypatch.setattr("workers.jobs.time.sleep", slept.append)
    job = job_class({ADVANCE: lack_a_right}).create(ADVANCE, connection=FakeRedis(), serializer=JSONSerializer)
    with pytest.raises(RedisRefused, match=r"refused a write \(our user may not run a command\)") as failed:
        job.perform()
    assert slept == [REFUSED_PAUSE_S]
    assert "canary" not in "".join(traceback.format_exception(failed.value))

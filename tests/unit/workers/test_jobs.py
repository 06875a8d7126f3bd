"""What RQ is told of a job of ours that failed."""

import traceback

import pytest
from fakeredis import FakeRedis
from rq.serializers import JSONSerializer

from calls.store.job_queue import ADVANCE
from workers.jobs import JobFailed, job_class
from workers.measurements import JobSummary


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

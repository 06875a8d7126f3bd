"""What the main job leaves behind: jobs that an operator can read."""

import re

from rq import Queue
from rq.job import Job
from rq.registry import FinishedJobRegistry
from rq.serializers import JSONSerializer

from tests.acceptance.stack import Stack, end, until


def test_traces_are_readable_in_the_rq_dashboard(running: Stack) -> None:
    """The jobs of a call's life are finished jobs of a stock RQ queue, and say at /rq what they did."""
    call = running.call(end(3))
    running.settled(call)
    queue = Queue("calls", connection=running.redis, serializer=JSONSerializer())

    def told() -> list[str]:
        ids = FinishedJobRegistry(queue=queue).get_job_ids()
        jobs = Job.fetch_many(ids, connection=running.redis, serializer=JSONSerializer())
        descriptions = [job.description or "" for job in jobs if job]
        return [text for text in descriptions if re.search(r"\d+ calls?, ", text)]

    descriptions = until(told, 40, "a job that tells of calls")
    assert all(description.startswith("advance: ") for description in descriptions)
    user, _, password = running.demo.admin.partition(":")
    page = running.http.get(f"{running.demo.web_url}/rq/", auth=(user, password), follow_redirects=True)
    assert page.status_code == 200
    assert running.http.get(f"{running.demo.web_url}/rq/").status_code == 401

"""The jobs and metrics that the main job leaves for operators."""

import re

from prometheus_client.parser import text_string_to_metric_families
from rq import Queue
from rq.job import Job
from rq.registry import FinishedJobRegistry
from rq.serializers import JSONSerializer

from tests.harness.processes import Stack, end
from tests.waiting import until


def test_traces_are_readable_in_the_rq_dashboard(running: Stack) -> None:
    """The jobs that handled a call are finished jobs of a standard RQ queue, and describe what they did."""
    call = running.call(end(3))
    running.settled(call)
    queue = Queue("calls:2", connection=running.redis, serializer=JSONSerializer())

    def told() -> list[str]:
        ids = FinishedJobRegistry(queue=queue).get_job_ids()
        jobs = Job.fetch_many(ids, connection=running.redis, serializer=JSONSerializer())
        descriptions = [job.description or "" for job in jobs if job]
        return [text for text in descriptions if re.search(r"\d+ calls?, ", text)]

    descriptions = until(told, 40, "a job whose description counts calls")
    assert any(f"{call['voice_id']}: " in description for description in descriptions)
    user, _, password = running.demo.admin.partition(":")
    page = running.http.get(f"{running.demo.web_url}/rq/", auth=(user, password), follow_redirects=True)
    assert page.status_code == 200
    assert running.http.get(f"{running.demo.web_url}/rq/").status_code == 401


def test_traces_are_counted(running: Stack) -> None:
    """/metrics needs a login and has the metrics of all processes."""
    call = running.call(end(2))
    running.settled(call)
    user, _, password = running.demo.admin.partition(":")

    def metrics() -> dict[tuple[str, str], float]:
        page = running.http.get(f"{running.demo.web_url}/metrics", auth=(user, password))
        samples = (sample for family in text_string_to_metric_families(page.text) for sample in family.samples)
        return {(sample.name, " ".join(sample.labels.values())): sample.value for sample in samples}

    def counted() -> bool:
        now = metrics()
        settled = sum(value for (name, _), value in now.items() if name == "callkeeper_calls_settled_total")
        pushed = now["callkeeper_pushes_total", "CallStart"]
        return settled >= 1 and pushed >= 1 and now["callkeeper_service_requests_total", "queue answered"] >= 1

    until(counted, 20, "the call to be counted")
    assert metrics()["callkeeper_processes", "worker"] == 2
    assert metrics()["callkeeper_processes", "web"] == 1
    assert running.http.get(f"{running.demo.web_url}/metrics").status_code == 401

"""A stock RQ worker that runs the jobs of a test in this process, and jobs that succeed and fail."""

from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer
from rq.timeouts import TimerDeathPenalty

TAKEN: list[str] = []
"""What the jobs of a test did."""


def take(text: str) -> None:
    """Succeed."""
    TAKEN.append(text)


def fail(text: str) -> None:
    """Fail like a shift with a bug."""
    TAKEN.append(text)
    raise ZeroDivisionError(text)


class BriefWorker(SimpleWorker):
    """A stock worker that hears no commands: its listener takes up to a second to leave."""

    def subscribe(self) -> None:
        """Hear nothing."""


def work(queue: Queue) -> None:
    """Run every waiting job in this process."""
    worker = BriefWorker([queue], connection=queue.connection, serializer=JSONSerializer)
    worker.death_penalty_class = TimerDeathPenalty
    worker.work(burst=True, logging_level="CRITICAL")


def failed_job(queue: Queue, text: str = "boom") -> str:
    """Let a job fail and return its id."""
    job = queue.enqueue(fail, text, description="advance: 3 calls, 1 check")
    work(queue)
    return job.id

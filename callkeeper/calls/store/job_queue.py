"""The only place that enqueues jobs, and the settings of the RQ queue.

Due work is stored in our own keys, so a lost, doubled or late job costs time but loses nothing.
"""

from typing import Final
from uuid import uuid4

from redis import Redis
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer

from callkeeper.calls.store.keys import FAILURE_TTL_S, KEYS, QUEUE_NAME, Keys

ADVANCE: Final = "workers.jobs.advance"
"""The name of the job that handles due calls. Senders need not import the workers, who know its function."""

RECONCILE: Final = "workers.jobs.reconcile"
"""The name of the job that lists one institution's queue."""

RESULT_TTL_S: Final = 600
"""How long a finished job can be read, in seconds."""

BUG_TTL_S: Final = 7 * 24 * 3600
"""How long a job can be read that failed because of a bug, or that is not one of ours."""

NO_DEADLINE: Final = -1
"""No RQ timeout: its alarm would interrupt the shift's event loop. Our deadlines are asyncio timeouts."""


def calls_queue(connection: Redis, name: str = QUEUE_NAME, *, job_class: type[Job] | None = None) -> Queue:
    """Build the queue as all senders and workers must use it: its name, JSON jobs, no timeout.

    ``connection`` returns bytes, as RQ requires. ``job_class`` is also that of jobs whose worker was killed.
    """
    return Queue(
        name, connection=connection, serializer=JSONSerializer, default_timeout=NO_DEADLINE, job_class=job_class
    )


class Waker:
    """Enqueues jobs over one blocking connection. Call it from a thread."""

    def __init__(self, connection: Redis, *, keys: Keys = KEYS) -> None:
        self._queue = calls_queue(connection, keys.queue_name)

    def enqueue(self, trigger: str) -> None:
        """Enqueue one ``advance`` job, after a script has asked for it.

        ``trigger`` begins its description. What the job has done follows.

        Raises:
            redis.exceptions.RedisError: Redis is down or refuses writes; delete the wake marker again.
        """
        self._enqueue(ADVANCE, f"{trigger}: waiting for a worker")

    def reconcile(self, institution_key: str) -> str:
        """Enqueue a job that lists the queue of one institution; return the job's id."""
        return self._enqueue(RECONCILE, f"list the queue of {institution_key}: waiting for a worker", institution_key)

    def _enqueue(self, function: str, description: str, *args: str) -> str:
        job = self._queue.enqueue_call(
            function,
            args,
            job_id=f"{function.rpartition('.')[2]}-{uuid4().hex}",
            description=description,
            result_ttl=RESULT_TTL_S,
            failure_ttl=FAILURE_TTL_S,
        )
        return str(job.id)

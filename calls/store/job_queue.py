"""The one place that enqueues jobs, and the settings of the queue they go to.

What is due is stored in our own keys, so a lost, doubled or late job costs only time.
"""

from typing import Final
from uuid import uuid4

from redis import Redis
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer

from calls.store.keys import QUEUE_NAME, Keys

ADVANCE: Final = "workers.jobs.advance"
"""The job function that moves on every call that is due, by name: senders need not import what it needs."""

RECONCILE: Final = "workers.jobs.reconcile"
"""The job function that lists one institution's queue."""

RESULT_TTL_S: Final = 600
"""How long a finished job stays readable."""

FAILURE_TTL_S: Final = 3600
"""How long a job stays readable that failed without a bug: its worker was killed, or the service was unreachable."""

BUG_TTL_S: Final = 7 * 24 * 3600
"""How long a job stays readable that failed by a bug, or that is not one of ours."""

NO_DEADLINE: Final = -1
"""RQ's alarm would fire into the event loop of the shift; the deadlines are asyncio's."""


def calls_queue(connection: "Redis", name: str = QUEUE_NAME, *, job_class: type[Job] | None = None) -> Queue:
    """Build the queue that every sender and every worker must share: its name, JSON jobs, no alarm.

    Args:
        connection: Answers in bytes (``decode_responses`` off), as RQ needs it.
        name: Of the queue; `calls.store.keys.Keys.queue_name` where several installations share a Redis.
        job_class: As which its jobs are read, also those whose worker was killed.
    """
    return Queue(
        name, connection=connection, serializer=JSONSerializer, default_timeout=NO_DEADLINE, job_class=job_class
    )


class Waker:
    """Enqueues jobs over one blocking connection; call it from a thread."""

    def __init__(self, connection: "Redis", *, keys: Keys | None = None) -> None:
        self._queue = calls_queue(connection, (Keys() if keys is None else keys).queue_name)

    def enqueue(self, trigger: str) -> None:
        """Enqueue one ``advance`` job, after a script has asked for it.

        Args:
            trigger: Why, for the job's description, which the shift replaces with what it did.

        Raises:
            redis.exceptions.RedisError: Redis is away or refuses to write; give the wake marker back.
        """
        self._enqueue(ADVANCE, f"advance: triggered by {trigger}")

    def reconcile(self, institution_key: str) -> str:
        """Enqueue a job that lists the queue of one institution; return the job's id.

        Raises:
            redis.exceptions.RedisError: Redis is away or refuses to write.
        """
        return self._enqueue(RECONCILE, f"reconcile {institution_key}: list its queue", institution_key)

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

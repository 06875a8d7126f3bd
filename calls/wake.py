"""Wakes a worker: the one place that enqueues the ``advance`` job, and the settings of the queue it goes to.

The job carries nothing: what is due stands in our own keys, so a lost, doubled or late job costs only time.
"""

from typing import Final
from uuid import uuid4

from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from calls.keys import QUEUE_NAME, Keys

ADVANCE: Final = "workers.jobs.advance"
"""The job function, by name: whoever enqueues it need not import what it needs."""

ADVANCE_DESCRIPTION: Final = "advance: move on every call that is due"
"""What the job list shows until the shift replaces it with what it did."""

RESULT_TTL_S: Final = 600
"""How long a finished job stays readable."""

FAILURE_TTL_S: Final = 7 * 24 * 3600
"""How long a failed job waits for somebody to read it."""

NO_DEADLINE: Final = -1
"""RQ's alarm would fire into the event loop of the shift; the deadlines are asyncio's."""


def calls_queue(connection: "Redis", name: str = QUEUE_NAME) -> Queue:
    """Build the queue that every sender and every worker must share: its name, JSON jobs, no alarm.

    Args:
        connection: Answers in bytes (``decode_responses`` off), as RQ needs it.
        name: Of the queue; `calls.keys.Keys.queue_name` where several installations share a Redis.
    """
    return Queue(name, connection=connection, serializer=JSONSerializer, default_timeout=NO_DEADLINE)


class Waker:
    """Enqueues ``advance`` over one blocking connection; call it from a thread."""

    def __init__(self, connection: "Redis", *, keys: Keys | None = None) -> None:
        self._queue = calls_queue(connection, (Keys() if keys is None else keys).queue_name)

    def enqueue(self) -> None:
        """Enqueue one ``advance`` job, for whoever has won the wake marker.

        Raises:
            redis.exceptions.RedisError: Redis is away or refuses to write; give the wake marker back.
        """
        self._queue.enqueue(
            ADVANCE,
            job_id=f"advance-{uuid4().hex}",
            description=ADVANCE_DESCRIPTION,
            result_ttl=RESULT_TTL_S,
            failure_ttl=FAILURE_TTL_S,
        )

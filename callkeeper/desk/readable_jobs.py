"""RQ's records as a dashboard must read them: as JSON, and never failing because of one bad job.

RQ unpickles by default. A job in Redis may be foreign or broken: unpickling could run foreign code, and an exception would
hide all other jobs.
"""

import zlib
from base64 import b64decode
from contextlib import suppress
from typing import Any, Final

from redis import Redis
from rq import Queue, Worker
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.job import Job
from rq.registry import (
    CanceledJobRegistry,
    DeferredJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    StartedJobRegistry,
)
from rq.results import Result
from rq.serializers import JSONSerializer
from rq.utils import decode_redis_hash, now
from rq.worker import BaseWorker

_REGISTRIES = (
    CanceledJobRegistry,
    DeferredJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    StartedJobRegistry,
)

MAX_SHOWN: Final = 1024 * 1024
"""Maximum size of a decompressed field, in bytes."""

UNREADABLE = "unreadable job: not written by this software; delete it"


class ReadableJob(Job):
    """A job that is read as JSON; one that cannot be read says so in its description and can be deleted only."""

    is_readable = True

    def __init__(self, id: str | None = None, connection: "Redis | None" = None, serializer: Any = None) -> None:  # noqa: A002  (RQ's own name)
        super().__init__(id, connection, JSONSerializer)

    @classmethod
    def fetch(cls, id: str, connection: "Redis | None" = None, serializer: Any = None) -> Job:  # noqa: A002  (RQ's own name)
        """Read a job.

        Raises:
            NoSuchJobError: There is none, or its id is not one that RQ gives.
        """
        try:
            return super().fetch(id, connection, serializer)
        except ValueError as error:
            raise NoSuchJobError from error

    def restore(self, raw_data: Any) -> None:
        """Take the fields from a job's hash, or mark the job as unreadable."""
        try:
            _hold_to_size(raw_data)
            super().restore(raw_data)
        except Exception:  # noqa: BLE001  (whatever a foreign hash can break)
            self.is_readable = False
            self.origin = str(decode_redis_hash(raw_data).get("origin", b""), "utf-8", "replace")
            self.created_at = now()
            self.description = UNREADABLE

    def get_call_string(self) -> str | None:
        """Return the call as text, or the description if it cannot be read."""
        try:
            return super().get_call_string()
        except Exception:  # noqa: BLE001  (foreign data)
            return UNREADABLE

    def latest_result(self, timeout: int = 0) -> Result | None:
        """Return the latest result, or None if it cannot be read."""
        try:
            newest: Any = self.connection.xrevrange(f"rq:results:{self.id}", count=1)
            for _, fields in newest:
                _hold_to_size({b"exc_info": b64decode(fields.get(b"exc_string", b""))})
            return super().latest_result(timeout)
        except Exception:  # noqa: BLE001  (foreign data)
            return None

    def get_meta(self, refresh: bool = True) -> dict[str, Any]:
        """Return the job's metadata, or none if it cannot be read."""
        try:
            return super().get_meta(refresh)
        except Exception:  # noqa: BLE001  (foreign data)
            return {}

    def delete(self, *_args: Any, **_options: Any) -> None:
        """Delete the job, and remove it from every list.

        RQ's own way reads the job's state and executions first, and fails if a worker removes them meanwhile.
        """
        queue = ReadableQueue(self.origin, connection=self.connection)
        executions: Any = self.connection.zrange(f"rq:executions:{self.id}", 0, -1)
        runs = [f"{self.id}:{execution.decode()}" for execution in executions]
        with self.connection.pipeline() as pipeline:
            queue.remove(self.id, pipeline=pipeline)
            for registry in _REGISTRIES:
                pipeline.zrem(registry(queue=queue).key, self.id, *runs)
            of_runs = (f"rq:execution:{run}" for run in runs)
            pipeline.delete(self.key, self.dependents_key, self.dependencies_key, *of_runs)
            pipeline.delete(f"rq:executions:{self.id}", f"rq:results:{self.id}")
            pipeline.execute()

    def requeue(self, at_front: bool = False) -> Job:
        """Enqueue a failed job again.

        Raises:
            InvalidJobOperation: It cannot be read, or has not failed.
        """
        if not self.is_readable:
            raise InvalidJobOperation(UNREADABLE)
        return super().requeue(at_front)


def _hold_to_size(raw_data: Any) -> None:
    """Refuse a compressed field that becomes too large.

    Raises:
        ValueError: It is larger than the maximum.
    """
    fields = decode_redis_hash(raw_data)
    for field in ("data", "exc_info"):
        unfolding = zlib.decompressobj()
        with suppress(zlib.error):
            unfolding.decompress(fields.get(field, b""), MAX_SHOWN)
        if unfolding.unconsumed_tail:
            raise ValueError(field)


class ReadableQueue(Queue):
    """A queue of readable jobs."""

    job_class = ReadableJob


def readable_workers(connection: "Redis", queue_name: str) -> list[BaseWorker]:
    """Return the workers that are registered for a queue and can be read; their current jobs are readable ones."""
    keys: Any = connection.smembers(f"rq:workers:{queue_name}")
    workers = []
    for key in sorted(keys):
        with suppress(ValueError, UnicodeDecodeError):
            workers.append(
                Worker.find_by_key(
                    key.decode(),
                    connection,
                    job_class=ReadableJob,
                    queue_class=ReadableQueue,
                    serializer=JSONSerializer,
                )
            )
    return [worker for worker in workers if worker is not None]

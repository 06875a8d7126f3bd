"""RQ's records as people may read them: as JSON, and never failing because of one bad job.

RQ unpickles by default. A job in Redis may be foreign or broken: unpickling could run foreign code, and an exception would
hide all other jobs.
"""

import zlib
from base64 import b64decode
from contextlib import suppress
from typing import Any, Final, Self, cast

from redis import Redis
from rq import Queue, Worker
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.results import Result
from rq.serializers import JSONSerializer
from rq.utils import decode_redis_hash, now
from rq.worker import BaseWorker

MAX_SHOWN: Final = 1024 * 1024
"""Maximum size of a decompressed field, in bytes."""

UNREADABLE = "unreadable job: not written by this software; delete it with `callkeeper jobs delete`"


class ReadableJob(Job):
    """A job that is read as JSON; one that cannot be read says so in its description. It must not be requeued."""

    is_readable = True

    def __init__(self, id: str | None = None, connection: Redis | None = None, serializer: Any = None) -> None:  # noqa: A002  (RQ's own name)
        super().__init__(id, connection, JSONSerializer)

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> Self:  # noqa: A002  (RQ's own name)
        """Read a job.

        Raises:
            NoSuchJobError: There is none, or its id is not one that RQ gives.
        """
        try:
            return cast("Self", super().fetch(id, connection, serializer))
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


def _hold_to_size(raw_data: Any) -> None:
    """Refuse a compressed field that becomes too large."""
    fields = decode_redis_hash(raw_data)
    for field in ("data", "exc_info"):
        unfolding = zlib.decompressobj()
        with suppress(zlib.error):
            unfolding.decompress(fields.get(field, b""), MAX_SHOWN)
        if unfolding.unconsumed_tail:
            raise ValueError(field)


def readable_job(connection: Redis, queue_name: str, job_id: str) -> ReadableJob:
    """Read a job of a queue. One that has lost its origin counts as the queue's.

    Raises:
        NoSuchJobError: There is none, or it is another queue's.
    """
    job = ReadableJob.fetch(job_id, connection)
    if job.origin not in {"", queue_name}:
        raise NoSuchJobError
    job.origin = queue_name
    return job


class ReadableQueue(Queue):
    """A queue of readable jobs."""

    job_class = ReadableJob


def readable_workers(connection: Redis, queue_name: str) -> list[BaseWorker]:
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

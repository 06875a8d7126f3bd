"""The RQ jobs: a job class that accepts only our own functions.

RQ's own job class imports and calls any function that a job names, posts to its webhooks and runs its callbacks. A
bank's worker must not take such orders from Redis, so a foreign or malformed job fails and nothing of it is called. RQ
also stores the whole traceback of a failed job, including messages. Our jobs fail with error types and code places
only.
"""

import time
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from redis.exceptions import RedisError, ResponseError
from rq.exceptions import AbandonedJobError
from rq.job import Job

from callkeeper.calls.store.job_queue import BUG_TTL_S, NO_DEADLINE
from callkeeper.calls.store.keys import FAILURE_TTL_S, QUEUE_NAME
from callkeeper.calls.store.writable import redis_words
from callkeeper.calls.traceback_filter import filtered_traceback
from workers.job_description import describe
from workers.job_summary import JobSummary
from workers.shift import StepsFailed

MAX_JOB: Final = 64 * 1024
"""Limit in bytes for a job's hash, and for its fields after decompression. A failed job of ours has a few thousand."""

REFUSED_PAUSE_S: Final = 1.0
"""How long a worker waits after Redis refused a command of a job, in seconds."""


class JobRefused(Exception):
    """A job in the queue is not one of ours. The message gives the reason, never the job's content."""


class JobFailed(Exception):
    """A job of ours failed. The message gives error types and code places, never call data."""


class ServiceUnreachable(Exception):
    """The service did not answer while the job ran. One job in ten minutes fails with this error."""


class RedisAway(Exception):
    """Redis did not answer while the job ran. Due work stays due. This is not a bug."""


class RedisRefused(Exception):
    """Redis refused a write while the job ran. Due work stays due. This is not a bug."""


class CallJob(Job):
    """A job that can run only our own functions.

    ``job_class`` sets ``functions`` and ``queue_name`` on a subclass for the worker process. A function gets the Redis
    key of its job, for its description, and the job's arguments.
    """

    functions: ClassVar[Mapping[str, Callable[..., JobSummary]]] = {}
    queue_name: ClassVar[str] = QUEUE_NAME

    reason = ""
    """Why the job failed: one line, or the places in our code. It is stored as the job's failure."""

    def restore(self, raw_data: Any) -> Any:
        """Read a job from its hash. An unreadable job becomes one that is refused, so that the worker keeps running."""
        try:
            _hold_to_size(raw_data)
            super().restore(raw_data)
        except Exception:  # noqa: BLE001  (whatever is wrong with it, the job is refused)
            self._restore_refused()
        self._forget_foreign_parts()

    def perform(self) -> Any:
        """Run the job's function, and write the summary into the job's description.

        Raises:
            ServiceUnreachable: The service did not answer; the message is the job's summary.
            JobFailed: A bug.
            JobRefused: The job is not one of ours.
            StepsFailed: Steps of calls failed because of bugs.
            RedisAway: Redis did not answer.
            RedisRefused: Redis refused a write.
        """
        self.failure_ttl = BUG_TTL_S
        try:
            return self._perform_or_explain()
        except Exception as error:
            self.reason = f"{type(error).__name__}: {error}"
            raise

    def _perform_or_explain(self) -> Any:
        try:
            return self._perform()
        except ResponseError as error:
            failure: Exception = RedisRefused(f"Redis refused a write ({redis_words(error)}); due work stays due")
            # The work stays due, so the next job follows at once. A user without one right failed 27 jobs a second.
            time.sleep(REFUSED_PAUSE_S)
        except RedisError as error:
            failure = RedisAway(f"Redis did not answer ({redis_words(error)}); due work stays due")
        self.failure_ttl = FAILURE_TTL_S
        raise failure

    def _perform(self) -> Any:
        function = self._function()
        self.connection.persist(self.key)
        summary = _run(function, self.key, *self.args)
        describe(self, summary.description())
        if summary.is_outage_report:
            self.failure_ttl = FAILURE_TTL_S
            raise ServiceUnreachable(summary.sentence())
        self._result = summary.as_dict()
        return self._result

    def execute_failure_callback(self, death_penalty_class: Any, *exc_info: Any) -> None:
        """Describe a job whose worker was killed. RQ calls this before it moves the job to the failed jobs."""
        if exc_info[0] is AbandonedJobError:
            describe(self, "its worker ended before the job was finished; other workers took over its calls")

    def _function(self) -> Callable[..., JobSummary]:
        try:
            name, args, kwargs, instance = self.func_name, self.args, self.kwargs, self.instance
        except Exception:  # noqa: BLE001  (whatever is wrong with it, the job is refused)
            raise JobRefused("its data cannot be read") from None
        function = self.functions.get(str(name))
        if function is None or instance is not None or kwargs or not all(isinstance(arg, str) for arg in args):
            raise JobRefused("it is not one of our jobs")
        return function

    def _restore_refused(self) -> None:
        self.data = b"refused"
        self.description = "a job that cannot be read"
        self.created_at = datetime.now(UTC)

    def _forget_foreign_parts(self) -> None:
        """Remove every field through which a job could make RQ call, post or enqueue something."""
        self.origin = self.queue_name
        self.timeout = NO_DEADLINE
        self.failure_ttl = FAILURE_TTL_S
        self._success_callback_name = self._failure_callback_name = self._stopped_callback_name = None
        self._dependency_ids = []
        self.webhooks = []
        self.retries_left = None
        self.repeats_left = None
        self.repeat_intervals = None
        self.enqueue_at_front = None


def _run(function: Callable[..., JobSummary], *args: str) -> JobSummary:
    try:
        return function(*args)
    except (StepsFailed, RedisError):
        raise
    except Exception as error:  # noqa: BLE001  (RQ would write the error's message into the job)
        what = "\n".join(filtered_traceback(error))
    raise JobFailed(what)


def _hold_to_size(raw_data: Mapping[bytes, bytes]) -> None:
    """Refuse a hash that is larger than any job of ours, before or after decompression.

    Raises:
        JobRefused: It is too large.
    """
    if sum(map(len, raw_data.values())) > MAX_JOB:
        raise JobRefused("it is too large")
    for field in (b"data", b"exc_info"):
        try:
            unfolding = zlib.decompressobj()
            unfolding.decompress(raw_data.get(field, b""), MAX_JOB)
        except zlib.error:
            continue
        if unfolding.unconsumed_tail:
            raise JobRefused("it is too large after decompression")


def job_class(functions: Mapping[str, Callable[..., JobSummary]], *, queue_name: str = QUEUE_NAME) -> type[CallJob]:
    """Return the job class of a worker process, with the functions it may run and the name of its queue."""
    return type("EmployedJob", (CallJob,), {"functions": dict(functions), "queue_name": queue_name})

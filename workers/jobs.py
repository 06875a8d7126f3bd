"""The job functions, by the names under which RQ knows them, and the job class that restores nothing else.

RQ's job class imports and calls whatever a job names, posts to its webhooks and calls its callbacks. Redis is not the
place from which a bank's worker takes such orders: a foreign or malformed job is parked as failed, nothing is called. And
what RQ writes of a failed job is its whole traceback, with the messages: ours fail with types and places alone.
"""

import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from rq.exceptions import AbandonedJobError
from rq.job import Job

from calls.store.job_queue import BUG_TTL_S, FAILURE_TTL_S, NO_DEADLINE
from calls.store.keys import QUEUE_NAME
from calls.traceback_filter import filtered_traceback
from workers.measurements import JobSummary
from workers.shift import StepsFailed

MAX_JOB: Final = 64 * 1024
"""Bytes of a job's hash, and of what its compressed fields unfold into; a failed job of ours has a few thousand."""


class JobRefused(Exception):
    """A job in the queue is not one of ours. The message names why, never what it holds."""


class JobFailed(Exception):
    """A job of ours failed. The message names types and places, never what it was about."""


class ServiceUnreachable(Exception):
    """The service did not answer while the job ran. One job in ten minutes fails with this error."""


class CallJob(Job):
    """A job that can only be one of ours.

    ``functions`` and ``queue_name`` are set on a subclass by ``job_class``: the worker process's own. A function takes the
    Redis key of its job, where it may write how far it is (``progress``), and the job's arguments.
    """

    functions: ClassVar[Mapping[str, Callable[..., JobSummary]]] = {}
    queue_name: ClassVar[str] = QUEUE_NAME

    reason = ""
    """Why the job failed, in one line or with the places in our code: what its failure is kept as."""

    def restore(self, raw_data: Any) -> Any:
        """Read a job from its hash; one that cannot be read becomes one that is refused, so that the worker lives on."""
        try:
            _hold_to_size(raw_data)
            super().restore(raw_data)
        except Exception:  # noqa: BLE001  (whatever is wrong with it, the answer is the same)
            self._restore_refused()
        self._forget_foreign_parts()

    def perform(self) -> Any:
        """Run the job's function, and write what it did where an operator reads it.

        Raises:
            ServiceUnreachable: The service did not answer; the message is the sentence that other jobs end with.
            JobFailed: A bug.
            JobRefused: The job is not one of ours.
            StepsFailed: Steps of calls failed by bugs.
        """
        self.failure_ttl = BUG_TTL_S
        try:
            return self._perform()
        except Exception as error:
            self.reason = f"{type(error).__name__}: {error}"
            raise

    def _perform(self) -> Any:
        function = self._function()
        self.connection.persist(self.key)
        tally = _run(function, self.key, *self.args)
        self._describe(tally.sentence())
        if tally.is_outage_report:
            self.failure_ttl = FAILURE_TTL_S
            raise ServiceUnreachable(tally.sentence())
        self._result = tally.as_dict()
        return self._result

    def execute_failure_callback(self, death_penalty_class: Any, *exc_info: Any) -> None:
        """Say what happened to a job whose worker was killed: RQ calls this before it moves the job to the failed ones."""
        if exc_info[0] is AbandonedJobError:
            self._describe("its worker ended before it was finished; other workers took its calls over")

    def _describe(self, sentence: str) -> None:
        self.description = f"{job_name(self)}: {sentence}"
        self.connection.hset(self.key, "description", self.description)

    def _function(self) -> Callable[..., JobSummary]:
        try:
            name, args, kwargs, instance = self.func_name, self.args, self.kwargs, self.instance
        except Exception:  # noqa: BLE001
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
        """Drop everything by which a job could make RQ call, post or enqueue something."""
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


def job_name(job: Job) -> str:
    """Return how a job is called in its description: its function, and the institution if it is about one."""
    return " ".join([str(job.func_name).rpartition(".")[2], *map(str, job.args)])


def _run(function: Callable[..., JobSummary], *args: str) -> JobSummary:
    try:
        return function(*args)
    except StepsFailed:
        raise
    except Exception as error:  # noqa: BLE001  (RQ would write its message into the job)
        what = "\n".join(filtered_traceback(error))
    raise JobFailed(what)


def _hold_to_size(raw_data: Mapping[bytes, bytes]) -> None:
    """Refuse a hash that is larger than any job of ours, or unfolds into something larger.

    Raises:
        JobRefused: It is.
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
            raise JobRefused("it unfolds into something too large")


def job_class(functions: Mapping[str, Callable[..., JobSummary]], *, queue_name: str = QUEUE_NAME) -> type[CallJob]:
    """Return the job class of a worker process: ours, with the functions it may run and the queue they come from."""
    return type("EmployedJob", (CallJob,), {"functions": dict(functions), "queue_name": queue_name})

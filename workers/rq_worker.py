"""The RQ worker: one queue, jobs in its own process, no SIGALRM, a clean shutdown.

``SimpleWorker`` runs a job in this process, so the event loop and its connections stay open between jobs. RQ's SIGALRM
would interrupt that loop, so the death penalty is disabled. All deadlines are asyncio timeouts.
"""

import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from importlib import metadata
from secrets import token_hex
from types import FrameType
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from rq import SimpleWorker
from rq.exceptions import StopRequested
from rq.job import Job
from rq.queue import Queue
from rq.registry import StartedJobRegistry
from rq.serializers import JSONSerializer
from rq.timeouts import BaseDeathPenalty

from callkeeper.calls.store.job_queue import RESULT_TTL_S, calls_queue
from callkeeper.calls.store.keys import QUEUE_NAME
from callkeeper.calls.store.writable import WriteRefusal, redis_words, refusal_in
from callkeeper.service.network_failure import network_failure
from workers.jobs import CallJob, RedisAway

WORKER_TTL_S = 18
"""RQ waits 15 s less than this for a job. With its default, a dead connection is noticed after 415 s."""

SILENT_S = 2
"""How much longer than its wait for a job an idle worker waits for Redis's answer, in seconds. A master that froze, or
whose writes are paused, does not answer. With RQ's own 10 s all work stood still for 15 s (*measured*)."""

MAINTENANCE_S = 60
"""How often jobs of killed workers are looked for, in seconds. RQ's default, ten minutes, is too long for the board."""

HARD_EXIT = 1

GONE_S = 9.0
"""How long after the first signal the process leaves, whatever it waits for, in seconds: some platforms kill it after ten.
The shift has ended by then (`workers.shift.LEAVE_S`). What is left are commands of RQ and goodbyes, and while Redis is
frozen these took 26 s more (*measured*). Whoever does not say goodbye counts as killed, which costs no call anything."""

_AWAY = (RedisConnectionError, RedisTimeoutError)


def is_not_about_redis(_record: logging.LogRecord) -> bool:
    """Leave out what RQ logs while Redis is away or refuses writes: an error every second, or one like that of a bug.

    `workers.job_watchdog` or `work`, which starts a new worker, logs it once.
    """
    error = sys.exc_info()[1]
    is_refusal = isinstance(error, RedisError) and refusal_in(error) is not WriteRefusal.OTHER
    return not (is_refusal or isinstance(error, (*_AWAY, RedisAway)))


class NoPenalty(BaseDeathPenalty):
    """A death penalty that does nothing."""

    def setup_death_penalty(self) -> None:
        """Set no alarm."""

    def cancel_death_penalty(self) -> None:
        """Do nothing: there is no alarm."""


class CallWorker(SimpleWorker):
    """Works on the ``calls`` queue until it is told to stop.

    On the first signal the signal handler calls ``on_stop``, and the shift claims no more. On a second signal, or after
    `GONE_S`, the process exits at once.
    """

    death_penalty_class = NoPenalty
    max_connection_wait_time = 1.0

    def __init__(
        self,
        connection: Redis,
        *,
        job_class: type[Job],
        on_stop: Callable[[], None],
        leave: Callable[[int], None],
        queue_name: str = QUEUE_NAME,
    ) -> None:
        super().__init__(
            [calls_queue(connection, queue_name, job_class=job_class)],
            name=f"{socket.gethostname().partition('.')[0]}-{token_hex(4)}",
            connection=connection,
            default_result_ttl=RESULT_TTL_S,
            maintenance_interval=MAINTENANCE_S,
            worker_ttl=WORKER_TTL_S,
            job_class=job_class,
            serializer=JSONSerializer,
            log_job_description=False,
        )
        self.log_result_lifespan = False
        self.log.addFilter(is_not_about_redis)
        self._on_stop = on_stop
        self._leave = leave
        self.has_stop_request = False
        self._is_at_work = False
        self.on_birth: Callable[[], None] = lambda: None
        """Called when the worker is registered in Redis."""

    @property
    def connection_timeout(self) -> int:
        """Return how long a command of RQ's may take, in seconds."""
        return self.dequeue_timeout + SILENT_S

    def bootstrap(self, *_: Any, **__: Any) -> None:
        """Start without RQ's own log handlers and without its command channel: only signals control this worker."""
        self.register_birth()  # type: ignore[no-untyped-call]  # RQ's
        self.set_state("started")
        self.on_birth()

    def subscribe(self) -> None:
        """Do nothing: this worker takes no commands."""

    def unsubscribe(self) -> None:
        """Do nothing: there is no subscription."""

    def check_for_suspension(self, burst: bool) -> None:
        """Do nothing: ``rq suspend`` stops the workers of every application on this Redis. A pause of ours stops calls."""

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Stop claiming, finish what is in flight, and exit."""
        self.has_stop_request = True
        self._on_stop()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.request_force_stop)
        signal.signal(signal.SIGALRM, lambda *_: self._leave(0))
        signal.setitimer(signal.ITIMER_REAL, GONE_S)
        self._shutdown()

    def request_force_stop(self, signum: int, frame: FrameType | None) -> None:
        """Exit at once."""
        self._leave(HARD_EXIT)

    def _shutdown(self) -> None:
        """Stop after the running job, or now if there is none.

        RQ would read its own state from Redis here, inside the signal handler, on a connection that may be mid-answer.
        """
        self._stop_requested = True
        if not self._is_at_work:
            raise StopRequested

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Run a job in this process, and remember that one is running."""
        self._is_at_work = True
        try:
            super().execute_job(job, queue)
        finally:
            self._is_at_work = False

    def handle_job_failure(
        self,
        job: Job,
        queue: Queue,
        started_job_registry: StartedJobRegistry | None = None,
        exc_string: str = "",
    ) -> None:
        """Store the reason of a failed job instead of a traceback that begins with RQ's own code."""
        reason = job.reason if isinstance(job, CallJob) and job.reason else exc_string
        super().handle_job_failure(job, queue, started_job_registry, exc_string=reason)

    def set_shutdown_requested_date(self) -> None:
        """Do nothing: a signal handler must not write to Redis."""


def work(make_worker: Callable[[], CallWorker], log: Any, *, pause_s: float = 0.5) -> None:
    """Run one worker after another until one got a stop request.

    RQ's loop ends when Redis is away. A new worker with a new name then takes over. That Redis is away is not logged
    here: the watchdog, which asks more often, does.
    """
    worker: CallWorker | None = None
    error = logged = because = ""

    def born() -> None:
        nonlocal logged
        logged = ""
        name = worker.name if worker else None
        log.info("worker_started", worker=name, release=metadata.version("callkeeper"))

    while worker is None or not worker.has_stop_request:
        try:
            if error:
                if error not in (logged, "away"):  # once, not twice a second while Redis is full
                    name = worker.name if worker else None
                    log.warning("worker_restarts", worker=name, error=error, because=because)
                logged = error
                time.sleep(pause_s)
            worker = make_worker()  # asks Redis for its version
            worker.on_birth = born
            worker.work()
            error, because = "ended", "the loop of RQ ended"
        except StopRequested:
            pass
        except _AWAY:
            error = "away"
        except RedisError as problem:
            error, because = type(problem).__name__, redis_words(problem)
        except OSError as problem:
            error, because = type(problem).__name__, network_failure(problem)
    log.info("worker_stopped", worker=worker.name)

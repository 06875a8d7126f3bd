"""The watchdog: enqueues a job for work that no shift has taken, and ends the process when a shift is stuck.

A thread with its own connection in every worker process. It holds no lock and no state in Redis: any number may run, and
what one misses the next one sees 200 ms later.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from calls.store.job_queue import Waker
from calls.store.keys import Keys
from calls.store.scripts import source

LOOK_EVERY_S = 0.2
LATE_MS = 60
"""Work that is less late is left to a shift under way, which claims within 20 ms of a due time."""

SOON_MS = 10_000
"""At the end of a shift its successor is enqueued if anything is due this soon."""

QUIET_S = 10.0
"""So long after the last shift of any worker one is started anyway: it enlists institutions that a lost Redis forgot."""

STUCK_S = 30.0
"""After so long without a sign of life from a shift its process is ended; the platform starts another."""

STUCK_EXIT = 70


class Watchdog:
    """Looks every 200 ms, from a thread of its own."""

    def __init__(
        self,
        redis: "Redis",
        waker: Waker,
        log: Any,
        *,
        keys: Keys | None = None,
        now_ms: Callable[[], int] | None = None,
        stuck_s: float = STUCK_S,
        end_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._keys = Keys() if keys is None else keys
        self._redis = redis
        self._script = redis.register_script(source("pulse"))
        self._waker = waker
        self._log = log
        self._now_ms = now_ms
        self._stuck_s = stuck_s
        self._end_process = end_process
        self._is_over = False
        self._look_now = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._beat_at_s: float | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._is_over = True
        self._look_now.set()
        self._thread.join(timeout=2)

    def beat(self) -> None:
        """Say that the shift under way is alive. Called by the shift, every few milliseconds."""
        self._beat_at_s = time.monotonic()

    def rest(self) -> None:
        """Say that no shift is under way any more; it is looked at once whether another one is needed."""
        self._beat_at_s = None
        self._look_now.set()

    def look(self, *, late_ms: int = LATE_MS) -> None:
        """Look once; enqueue a job if work waits that no shift has taken, or if no shift has run anywhere for a while.

        Args:
            late_ms: How late work has to be; below 0 how soon it is due.

        Raises:
            redis.exceptions.RedisError: Redis is away; the next look tries again.
        """
        keys = self._keys
        named = [keys.due, keys.wake, keys.queue, keys.breakers, keys.epoch, keys.token]
        if self._script(keys=named, args=[self._now_ms() if self._now_ms else "", late_ms, int(QUIET_S * 1000)]) != 1:
            return
        try:
            self._waker.enqueue("the shift before it" if late_ms < 0 else "overdue work")
        except RedisError:
            self._redis.delete(keys.wake)
            raise

    def _run(self) -> None:
        is_away = False
        while True:
            has_rested = self._look_now.wait(LOOK_EVERY_S)
            if self._is_over:
                return
            self._look_now.clear()
            self._watch()
            try:
                self.look(late_ms=-SOON_MS if has_rested else LATE_MS)
                is_away = False
            except RedisError as error:
                if not is_away:
                    self._log.warning("redis_away", error=type(error).__name__)
                is_away = True

    def _watch(self) -> None:
        beat_at_s = self._beat_at_s
        if beat_at_s is not None and time.monotonic() - beat_at_s > self._stuck_s:
            self._log.error("shift_stuck", after_s=round(time.monotonic() - beat_at_s, 1))
            self._end_process(STUCK_EXIT)

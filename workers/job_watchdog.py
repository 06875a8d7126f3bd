"""The watchdog: enqueues a job for work that no shift has taken, and ends the process when a shift is stuck.

It is a thread with its own connection in every worker process. It has no lock and no state in Redis, so any number may
run. What one misses, another look finds 200 ms later.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.store.script import Script
from callkeeper.calls.store.writable import redis_words

POLL_EVERY_S = 0.2
LATE_MS = 60
"""Work that is less overdue is left to a running shift, which claims within 20 ms of a due time."""

SOON_MS = 10_000
"""At the end of a shift the next job is enqueued if anything is due this soon, in milliseconds."""

QUIET_S = 10.0
"""If no worker has run a shift for this long, one is started. It enlists institutions that a lost Redis forgot."""

STUCK_S = 30.0
"""If a shift gives no sign of life for this long, its process is ended, unless it is only slow. The platform starts
another."""

SLOW_SHARE = 0.01
"""A shift whose thread gets this share of a core is slow, until it has had ``STUCK_S`` of CPU: then it runs in circles."""

STUCK_EXIT = 70

SAYING_S = 1.0
"""How long the watchdog waits for its last log line, in seconds. It ends the process even if logging hangs."""


class _Beat(NamedTuple):
    """A sign of life of a shift's thread."""

    at_s: float
    cpu_s: float
    thread: int

    def is_slow(self, after_s: float, stuck_s: float) -> bool:
        """Tell whether the thread has run since, as far as its share of a core let it."""
        if not hasattr(time, "pthread_getcpuclockid"):  # macOS
            return False
        used_s = time.clock_gettime(time.pthread_getcpuclockid(self.thread)) - self.cpu_s
        return after_s * SLOW_SHARE < used_s < stuck_s


class Watchdog:
    """Looks every 200 ms, in a thread of its own."""

    def __init__(
        self,
        redis: Redis,
        waker: Waker,
        log: Any,
        *,
        keys: Keys = KEYS,
        now_ms: Callable[[], int] | None = None,
        leave: Callable[[int], object] = os._exit,
        stuck_s: float = STUCK_S,
    ) -> None:
        self._keys = keys
        self._redis = redis
        self._pulse = Script(keys, "pulse")
        self._script = redis.register_script(self._pulse.source)
        self._waker = waker
        self._log = log
        self._now_ms = now_ms
        self._leave = leave
        self._stuck_s = stuck_s
        self._is_over = False
        self._check_now = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._beat: _Beat | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over = True
        self._check_now.set()
        self._thread.join(timeout=2)

    def beat(self) -> None:
        """Report that the running shift is alive. The shift calls it every few milliseconds."""
        self._beat = _Beat(time.monotonic(), time.thread_time(), threading.get_ident())

    def rest(self) -> None:
        """Report that the shift has ended, and check at once whether another is needed."""
        self._beat = None
        self._check_now.set()

    def check(self, *, late_ms: int = LATE_MS) -> None:
        """Enqueue a job if work is overdue that no shift has taken, or if no shift has run anywhere for a while.

        ``late_ms`` is how overdue work has to be. A negative value counts work that is due that soon.

        Raises:
            redis.exceptions.RedisError: Redis is down. The next check tries again.
        """
        clock = self._now_ms() if self._now_ms else ""
        given = {"overdue_ms": late_ms, "quiet_ms": int(QUIET_S * 1000)}
        if self._script(*self._pulse.arguments(clock, given)) != 1:
            return
        try:
            self._waker.enqueue("after the previous job" if late_ms < 0 else "overdue work")
        except RedisError:
            self._redis.delete(self._keys.wake)
            raise

    def _run(self) -> None:
        is_away = False
        while True:
            has_rested = self._check_now.wait(POLL_EVERY_S)
            if self._is_over:
                return
            self._check_now.clear()
            self._watch()
            try:
                self.check(late_ms=-SOON_MS if has_rested else LATE_MS)
                if is_away:
                    self._log.info("redis_back")
                is_away = False
            except RedisError as error:
                if not is_away:
                    because = f"{redis_words(error)}; the worker tries again"
                    self._log.warning("redis_away", error=type(error).__name__, because=because)
                is_away = True

    def _watch(self) -> None:
        beat = self._beat
        if beat is not None:
            after_s = time.monotonic() - beat.at_s
            if after_s > self._stuck_s and not beat.is_slow(after_s, self._stuck_s):
                self._end(after_s=round(after_s, 1))

    def _end(self, after_s: float) -> None:
        """Write what each thread does, log why, and end the process. What holds the shift up may hold up both, too."""

        def say() -> None:
            stacks = ("".join(traceback.format_stack(frame)) for frame in sys._current_frames().values())  # noqa: SLF001
            os.write(2, "\n".join(stacks).encode())  # no locals
            self._log.error("shift_stuck", after_s=after_s)

        saying = threading.Thread(target=say, name="last words", daemon=True)
        saying.start()
        saying.join(SAYING_S)
        self._leave(STUCK_EXIT)

"""The pacemaker: wakes a worker for what comes due, hands over from shift to shift, ends the process when one is stuck.

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

from calls.keys import Keys
from calls.scripts import source
from calls.wake import Waker

LOOK_EVERY_S = 0.2
LATE_MS = 60
"""What is less late than this is left to a shift that may be under way: it claims within 20 ms of a due time."""

SOON_MS = 10_000
"""After a shift the next one is begun for what is due this soon: as long as one waits for more before it ends."""

WAKE_ANYWAY_S = 10.0
"""However quiet it is, a shift starts so long after the last one: institutions that a lost Redis forgot are listed anew."""

STUCK_S = 30.0
"""After so long without a sign of life from a shift its process is ended; the platform starts another."""

STUCK_EXIT = 70


class Pacemaker:
    """Looks every 200 ms whether anything is due that nobody was woken for."""

    def __init__(
        self,
        redis: "Redis",
        waker: Waker,
        log: Any,
        *,
        keys: Keys | None = None,
        stuck_s: float = STUCK_S,
        end_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._keys = Keys() if keys is None else keys
        self._redis = redis
        self._script = redis.register_script(source("pulse"))
        self._waker = waker
        self._log = log
        self._stuck_s = stuck_s
        self._end_process = end_process
        self._is_over = False
        self._look_now = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pacemaker", daemon=True)
        self._beat_at_s: float | None = None
        self._woken_at_s: float | None = None

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
        """Look once.

        Args:
            late_ms: How late something has to be to wake a worker; below 0 how soon it is due.

        Raises:
            redis.exceptions.RedisError: Redis is away; the next look tries again.
        """
        keys = self._keys
        wake, _ = self._script(keys=[keys.due, keys.wake, keys.queue, keys.workers, keys.service], args=["", late_ms])
        now_s = time.monotonic()
        if self._beat_at_s is not None:
            self._woken_at_s = now_s
        is_quiet = self._woken_at_s is None or now_s - self._woken_at_s > WAKE_ANYWAY_S
        if wake != 1 and not is_quiet:
            return
        self._woken_at_s = now_s
        try:
            self._waker.enqueue()
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

"""The watchdog ends a process whose shift is stuck."""

import threading
from typing import Any

from redis import Redis

from callkeeper.calls.store.job_queue import Waker
from workers.job_watchdog import STUCK_EXIT, Watchdog


class HungLog:
    """A log whose errors wait for ever."""

    def __init__(self) -> None:
        self.tried = threading.Event()
        self.freed = threading.Event()

    def error(self, _event: str, **_keys: object) -> None:
        """Wait."""
        self.tried.set()
        self.freed.wait()

    def warning(self, _event: str, **_keys: object) -> None:
        """Take a line."""


def test_watchdog_ends_a_stuck_process_although_logging_hangs() -> None:
    """A shift may be stuck because it logs; the process ends, after an attempt to say why."""
    left: list[int] = []
    has_left = threading.Event()

    def leave(code: int) -> None:
        left.append(code)
        has_left.set()

    nowhere: Any = Redis(port=1)
    log = HungLog()
    watchdog = Watchdog(nowhere, Waker(nowhere), log, leave=leave, stuck_s=0.0)
    watchdog.beat()
    watchdog.start()
    try:
        assert has_left.wait(10)
        assert log.tried.is_set()
        assert left[0] == STUCK_EXIT
    finally:
        log.freed.set()
        watchdog.stop()

"""The watchdog ends a process whose shift is stuck."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

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


class Shift:
    """A shift that beats once in a thread of its own, under a watchdog that ends it after 0.3 s."""

    def __init__(self, log: Any, do: Callable[[], object]) -> None:
        nowhere: Any = Redis(port=1, retry=Retry(NoBackoff(), 0))
        self.has_ended, self.has_left, self._do = threading.Event(), threading.Event(), do
        self.watchdog = Watchdog(nowhere, Waker(nowhere), log, leave=lambda _code: self.has_left.set(), stuck_s=0.3)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.watchdog.beat()
        while not self.has_ended.is_set():
            self._do()

    def is_ended_within(self, seconds: float) -> bool:
        """Tell whether the process would have been ended."""
        self._thread.start()
        self.watchdog.start()
        try:
            return self.has_left.wait(seconds)
        finally:
            self.watchdog.stop()
            self.has_ended.set()
            self._thread.join()


def spin(seconds: float) -> None:
    """Use the CPU for some time of the thread."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_slow_shift_goes_on(log: FilteringBoundLogger) -> None:
    """A shift that gets a part of a core, and less CPU than a stuck one would have used, is not ended."""

    def crawl() -> None:
        spin(0.005)
        time.sleep(0.1)

    assert not Shift(log, crawl).is_ended_within(1.5)


def test_shift_that_stands_is_ended_and_its_stacks_written(
    log: FilteringBoundLogger, logged: LogCapture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A shift that waits uses no CPU. What each thread does is written, without values."""

    def stand() -> None:
        canary = str(16**9)
        shift.has_ended.wait(20)
        assert canary

    shift = Shift(log, stand)
    assert shift.is_ended_within(20)
    written = capfd.readouterr().err
    assert ("in _run" in written, "has_ended.wait" in written, str(16**9) in written) == (True, True, False)
    assert "shift_stuck" in [entry["event"] for entry in logged.entries]


def test_shift_that_runs_in_circles_is_ended(log: FilteringBoundLogger) -> None:
    """A shift that has used a whole core for as long as a stuck one waits is ended."""
    assert Shift(log, lambda: spin(0.05)).is_ended_within(20)

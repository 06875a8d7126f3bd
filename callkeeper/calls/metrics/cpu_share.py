"""Measures which share of a core a process, or one of its threads, uses."""

import time
from collections.abc import Callable
from typing import Final

OVER_S: Final = 2.0
"""Time constant of the average, in seconds. After 1.8 s a full core counts as 0.6."""

EVERY_S: Final = 0.2
"""How often it is measured, in seconds."""


class CpuShare:
    """Tells which share of a core was used lately. Use each one in a single thread.

    ``cpu_s`` tells what the process, or this thread, has used; ``over_s`` is the time constant of the average.
    """

    def __init__(
        self,
        cpu_s: Callable[[], float],
        *,
        over_s: float = OVER_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cpu_s = cpu_s
        self._over_s = over_s
        self._monotonic = monotonic
        self._share = 0.0
        self._measured_at_s, self._used_s = monotonic(), cpu_s()

    def __call__(self) -> float:
        """Return the share, 0.2 s old at most."""
        now_s = self._monotonic()
        took_s = now_s - self._measured_at_s
        if took_s >= EVERY_S:
            used_s = self._cpu_s()
            lately = (used_s - self._used_s) / took_s
            self._share += min(1.0, took_s / self._over_s) * (lately - self._share)
            self._measured_at_s, self._used_s = now_s, used_s
        return self._share

"""Measures how busy this process is, so that it can make fewer reads before its checks are late."""

import time
from collections.abc import Callable
from typing import Final

OVER_S: Final = 2.0
"""Over how long the share is averaged, in seconds. A burst of starts that is shorter delays no read."""

EVERY_S: Final = 0.2
"""How often it is measured, in seconds."""


class CpuShare:
    """Tells which share of a core this process has used lately. More than 1 means that several threads were busy."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, cpu_s: Callable[[], float] = time.process_time
    ) -> None:
        self._monotonic = monotonic
        self._cpu_s = cpu_s
        self._share = 0.0
        self._measured_at_s, self._used_s = monotonic(), cpu_s()

    def __call__(self) -> float:
        """Return the share, 0.2 s old at most."""
        now_s = self._monotonic()
        took_s = now_s - self._measured_at_s
        if took_s >= EVERY_S:
            used_s = self._cpu_s()
            lately = (used_s - self._used_s) / took_s
            self._share += min(1.0, took_s / OVER_S) * (lately - self._share)
            self._measured_at_s, self._used_s = now_s, used_s
        return self._share

"""The thread that writes a process's figures once a second, whatever the rest of the process is doing.

It has a connection of its own: a shift that is stuck, or an event loop that is busy, is still seen to be alive or not.
"""

import threading
from contextlib import suppress
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

from calls.figures.writing import FigureWriter

EVERY_S: Final = 1.0


class Reporter:
    """Writes figures until it is stopped; what Redis did not take is written the next time."""

    def __init__(self, redis: "Redis", writer: FigureWriter, *, every_s: float = EVERY_S) -> None:
        self._redis = redis
        self._writer = writer
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="figures", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write once more, and end."""
        self._ended.set()
        self._thread.join(timeout=3)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._ended.wait(self._every_s)
            with suppress(RedisError, OSError):
                self._writer.write(self._redis)

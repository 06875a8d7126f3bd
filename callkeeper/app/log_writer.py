"""Writes log lines in a thread of its own, so that a reader that stops reading stops no call.

A pipe that nobody reads is full after 64 KB, and the next write waits for as long as that lasts. Lines wait in a queue.
When it is full, further ones are lost and counted; once the reader reads again, one line says how many.

Neither library that we log with does this. `logging.handlers.QueueHandler` prints to standard error when its queue is
full, and `QueueListener.stop` waits for a write that hangs; structlog writes where a line is logged. A `SimpleQueue`
costs less than either, and has no lock that a finalizer or a signal handler which logs could wait for.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from queue import SimpleQueue
from typing import Final, Protocol

MOST_LINES: Final = 10_000
"""How many lines may wait, besides as many that are being written: about 4 MB each."""

REST_S: Final = 0.05
"""After each write the thread rests this long, so that a burst of lines is a few writes. The first line goes at once."""


class Sink(Protocol):
    """A file without a buffer: its buffer's lock could not be had at the end, while the thread waits in a write."""

    def write(self, data: memoryview, /) -> int | None:
        """Write some of it; return how many bytes, or None if it would have to wait."""


class LogWriter:
    """Takes lines from any thread. They are written in this order."""

    def __init__(self, sink: Sink, tell_lost: Callable[[int], str], *, most_lines: int = MOST_LINES) -> None:
        """``tell_lost`` returns the line that says how many are lost."""
        self._sink = sink
        self._tell_lost = tell_lost
        self._most_lines = most_lines
        self._queue: SimpleQueue[str | threading.Event | None] = SimpleQueue()
        self._is_torn = False
        self.lost = 0
        """How many lines were lost. Two that are lost at the same instant may count as one."""
        self._told = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def msg(self, line: str) -> None:
        """Write a line, soon."""
        if self._queue.qsize() < self._most_lines:
            self._queue.put(line)
        else:
            self.lost += 1

    debug = info = warning = error = critical = msg

    def flush(self, within_s: float) -> None:
        """Wait until everything up to here is written, but not longer than the reader is given."""
        is_written = threading.Event()
        self._queue.put(is_written)
        is_written.wait(within_s)

    def close(self) -> None:
        """End the thread once it has written everything up to here."""
        self._queue.put(None)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            taken = [self._queue.get(), *(self._queue.get() for _ in range(self._queue.qsize()))]
            self._write([line for line in taken if isinstance(line, str)])
            for event in taken:
                if isinstance(event, threading.Event):
                    event.set()
            is_over = None in taken
            time.sleep(REST_S)

    def _write(self, lines: Sequence[str]) -> None:
        """Write lines, and how many were lost after them. They are lost, too, if the disk is full or the reader is gone."""
        lost = self.lost
        texts = [f"{line}\n".encode(errors="backslashreplace") for line in lines]
        if lost > self._told:
            texts.append(f"{self._tell_lost(lost - self._told)}\n".encode())
        if self._is_torn and texts:
            texts[0] = b"\n" + texts[0]
        ends = list(accumulate(map(len, texts)))
        done = self._written(b"".join(texts))
        self._is_torn = done not in {0, *ends} or (done == 0 and self._is_torn)
        unwritten = sum(end > done for end in ends[: len(lines)])
        self.lost += unwritten
        if not ends or done == ends[-1]:
            self._told = lost

    def _written(self, text: bytes) -> int:
        """Write a text; return how many bytes of it the file took."""
        done, rest = 0, memoryview(text)
        with suppress(OSError, ValueError):  # a full disk, a reader that is gone; a file that is closed
            while done < len(text) and (n := self._sink.write(rest[done:])):
                done += n
        return done

"""Log lines: one per event, as JSON or for the console, with the same processing for ours and the libraries'.

The last step before a line is written leaves out every key that is not in `KEYS`. Exceptions are logged as types and
places, because their messages and variables may contain callers' data.

Lines are written by a thread, so that a reader that stops reading stops no call. They wait in a queue; when it is full,
further ones are lost and counted, and once the reader reads again, one line says how many.
"""

import atexit
import io
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from logging.handlers import QueueListener
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Protocol, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from callkeeper.app.terminal import is_visible
from callkeeper.calls.traceback_filter import filtered_traceback

KEYS: Final = frozenset(
    (
        *("action", "address", "after_s", "alternate_id", "assigns", "at_ms", "attempts", "because"),
        *("before_hash", "before_n", "calls", "checks", "connections", "desk", "digest", "dropped", "entries"),
        *("error", "event", "event_id", "failures", "field", "foreign_answer", "hash", "in_flight"),
        *("institution", "institutions", "into", "is_over", "is_test", "kind", "left_out", "level", "library"),
        *("lines", "live", "member_kind", "message", "n", "nearest", "operation", "operator", "other"),
        *("parked", "policy", "prefixes", "process", "reason", "release", "remedy", "rights", "rule", "rules"),
        *("said", "scope", "setting", "shadow", "signature", "state", "status", "target", "tasks", "timestamp"),
        *("trace", "trace_id", "type", "url", "variables", "voice_id", "what", "where", "why", "worker"),
    )
)
"""The keys that lines may have: ids, counts, names of kinds and durations, never phone numbers, persons, credentials or
bodies. ``trace``: types and places of an exception, never its message. ``trace_id`` is as in requests and trails."""

MOST_LINES: Final = 10_000
"""How many lines may wait, besides as many that are being written: about 4 MB each."""

REST_S: Final = 0.05
"""After each write the thread rests this long, so that a burst of lines is a few writes. The first line goes at once."""

_MAX_MESSAGE: Final = 200

_NUMBER: Final = re.compile(r"\+?\d(?:[ ().-]{0,2}\d){6,}")
"""Seven digits or more, as people and programs write phone numbers."""


class Sink(Protocol):
    """A file without a buffer: its buffer's lock could not be had at the end, while the thread waits in a write."""

    def write(self, data: memoryview, /) -> int | None:
        """Write some of it; return how many bytes, or None if it would have to wait."""


class LogWriter(QueueListener):
    """Takes lines from any thread. They are written in this order.

    `QueueListener.stop` would wait for a write that hangs, and `QueueHandler` prints to standard error when its queue is
    full. A `SimpleQueue` has no lock that a finalizer or a signal handler which logs could wait for.
    """

    def __init__(self, sink: Sink, tell_lost: Callable[[int], str], *, most_lines: int = MOST_LINES) -> None:
        """``tell_lost`` returns the line that says how many are lost."""
        self._lines: SimpleQueue[Any] = SimpleQueue()
        super().__init__(self._lines)
        self._sink = sink
        self._tell_lost = tell_lost
        self._most_lines = most_lines
        self._is_torn = False
        self.lost = 0
        """How many lines were lost. Two that are lost at the same instant may count as one."""
        self._told = 0
        self.start()

    def msg(self, line: str) -> None:
        """Write a line, soon."""
        if self._lines.qsize() < self._most_lines:
            self._lines.put(line)
        else:
            self.lost += 1

    debug = info = warning = error = critical = msg

    def flush(self, within_s: float) -> None:
        """Wait until everything up to here is written, but not longer than the reader is given."""
        is_written = threading.Event()
        self._lines.put(is_written)
        is_written.wait(within_s)

    def dequeue(self, block: bool) -> Any:
        """Wait for a line; return all that are there, or the sentinel."""
        first = self._lines.get(block)
        taken = [first, *(self._lines.get() for _ in range(self._lines.qsize()))]
        if None in taken[1:]:
            self._lines.put(None)
        return None if first is None else [each for each in taken if each is not None]

    def handle(self, record: Any) -> None:
        """Write lines, and how many were lost after them. They are lost, too, if the disk is full or the reader is gone."""
        lines, lost = [each for each in record if isinstance(each, str)], self.lost
        told = [self._tell_lost(lost - self._told)] if lost > self._told else []
        text = "".join(f"{line}\n" for line in [*lines, *told]).encode(errors="backslashreplace")
        text = b"\n" + text if self._is_torn and text else text
        done, rest = 0, memoryview(text)
        with suppress(OSError, ValueError):  # a full disk, a reader that is gone; a file that is closed
            while done < len(text) and (n := self._sink.write(rest[done:])):
                done += n
        if done == len(text):
            self._is_torn, self._told = False, lost
        else:
            self._is_torn = text[done - 1 : done] != b"\n" if done else self._is_torn
            self.lost += max(0, len(lines) - text[:done].count(b"\n"))
        for each in record:
            if isinstance(each, threading.Event):
                each.set()
        time.sleep(REST_S)


_WRITERS: Final[list[LogWriter]] = []
"""What writes the lines of this process, if its log is set up."""


def set_up_logging(*, sink: Sink | None = None, for_people: bool | None = None) -> FilteringBoundLogger:
    """Send our events and the libraries' messages to standard output or a ``sink``; return the logger.

    ``for_people``: as lines that people read, not JSON. By default, where standard output is a terminal.
    """
    processors = _processors(for_people=sink is None and sys.stdout.isatty() if for_people is None else for_people)
    wrapper = structlog.make_filtering_bound_logger(logging.INFO)
    telling = structlog.wrap_logger(structlog.ReturnLogger(), processors=processors, wrapper_class=wrapper)
    lines = LogWriter(_unbuffered(sys.stdout) if sink is None else sink, partial(_tell_lost, telling.bind()))
    _write_to(lines)
    structlog.configure(
        processors=processors,
        wrapper_class=wrapper,
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    log = cast("FilteringBoundLogger", structlog.get_logger().bind())  # a lazy logger would bind again for every line
    _divert_libraries(log)
    return log


def _tell_lost(log: Any, lines: int) -> str:
    line: str = log.warning("log_lines_lost", lines=lines)
    return line


def _unbuffered(stream: TextIO) -> Sink:
    """Return a stream's file without its buffers."""
    try:
        return io.FileIO(stream.fileno(), "wb", closefd=False)
    except io.UnsupportedOperation:  # a stream in memory
        return stream.buffer


def _write_to(lines: LogWriter) -> None:
    """Write to this writer from now on, and at the end of the process what it still has."""
    while _WRITERS:
        _WRITERS.pop().enqueue_sentinel()
    _WRITERS.append(lines)
    atexit.unregister(flush_log)
    atexit.register(flush_log)


def flush_log(within_s: float = 1.0) -> None:
    """Wait until the lines so far are written. A reader that does not read is not waited for longer than this."""
    for writer in _WRITERS:
        writer.flush(within_s)


def leave_now(code: int) -> None:
    """End the process at once, but for the lines that are still to be written."""
    flush_log()
    os._exit(code)


def lines_lost() -> int:
    """Return how many lines this process has lost, because nobody read them or the disk was full."""
    return sum(writer.lost for writer in _WRITERS)


def quiet_log(level: int = logging.WARNING) -> FilteringBoundLogger:
    """Return a logger that writes a command's warnings to standard error."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            _quote_unprintable,
            structlog.processors.LogfmtRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    return log


def _quote_unprintable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters that a terminal would obey."""
    return {key: value if is_visible(str(value)) else ascii(str(value)) for key, value in event.items()}


def _processors(*, for_people: bool) -> Sequence[Processor]:
    return (
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        stamp,
        describe_exception,
        keep_allowed_keys,
        *map(_reporting, _REPORTERS),
        render_console if for_people else render_json,
    )


_REPORTERS: Final[list[Processor]] = []


def report_lines_to(processor: Processor) -> None:
    """Let a structlog processor of yours see every line of this process. Call it before a command starts.

    It sees what the allow-list has left, so no personal data, and no message of an exception. It cannot change the line,
    and its errors are ignored. It must not wait: it runs where calls are handled.
    """
    _REPORTERS.append(processor)


def _reporting(processor: Processor) -> Processor:
    def report(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        with suppress(Exception, structlog.DropEvent):  # one of yours that leaves a line out must not leave out ours
            processor(logger, method, deepcopy(event))
        return event

    return report


def stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the time and the process."""
    event["timestamp"] = datetime.now(UTC)
    event["process"] = os.getpid()
    return event


def describe_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by the types and places of its chain."""
    exc_info = event.pop("exc_info", None)
    error = _exception(exc_info)
    if error is not None:
        event.setdefault("error", type(error).__name__)
        event["trace"] = list(filtered_traceback(error))
    return event


def _exception(exc_info: object) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return cast("BaseException | None", exc_info[1])
    return sys.exc_info()[1] if exc_info else None


def keep_allowed_keys(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave out keys that are not allowed, and name them in ``dropped``."""
    if KEYS.issuperset(event):
        return event
    kept = {key: value for key, value in event.items() if key in KEYS}
    return {**kept, "dropped": sorted(set(event) - KEYS)}


def render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Write an event as one line of JSON: time, level and name first, because people read these lines too."""
    first = {"timestamp": event["timestamp"], "level": event["level"], "event": event["event"]}
    return _ENCODER.encode({**first, **event}).decode()


def _type_only(value: object) -> str:
    return f"<{type(value).__name__}>"


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_type_only)


def render_console(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Write an event as one line for people: time, level, name, then its keys."""
    shown = dict(event)
    trace = shown.pop("trace", [])
    clock = f"{shown.pop('timestamp'):%H:%M:%S}"
    head = f"{clock} {shown.pop('level'):<8}{shown.pop('event'):<28}"
    shown.pop("process")
    pairs = " ".join(f"{key}={_plain(value)}" for key, value in shown.items() if value is not None)
    return "\n    ".join([f"{head}{pairs}".rstrip(), *trace])


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    if not is_visible(text):
        return ascii(text)
    return repr(text) if " " in text else text


def masked(text: str) -> str:
    """Return a text in which everything that could be a phone number is cut to its last four digits."""
    return _NUMBER.sub(lambda found: "…" + re.sub(r"\D", "", found[0])[-4:], text)


class _Diversion(logging.Handler):
    """Logs a library's warnings and errors as events of ours."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log the first line of a record's message and the places of its exception."""
        first_line = masked(record.getMessage().strip().partition("\n")[0][:_MAX_MESSAGE])
        fields: dict[str, Any] = {"library": record.name, "message": first_line, "exc_info": record.exc_info}
        self._log.log(record.levelno, "library_message", **fields)


def _divert_libraries(log: FilteringBoundLogger) -> None:
    """Take over every logger, also one that a library disabled or gave a level or handlers."""
    root = logging.getLogger()
    for logger in list(root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers, logger.propagate, logger.disabled = [], True, False
            logger.setLevel(logging.NOTSET)
    root.handlers = [_Diversion(log)]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)


def divert_crashes(log: FilteringBoundLogger) -> None:
    """Log the places of a crash. Python would print the exception's message, which may contain callers' data."""

    def on_crash(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        log.critical("crashed", exc_info=error)

    def on_thread_crash(crash: threading.ExceptHookArgs) -> None:
        log.critical("crashed", exc_info=crash.exc_value)

    sys.excepthook = on_crash
    threading.excepthook = on_thread_crash

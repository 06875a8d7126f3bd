"""Runs callkeeper and reports every line of level error or above to a tracker: ``python error_tracker.py worker``.

The environment variable TRACKER_URL says where to. Replace ``post`` by the call of your tracker's library, or give its
own structlog processor to ``report_lines_to``.
"""

import atexit
import json
import os
import threading
import time
import urllib.request
from contextlib import suppress
from queue import Full, Queue

from structlog.typing import EventDict, WrappedLogger

from callkeeper.app.cli import main
from callkeeper.app.logs import report_lines_to

WAITING: Queue[bytes] = Queue(maxsize=100)
"""Calls must not wait for the tracker: a thread sends what is here, and what does not fit is dropped."""


def report(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Pass on one line, if it is an error."""
    if event["level"] in {"error", "critical"}:
        with suppress(Full):
            WAITING.put_nowait(json.dumps(event, default=str).encode())
    return event


def send() -> None:
    """Send what waits, for ever."""
    while True:
        body = WAITING.get()
        with suppress(Exception):
            post(body)
        WAITING.task_done()


def finish() -> None:
    """Wait at the end of the process, for two seconds at most, for what is not sent yet: a crash is the last line."""
    end_s = time.monotonic() + 2
    while WAITING.unfinished_tasks and time.monotonic() < end_s:
        time.sleep(0.02)


def post(body: bytes) -> None:
    """Post one line as JSON: event, level, timestamp, institution, trace_id, and of an exception types and places."""
    request = urllib.request.Request(os.environ["TRACKER_URL"], body, {"Content-Type": "application/json"})  # noqa: S310
    urllib.request.urlopen(request, timeout=5).close()  # noqa: S310  (our own setting)


if __name__ == "__main__":
    report_lines_to(report)
    atexit.register(finish)
    threading.Thread(target=send, daemon=True).start()
    main()

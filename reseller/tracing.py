"""The trace of the event that a request is made for, in the header that tracing tools know.

Whoever handles an event sets its trace for the task that does; every request that the task sends carries it. A trace is a
random number: it says nothing about a call or a person.

Assumed: the service ignores a header that it does not know. The Spec names the headers that it reads, and no other.
"""

import re
import secrets
from contextvars import ContextVar
from typing import Final

HEADER: Final = "traceparent"
"""Of W3C Trace Context: version, trace, the request's own number, flags."""

_TRACE: Final = re.compile(r"[0-9a-f]{32}")
_current: ContextVar[str | None] = ContextVar("trace", default=None)


def new_trace() -> str:
    """Return the trace of an event that brought none."""
    return secrets.token_hex(16)


def is_trace(text: str) -> bool:
    """Tell whether a text is a trace: 32 hexadecimal digits, not all zero."""
    return _TRACE.fullmatch(text) is not None and text.strip("0") != ""


def follow(trace: str) -> None:
    """Send every further request of this task for an event."""
    _current.set(trace)


def trace_headers() -> dict[str, str]:
    """Return the header of a request that is about to be sent; none where no event is followed."""
    trace = _current.get()
    return {} if trace is None else {HEADER: f"00-{trace}-{secrets.token_hex(8)}-01"}

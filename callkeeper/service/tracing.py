"""Traces: the id that joins everything done for one event, and the spans of a tracer, if the process has one.

A task that handles an event sets its trace. All its requests carry that trace, under the header name that tracing tools
know. A trace is a random number and says nothing about a call or a person. Assumed (`unknown-headers`): the service
ignores unknown headers. The Spec names the headers that it reads.

Without a tracer a span costs one call and is nothing; nothing of any tracing library is imported. `callkeeper.app.telemetry`
has the one tracer that there is. Whatever a span may say is in `SpanAttributes`: ids, names and counts, as in log lines,
and never a value of a person.
"""

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from random import getrandbits
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypedDict, Unpack

HEADER: Final = "traceparent"
"""The header of W3C Trace Context: version, trace id, the request's own id, flags."""

_TRACE: Final = re.compile(r"[0-9a-f]{32}")
_HEADER: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_current: ContextVar[str | None] = ContextVar("trace", default=None)


def new_trace() -> str:
    """Return a new trace."""
    return secrets.token_hex(16)


def is_trace(text: str) -> bool:
    """Tell whether a text is a trace: 32 hexadecimal digits, not all zero."""
    return _TRACE.fullmatch(text) is not None and text.strip("0") != ""


def follow(trace: str) -> None:
    """Set the trace of all further requests of this task."""
    _current.set(trace)


def trace_headers() -> dict[str, str]:
    """Return the trace header for a request that is about to be sent; none if no trace is set."""
    if _tracer is not None and (header := _tracer.header()):
        return {HEADER: header}
    trace = _current.get()
    return {} if trace is None else {HEADER: f"00-{trace}-{getrandbits(64):016x}-01"}


class SpanPlace(NamedTuple):
    """One span: its trace, and its own id of 16 hexadecimal digits."""

    trace: str
    span: str


def first_span(trace: str) -> SpanPlace:
    """Return the first span of a trace.

    Its id follows from the trace, so that a process that handles the event minutes later can name its parent, and
    nothing has to be stored for that.
    """
    half = trace[16:]
    return SpanPlace(trace, half if half.strip("0") else trace[:16])


def place_in(header: bytes | None) -> SpanPlace | None:
    """Return the span that a request of somebody else names in its trace header; None if it names none."""
    found = _HEADER.fullmatch(header) if header else None
    if found is None:
        return None
    place = SpanPlace(found[1].decode(), found[2].decode())
    return place if place.trace.strip("0") and place.span.strip("0") else None


class SpanKind(Enum):
    """What a span is, in the words of OpenTelemetry."""

    INTERNAL = auto()
    SERVER = auto()
    """An incoming request."""
    CLIENT = auto()
    """An outgoing request."""
    CONSUMER = auto()
    """Work that was left by somebody else, often in another process."""


class SpanAttributes(TypedDict, total=False):
    """All that a span may say. Log lines may say the same."""

    institution: str
    voice_id: str
    push: str
    """The kind of a push event."""
    action: str
    """What a person said, as the last part of the desk's address."""
    notes: int
    """How many notes a claim found."""
    phase: str
    lease_lost: str
    """Why a claim ended before its end."""
    step: str
    """What was decided."""
    rule: str
    outcome: str
    reason: str
    effect: str
    state: str
    attempt: int
    message: str
    """The type of an outcome."""
    endpoint: str
    method: str
    route: str
    """The path with a placeholder instead of every id."""
    host: str
    status: int
    resends: int


class TraceSpan(Protocol):
    """A span that has begun."""

    @property
    def is_recorded(self) -> bool:
        """Whether anybody will see what it says. Ask before you put together words for a span that is often made."""

    def note(self, **attributes: Unpack[SpanAttributes]) -> None:
        """Add to what the span says."""

    def fail(self, kind: str) -> None:
        """Mark the span as failed. ``kind`` is the class of an error, a status, or one of a few words of ours."""


class Tracer(Protocol):
    """Makes spans, and sends them somewhere."""

    def span(
        self,
        name: str,
        kind: SpanKind,
        attributes: SpanAttributes,
        *,
        trace: str | None,
        is_first: bool,
        links: Sequence[SpanPlace],
    ) -> AbstractContextManager[TraceSpan]:
        """Return a span that is current while its block runs. An exception that leaves the block marks it as failed."""

    def header(self) -> str | None:
        """Return the trace header of a request that the current span sends; None if there is no current span."""


class _NoSpan:
    """Stands for every span of a process without a tracer."""

    __slots__ = ()
    is_recorded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let exceptions pass."""

    def note(self, **attributes: Unpack[SpanAttributes]) -> None:
        """Forget it."""

    def fail(self, kind: str) -> None:
        """Forget it."""


_NO_SPAN: Final = _NoSpan()
_tracer: Tracer | None = None


@contextmanager
def traced_by(tracer: Tracer) -> Iterator[None]:
    """Let a tracer make the spans of this process while the block runs."""
    global _tracer  # noqa: PLW0603  (a process has one, as it has one log)
    before, _tracer = _tracer, tracer
    try:
        yield
    finally:
        _tracer = before


def span(
    name: str,
    kind: SpanKind = SpanKind.INTERNAL,
    *,
    trace: str | None = None,
    is_first: bool = False,
    links: Sequence[SpanPlace | None] = (),
    **attributes: Unpack[SpanAttributes],
) -> AbstractContextManager[TraceSpan]:
    """Begin a span: below the current one of this task, else below the first one of the trace.

    Args:
        name: One of a few: it has no id in it.
        kind: What it is.
        trace: The trace; by default that of this task.
        is_first: Whether it is the first span of its trace.
        links: Other spans that led to this one. None is left out.
        attributes: What it says.
    """
    if _tracer is None:
        return _NO_SPAN
    places = [place for place in links if place is not None]
    return _tracer.span(name, kind, attributes, trace=trace or _current.get(), is_first=is_first, links=places)

"""OpenTelemetry: sends spans to a collector by OTLP. Only this module imports its packages.

Spans keep the trace ids that requests, logs and trails have. The first span of a trace has an id that follows from the
trace (`first_span`), so every process can name it as the parent, also if it was never exported.

A collector that fails or hangs delays nothing: spans wait in a queue that drops the oldest when it is full, a thread
of its own sends them, and the end of the process waits for it for two seconds at most.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from importlib import metadata
from types import TracebackType
from typing import Any, Final, Self, Unpack

from opentelemetry import trace as api
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import (
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    SERVICE_VERSION,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from redis.exceptions import RedisError

from callkeeper.calls.claimed_item import WriteRefused
from callkeeper.calls.metrics.redis_writer import Author, Kind
from callkeeper.calls.record_storage import NewerRecord
from callkeeper.calls.traceback_filter import filtered_traceback
from callkeeper.service.tracing import SpanAttributes, SpanKind, SpanPlace, TraceSpan, first_span, is_trace, traced_by

ENDS_WITHIN_S: Final = 2.0
"""How long the end of the process waits for spans that are not sent yet. Platforms kill after 10 s."""

NO_FAILURES: Final = (WriteRefused, NewerRecord)
"""Exceptions that end a claim in order."""

_KINDS: Final = {
    SpanKind.INTERNAL: api.SpanKind.INTERNAL,
    SpanKind.SERVER: api.SpanKind.SERVER,
    SpanKind.CLIENT: api.SpanKind.CLIENT,
    SpanKind.CONSUMER: api.SpanKind.CONSUMER,
}
_NAMES: Final = {name: f"callkeeper.{name}" for name in SpanAttributes.__annotations__} | {
    "host": "server.address",
    "method": "http.request.method",
    "resends": "http.request.resend_count",
    "route": "url.template",
    "status": "http.response.status_code",
}
"""The exported names, those of OpenTelemetry's conventions where there are any. ``url.full`` is left out: it holds ids."""

_NAMES_OF_SERVERS: Final = _NAMES | {"route": "http.route"}

_forced: ContextVar[SpanPlace | None] = ContextVar("ids of the span that is being made", default=None)


class _Ids(RandomIdGenerator):
    """Random ids, except that the first span of a trace gets those that follow from the trace."""

    def generate_trace_id(self) -> int:
        forced = _forced.get()
        return super().generate_trace_id() if forced is None else int(forced.trace, 16)

    def generate_span_id(self) -> int:
        forced = _forced.get()
        return super().generate_span_id() if forced is None else int(forced.span, 16)


class _OtelSpan:
    """One span, current while its block runs. An attribute without a value is left out."""

    __slots__ = ("_kind", "_span", "_token")

    def __init__(self, span: api.Span, kind: SpanKind) -> None:
        self._span = span
        self._kind = kind
        self._token: Token[Context] | None = None

    def __enter__(self) -> Self:
        self._token = attach(api.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._end_with(error)
        if self._token is not None:
            detach(self._token)
        self._span.end()

    @property
    def is_recorded(self) -> bool:
        """Whether the span was sampled."""
        return self._span.is_recording()

    def note(self, **attributes: Unpack[SpanAttributes]) -> None:
        """Add to what the span says."""
        if self.is_recorded:
            self._span.set_attributes(named(attributes, self._kind))

    def fail(self, kind: str) -> None:
        """Mark the span as failed."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(api.StatusCode.ERROR)

    def _end_with(self, error: BaseException) -> None:
        """Mark the span as failed, with types and code places. Messages may hold what a person said."""
        if isinstance(error, NO_FAILURES):
            self.note(lease_lost=error.why if isinstance(error, WriteRefused) else type(error).__name__)
            return
        name = type(error).__name__
        if isinstance(error, asyncio.CancelledError):  # a request's deadline, or the end of the process
            if self._kind is SpanKind.CLIENT:
                self.fail("timeout")
            return
        self.fail(name)
        if isinstance(error, RedisError):  # a bug of ours has code places, an outage has none
            return
        places = "\n".join(filtered_traceback(error))
        self._span.add_event("exception", {"exception.type": name, "exception.stacktrace": places})


def named(attributes: SpanAttributes, kind: SpanKind) -> dict[str, str | int]:
    """Return attributes under the names that they are exported with."""
    names = _NAMES_OF_SERVERS if kind is SpanKind.SERVER else _NAMES
    given: Any = attributes.items()
    return {names[name]: value for name, value in given if value != ""}


class OtelTracer:
    """Makes spans with the SDK: `callkeeper.service.tracing.Tracer`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("callkeeper", metadata.version("callkeeper"))
        self._sampler = provider.sampler

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
        """Return a span that is current while its block runs."""
        trace = trace if trace is not None and is_trace(trace) else None  # a stored one may be anything
        begin: Context | None = None  # the current span is the parent, if there is one
        if trace is not None:
            begin = Context() if is_first else self._below(trace, name)
        forced = _forced.set(first_span(trace) if trace is not None and is_first else None)
        try:
            span = self._tracer.start_span(
                name,
                begin,
                _KINDS[kind],
                named(attributes, kind),
                [api.Link(_context(place)) for place in links],
                record_exception=False,
                set_status_on_exception=False,
            )
        finally:
            _forced.reset(forced)
        return _OtelSpan(span, kind)

    def header(self) -> str | None:
        """Return the trace header of a request that the current span sends."""
        context = api.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def _below(self, trace: str, name: str) -> Context | None:
        """Return the parent's context: the current span if it belongs to the trace, else the first span of the trace.

        Whether that one was sampled follows from the trace too, as the samplers of the SDK decide by its id.
        """
        place, current = first_span(trace), api.get_current_span().get_span_context()
        if current.is_valid and current.trace_id == int(trace, 16):
            return None
        decision = self._sampler.should_sample(Context(), int(trace, 16), name).decision
        parent = api.NonRecordingSpan(_context(place, is_sampled=decision is Decision.RECORD_AND_SAMPLE))
        return api.set_span_in_context(parent, Context())


def _context(place: SpanPlace, *, is_sampled: bool = True) -> api.SpanContext:
    flags = api.TraceFlags(api.TraceFlags.SAMPLED if is_sampled else api.TraceFlags.DEFAULT)
    return api.SpanContext(int(place.trace, 16), int(place.span, 16), is_remote=True, trace_flags=flags)


def resource(name: str, instance: str) -> Resource:
    """Return who sends. ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` come before ours."""
    ours = {SERVICE_NAME: name, SERVICE_INSTANCE_ID: instance, SERVICE_VERSION: metadata.version("callkeeper")}
    return Resource.create(ours).merge(OTELResourceDetector().detect())


class _Seldom(logging.Filter):
    """Lets a message pass at most once a minute: a log must not fill up while a collector fails."""

    def __init__(self) -> None:
        super().__init__()
        self._next_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a message is logged."""
        now_s = time.monotonic()
        is_due = now_s >= self._next_s
        self._next_s = now_s + 60 if is_due else self._next_s
        return is_due


@contextmanager
def telemetry(kind: Kind, log: Any) -> Iterator[None]:
    """Send spans of this process while the block runs. The SDK reads its settings from the environment.

    Settings that it refuses are logged, and the block runs without: telemetry is not worth an outage.
    """
    logging.getLogger("opentelemetry.util.re").setLevel(logging.CRITICAL)  # it shows headers that it cannot read
    logging.getLogger(OTLPSpanExporter.__module__).filters = [_Seldom()]
    try:
        provider = TracerProvider(
            resource=resource(f"callkeeper-{kind}", Author.here(kind).name), id_generator=_Ids(), shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except Exception as error:  # the SDK reads dozens of variables and documents no error of theirs
        named = sorted(name for name in os.environ if name.startswith("OTEL_"))
        log.exception("telemetry_off", error=type(error).__name__, variables=named)
        yield
        return
    try:
        with traced_by(OtelTracer(provider)):
            yield
    finally:
        end = threading.Thread(target=provider.shutdown, name="telemetry's end", daemon=True)
        end.start()
        end.join(ENDS_WITHIN_S)

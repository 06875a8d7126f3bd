"""Spans by OpenTelemetry: their ids, parents and words; a collector that fails or hangs."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind as Kind
from redis.exceptions import RedisError

from callkeeper.app.process import telemetry_of
from callkeeper.app.settings import WebSettings
from callkeeper.app.telemetry import ENDS_WITHIN_S, OtelTracer, _Ids, resource, telemetry
from callkeeper.calls.claimed_item import RefusedBy, WriteRefused
from callkeeper.service.tracing import (
    SpanKind,
    SpanPlace,
    first_span,
    follow,
    new_trace,
    span,
    trace_headers,
    traced_by,
)
from tests.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER = "4bf92f3577b34da6a3ce929d0e0e4736"


class Process:
    """What one process sends."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, id_generator=_Ids(), shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = OtelTracer(self.provider)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """Return the finished spans by name."""
        return {each.name: each for each in self.exporter.get_finished_spans()}

    def ids(self, name: str) -> tuple[str, str, str | None]:
        """Return a span's trace, its own id and its parent's."""
        found = self.spans[name]
        assert found.context is not None
        parent = None if found.parent is None else f"{found.parent.span_id:016x}"
        return f"{found.context.trace_id:032x}", f"{found.context.span_id:016x}", parent


@pytest.fixture
def web() -> Process:
    """Return a process."""
    return Process()


@pytest.fixture
def worker() -> Process:
    """Return another process."""
    return Process()


def in_a_task(work: Any) -> Any:
    """Run a function as a task of its own, whose trace stays its own."""

    async def run() -> Any:
        return work()

    return asyncio.run(run())


def test_spans_of_two_processes_belong_to_one_trace(web: Process, worker: Process) -> None:
    """The push is the first span; what workers do minutes later is below it, and requests are below that."""

    def push() -> None:
        with traced_by(web.tracer), span("POST /push", SpanKind.SERVER, trace=TRACE, is_first=True):
            pass

    def claim() -> str:
        follow(TRACE)
        with traced_by(worker.tracer), span("claim", SpanKind.CONSUMER), span("GET", SpanKind.CLIENT):
            return trace_headers()["traceparent"]

    in_a_task(push)
    header = in_a_task(claim)
    assert web.ids("POST /push") == (TRACE, first_span(TRACE).span, None)
    trace, claimed, parent = worker.ids("claim")
    assert (trace, parent) == (TRACE, first_span(TRACE).span)
    trace, sent, parent = worker.ids("GET")
    assert (trace, parent) == (TRACE, claimed)
    assert re.fullmatch(f"00-{TRACE}-{sent}-0[13]", header)
    assert worker.spans["GET"].kind is Kind.CLIENT


def test_span_of_another_trace_is_not_a_parent(worker: Process) -> None:
    """What a task does for another event is below that event's first span, whatever span is current."""

    def work() -> None:
        with traced_by(worker.tracer), span("outer", trace=OTHER, is_first=True):
            follow(TRACE)
            with span("claim"):
                pass

    in_a_task(work)
    assert worker.ids("claim")[::2] == (TRACE, first_span(TRACE).span)


def test_span_without_a_trace_begins_one(worker: Process) -> None:
    """A request that no event led to has a trace of its own, and its header too."""

    def work() -> str:
        with traced_by(worker.tracer), span("GET institutions", SpanKind.CLIENT):
            return trace_headers()["traceparent"]

    header = in_a_task(work)
    trace, sent, parent = worker.ids("GET institutions")
    assert parent is None
    assert header.startswith(f"00-{trace}-{sent}-")


def test_links_lead_to_other_events(worker: Process) -> None:
    """A claim that goes on with a newer event links to the first span of the older one."""
    link = SpanPlace(OTHER, "b7ad6b7169203331")
    with traced_by(worker.tracer), span("claim", trace=TRACE, links=[first_span(OTHER), None, link]):
        pass
    links = [(each.context.trace_id, each.context.span_id) for each in worker.spans["claim"].links]
    assert links == [(int(OTHER, 16), int(first_span(OTHER).span, 16)), (int(OTHER, 16), int(link.span, 16))]


def test_attributes_have_the_names_of_the_conventions(worker: Process) -> None:
    """What has no value is left out; nothing names a whole address."""
    with traced_by(worker.tracer):
        with span("GET", SpanKind.CLIENT, route="/x/{}", method="GET", institution="", host="service.example") as one:
            one.note(status=200, endpoint="details")
        with span("push", SpanKind.SERVER, route="/push"):
            pass
    assert dict(worker.spans["GET"].attributes or {}) == {
        "url.template": "/x/{}",
        "http.request.method": "GET",
        "server.address": "service.example",
        "http.response.status_code": 200,
        "callkeeper.endpoint": "details",
    }
    assert dict(worker.spans["push"].attributes or {}) == {"http.route": "/push"}


def test_error_is_exported_without_its_message(worker: Process) -> None:
    """Its type and the code places are; the message may hold what a person said."""
    with traced_by(worker.tracer), pytest.raises(ValueError, match="canary"), span("claim"):
        raise ValueError("canary-5550100001")
    found = worker.spans["claim"]
    assert not found.status.is_ok
    assert (found.attributes or {})["error.type"] == "ValueError"
    [event] = found.events
    assert event.name == "exception"
    assert "test_telemetry.py" in str(event.attributes) or "test_error_is_exported" in str(event.attributes)
    assert "canary" not in found.to_json()


def test_lost_lease_is_no_error(worker: Process) -> None:
    """It ends a claim in order: another worker goes on, or a note came."""
    with traced_by(worker.tracer), pytest.raises(WriteRefused), span("claim"):
        raise WriteRefused("c:cu-1:v", RefusedBy.NOTES)
    found = worker.spans["claim"]
    assert found.status.is_unset
    assert dict(found.attributes or {}) == {"callkeeper.lease_lost": "notes"}


def test_deadline_of_a_request_is_a_timeout_and_the_end_of_a_process_no_failure(worker: Process) -> None:
    """Both are a cancellation. A request is cancelled when its deadline is over, a claim when the process ends."""
    for kind, name in ((SpanKind.CLIENT, "GET"), (SpanKind.CONSUMER, "claim")):
        with traced_by(worker.tracer), pytest.raises(asyncio.CancelledError), span(name, kind):
            raise asyncio.CancelledError
    assert (worker.spans["GET"].attributes or {})["error.type"] == "timeout"
    assert worker.spans["claim"].status.is_unset
    assert not worker.spans["claim"].events


def test_outage_of_redis_has_no_code_place(worker: Process) -> None:
    """Whoever searches for code places finds bugs."""
    with traced_by(worker.tracer), pytest.raises(RedisError), span("claim"):
        raise RedisError("canary")
    assert (worker.spans["claim"].attributes or {})["error.type"] == "RedisError"
    assert not worker.spans["claim"].events


def test_all_processes_sample_the_same_traces() -> None:
    """A trace is exported whole or not at all, and the header says which. Nothing is shared for that."""
    flags = set()
    for _ in range(64):
        one, other = (Process(ParentBased(TraceIdRatioBased(0.5))) for _ in range(2))
        trace = new_trace()

        def claim(process: Process = other, followed: str = trace) -> str:
            follow(followed)
            with traced_by(process.tracer), span("claim"), span("GET"):
                return trace_headers()["traceparent"][-2:]

        with traced_by(one.tracer), span("push", trace=trace, is_first=True):
            pass
        is_sampled = int(in_a_task(claim), 16) & 1
        assert len(one.spans) == is_sampled
        assert len(other.spans) == 2 * is_sampled
        flags.add(is_sampled)
    assert flags == {0, 1}


def test_name_of_the_sender_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry's own variables come before our defaults."""
    assert resource("callkeeper-web", "web-1").attributes["service.name"] == "callkeeper-web"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "voices")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod")
    ours = resource("callkeeper-web", "web-1").attributes
    assert (ours["service.name"], ours["deployment.environment"]) == ("voices", "prod")
    assert ours["service.instance.id"] == "web-1"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """Return a collector."""
    with otlp_receiver() as running:
        yield running


@pytest.fixture
def in_production(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, log: Any) -> Callable[[], Any]:
    """Return what starts the telemetry of a worker whose environment names the collector."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")

    return partial(telemetry, "worker", log)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "256", "ValueError"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0", "ValueError"),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "nobody-5550100001", "RuntimeError"),
    ],
)
def test_setting_that_the_sdk_refuses_switches_telemetry_off(
    in_production: Callable[[], Any],
    monkeypatch: pytest.MonkeyPatch,
    logged: structlog.testing.LogCapture,
    name: str,
    value: str,
    error: str,
) -> None:
    """The process runs without it. The log names the variables that are set, never their values: some are secrets."""
    monkeypatch.setenv(name, value)
    with in_production(), span("claim") as made:
        assert not made.is_recorded
    [line] = logged.entries
    assert (line["event"], line["error"]) == ("telemetry_off", error)
    assert line["variables"] == sorted(["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TIMEOUT", name])
    assert value not in [str(each) for each in line.values()]


def test_hanging_collector_delays_nothing(in_production: Callable[[], Any], receiver: OtlpReceiver) -> None:
    """Spans are made while it hangs, more than the queue holds, and the end waits for a bounded time."""
    receiver.hangs = True
    with in_production():
        for _ in range(4000):
            with span("claim", trace=TRACE):
                pass
        until(lambda: receiver.asked, 10, "a request")
        began_s = time.monotonic()
    assert time.monotonic() - began_s < ENDS_WITHIN_S + 1


def is_asked_again(receiver: OtlpReceiver, before: int) -> bool:
    """Tell whether another request arrived."""
    return receiver.asked > before


def test_failing_collector_is_logged_seldom(
    in_production: Callable[[], Any],
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line a minute at most: a log must not fill up because of it. Headers that cannot be read are not shown."""
    receiver.status = 400
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "canary key=ab")
    with in_production():
        for _ in range(3):
            asked = receiver.asked
            with span("claim", trace=TRACE):
                pass
            until(partial(is_asked_again, receiver, asked), 10, "a request")
    assert len([each for each in caplog.messages if "Failed to export" in each]) == 1
    assert "canary" not in caplog.text


@pytest.mark.parametrize(("exporter", "is_sent"), [("", True), ("otlp", True), ("none", False), (" None ", False)])
def test_traces_are_switched_off_by_opentelemetrys_own_variable(
    exporter: str, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK reads it under its own launcher only; operators expect it to work here too."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", exporter)
    settings = WebSettings.load(
        {
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: canary-push-1f8b32d9-4c07a65e93d2",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        }
    )
    assert isinstance(telemetry_of(settings, "web", structlog.get_logger()), nullcontext) is not is_sent

"""A collector for tests: takes spans by OTLP over HTTP, and can fail or hang."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.waiting import until


@dataclass(frozen=True, slots=True)
class SentSpan:
    """One span as it arrived. Ids are in hexadecimal digits, times in seconds; ``links`` are traces and spans."""

    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, str | int]
    is_error: bool
    began_s: float


def words_of(attributes: Any) -> dict[str, str | int]:
    """Return attributes as a dictionary."""

    def value(pair: KeyValue) -> str | int:
        kind = pair.value.WhichOneof("value")
        found: str | int = getattr(pair.value, kind) if kind else ""
        return found

    return {pair.key: value(pair) for pair in attributes}


def spans_in(body: bytes) -> Iterator[SentSpan]:
    """Read the spans of a request."""
    for source in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = str(words_of(source.resource.attributes)["service.name"])
        for scope in source.scope_spans:
            for span in scope.spans:
                yield SentSpan(
                    service,
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    words_of(span.attributes),
                    span.status.code == 2,
                    span.start_time_unix_nano / 1e9,
                )


@dataclass(slots=True)
class OtlpReceiver:
    """What arrived. ``status`` is answered; with ``hangs`` nothing is."""

    url: str = ""
    status: int = 200
    hangs: bool = False
    traces: list[bytes] = field(default_factory=list)
    asked: int = 0

    @property
    def spans(self) -> list[SentSpan]:
        """Return all spans, by time."""
        return sorted((span for body in list(self.traces) for span in spans_in(body)), key=lambda span: span.began_s)


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Run a collector until the block ends."""
    receiver, is_over = OtlpReceiver(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.asked += 1
            if receiver.hangs:
                is_over.wait(60)
                return
            if receiver.status == 200:
                receiver.traces.append(body)
            self.send_response(receiver.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield receiver
    finally:
        receiver.status, receiver.hangs = 200, False
        is_over.set()
        _wait_for_senders()
        server.shutdown()
        serving.join()
        server.server_close()


def _wait_for_senders() -> None:
    """Let this process send what it still has: a thread that tries again draws from `random`, which upsets Hypothesis."""
    for thread in threading.enumerate():
        if thread.name in {"telemetry's end", "OtelBatchSpanRecordProcessor"}:
            thread.join(10)
            assert not thread.is_alive(), f"{thread.name} goes on after its test"


def spans_until(receiver: OtlpReceiver, name: str, within_s: float = 15.0) -> list[SentSpan]:
    """Wait until a span of this name has arrived; return all."""
    until(lambda: any(span.name == name for span in receiver.spans), within_s, f"the span {name}")
    return receiver.spans

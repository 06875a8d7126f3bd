"""OpenTelemetry with real processes: a collector takes traces over HTTP, or does not."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from callkeeper.service.tracing import first_span
from callkeeper_sandbox.service.access import Credentials
from tests.acceptance.test_canaries import _sensitive_words
from tests.harness.courier import SECRET, Receiver, receiving
from tests.harness.processes import KEY, Stack, end, stack
from tests.http_servers import serving
from tests.otlp_receiver import OtlpReceiver, SentSpan, otlp_receiver
from tests.waiting import until

SERVER, CLIENT, CONSUMER = 2, 3, 5


class Front:
    """Stands in front of the service: keeps the address and trace header of each request, and passes it on."""

    def __init__(self) -> None:
        self.service_url = ""
        self.known = threading.Event()
        self.seen: list[tuple[str, str]] = []
        self.client = httpx.Client(trust_env=False, timeout=10)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Return the service's answer, once the service is known."""
        self.known.wait(10)
        path = request.url.raw_path.decode()
        self.seen.append((path, request.headers.get("traceparent", "")))
        named = {k: v for k, v in request.headers.items() if k not in {"host", "content-length", "connection"}}
        return self.client.request(request.method, self.service_url + path, content=request.content, headers=named)


class Traced:
    """A stack whose processes have a collector."""

    def __init__(self, stack: Stack, front: Front, outcomes: Receiver, collector: OtlpReceiver) -> None:
        self.stack = stack
        self.front = front
        self.outcomes = outcomes
        self.collector = collector

    def spans(self, trace: str) -> list[SentSpan]:
        """Return the spans of a trace that have arrived."""
        return [span for span in self.collector.spans if span.trace == trace]

    def push_of(self, call: dict[str, Any], kind: str) -> SentSpan:
        """Wait for the span of a call's push."""

        def look() -> SentSpan | None:
            about = {"callkeeper.voice_id": call["voice_id"], "callkeeper.push": kind}
            found = (span for span in self.collector.spans if about.items() <= span.attributes.items())
            return next(found, None)

        return until(look, 20, f"the span of {kind}")

    def headers(self, call: dict[str, Any]) -> set[tuple[str, ...]]:
        """Return trace and span of the requests about a call and of its outcomes, as their headers say."""
        found = [header for path, header in self.front.seen if call["voice_id"] in path]
        found += [header for name, header in self.outcomes.traces if call["voice_id"] in name]
        return {tuple(header.split("-")[1:3]) for header in found}

    def logged(self, call: dict[str, Any]) -> set[tuple[str, str]]:
        """Return the event and trace of each log line about a call."""
        members = (member for member in self.stack.demo.members if member.name != "sandbox")
        lines = [
            json.loads(line) for member in members for line in member.log.read_text().splitlines() if line[:1] == "{"
        ]
        about = [line for line in lines if line.get("voice_id") == call["voice_id"] and "trace_id" in line]
        return {(line["event"], line["trace_id"]) for line in about}


@contextmanager
def traced_stack(data: Path, *, workers: int) -> Iterator[Traced]:
    """Run web, workers, a collector, and somebody who listens at both ends."""
    front = Front()
    with otlp_receiver() as collector, front.client, serving(front) as port, receiving() as outcomes:
        otel = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=canary-collector-key",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        worker = {"CALLKEEPER_SERVICE_URL": f"http://127.0.0.1:{port}", **outcomes.worker_environ, **otel}
        with stack(data, workers=workers, web_environ=otel, worker_environ=worker) as running:
            front.service_url = running.service_url
            front.known.set()
            yield Traced(running, front, outcomes, collector)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """Return a stack with two workers, for tests that do not stop it."""
    with traced_stack(tmp_path_factory.mktemp("traced"), workers=2) as running:
        yield running


def test_telemetry_joins_a_call_from_the_push_to_its_outcome(traced: Traced) -> None:
    """Spans of web and workers, the headers of all requests, the outcome and the log lines have the ids of the pushes."""
    traced.stack.fault("listing", "pass", latency_s=1.0, times=1)  # only its push leads to it
    call = traced.stack.call({"kind": "green", "after_s": 1}, end(4))
    traced.stack.settled(call)
    began, ended = (traced.push_of(call, kind) for kind in ("CallStart", "CallEnd"))
    traces = {began.trace, ended.trace}
    told = until(lambda: traced.outcomes.told(call["voice_id"])[-1:] == ["call.settled"], 20, "the outcome")
    assert told

    def exported() -> bool:
        spans = [span for trace in traces for span in traced.spans(trace)]
        is_delivered = any(span.attributes.get("callkeeper.message") == "call.settled" for span in spans)
        ids = {(span.trace, span.id) for span in spans}  # a span ends, and is sent, before its parent
        has_parents = all((span.trace, span.parent) in ids for span in spans if span.parent)
        return is_delivered and has_parents and traced.headers(call) <= ids

    until(exported, 20, "the spans of the outcome and of every request")
    assert len(traced.headers(call)) > 3
    assert {span.service for span in traced.spans(began.trace)} == {"callkeeper-web", "callkeeper-worker"}
    spans = [span for trace in traces for span in traced.spans(trace)]
    ids = {(span.trace, span.id) for span in spans}
    assert [span for span in spans if span.parent and (span.trace, span.parent) not in ids] == []
    assert {(span.name, span.kind) for span in spans if not span.parent} == {("POST /push", SERVER)}
    assert {(span.trace, span.id) for span in spans if not span.parent} == {first_span(trace) for trace in traces}
    assert traced.headers(call) <= {(span.trace, span.id) for span in spans if span.kind == CLIENT}
    logged = traced.logged(call)
    assert ("push_accepted", began.trace) in logged
    assert {"call_settled", "outcome_delivered"} <= {event for event, _ in logged}
    assert {trace for _, trace in logged} == traces
    claims = [span for span in spans if span.name == "claim"]
    assert {link for claim in claims for link in claim.links} == {first_span(began.trace)}


def test_telemetry_only_links_to_a_trace_from_outside(traced: Traced) -> None:
    """A sender that names one trace in all its pushes loses none of them, and cannot decide what is traced."""
    outside, key = (
        f"00-{'5' * 32}-{'7' * 16}-00",
        json.loads((traced.stack.data / "secrets.json").read_text())["push_key"],
    )
    events = []
    for name in ("outside-1", "outside-2"):
        body = {"Type": "CallStart", "InstitutionKey": KEY, "VoiceId": name, "PhoneNumber": "5550100009"}
        answer = traced.stack.http.post(
            f"{traced.stack.demo.web_url}/push", json=body, headers={"X-Push-Key": key, "traceparent": outside}
        )
        assert answer.status_code == 202, answer.text
        events.append(traced.push_of({"voice_id": name}, "CallStart"))
    assert len({"5" * 32, *(event.trace for event in events)}) == 3
    assert {event.links for event in events} == {(("5" * 32, "7" * 16),)}
    assert {event.parent for event in events} == {""}


def test_telemetry_has_no_personal_values(traced: Traced) -> None:
    """Promise 6: not one byte of what went to the collector says who called, or gives access to anything."""
    call = traced.stack.call({"kind": "mfa_validated", "after_s": 1}, end(3))
    traced.stack.settled(call)
    traced.push_of(call, "CallEnd")
    sent = b"".join(traced.collector.traces)
    secrets = json.loads((traced.stack.data / "secrets.json").read_text())
    canaries = _sensitive_words() | {
        *(secrets["push_key"], secrets["admin_password"], Credentials().password, Credentials().access_token),
        *(SECRET, "canary-collector-key", call["phone_number"], call["phone_number"][-7:]),
    }
    assert len(canaries) > 100
    assert [word[:4] for word in canaries if word.encode() in sent] == []
    assert KEY.encode() in sent
    assert call["voice_id"].encode() in sent
    paths = {str(span.attributes.get("url.template", "")) for span in traced.collector.spans}
    assert not any(re.search(r"[0-9a-f]{8}-", path) for path in paths)


def test_telemetry_that_hangs_delays_no_call_and_no_end(tmp_path: Path) -> None:
    """With a collector that takes connections and never answers, calls are settled and all processes end in time."""
    with traced_stack(tmp_path, workers=1) as hanging:
        hanging.collector.hangs = True
        call = hanging.stack.call({"kind": "green", "after_s": 1}, end(3))
        hanging.stack.settled(call, within_s=20)
        assert hanging.collector.asked
        for member in hanging.stack.demo.members:
            if member.name != "sandbox":
                assert member.stop() < 10
                assert member.process.poll() == 0, member.tail()

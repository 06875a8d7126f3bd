"""The spans of whole calls: one trace for each event, requests below the claims that sent them."""

from collections.abc import Iterator

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.asyncio import Redis

from callkeeper.app.telemetry import OtelTracer, _Ids
from callkeeper.calls.record import Phase
from callkeeper.service.tracing import first_span, traced_by
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.courier import Courier
from tests.harness.desk import DeskRig
from tests.harness.virtual_time import KEY, Rig
from tests.integration.whole_calls.test_following import END, END_EVENT, START, Spy, push
from tests.sandbox_fixtures import Asgi


class Sent:
    """The spans that a process has ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(id_generator=_Ids(), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = OtelTracer(provider)

    def of(self, trace: str) -> list[ReadableSpan]:
        """Return the spans of a trace, in the order in which they began."""
        found = [each for each in self.exporter.get_finished_spans() if trace_of(each) == trace]
        return sorted(found, key=lambda each: each.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of a name."""
        return [each for each in self.exporter.get_finished_spans() if each.name == name]


def trace_of(span: ReadableSpan) -> str:
    """Return the trace of a span."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def id_of(span: ReadableSpan) -> str:
    """Return the id of a span."""
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    """Return the id of a span's parent."""
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def word(span: ReadableSpan, name: str) -> object:
    """Return what a span says."""
    return (span.attributes or {}).get(name)


@pytest.fixture
def sent() -> Iterator[Sent]:
    """Trace everything that this process does."""
    sent = Sent()
    with traced_by(sent.tracer):
        yield sent


async def test_trace_of_a_call_shows_what_was_decided_and_sent(sandbox_asgi: Asgi, redis: Redis, sent: Sent) -> None:
    """Claims are below the push. Below each are its decisions, and the requests with what became of them."""
    spy = Spy(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, transport=spy)
    call = rig.stage.call(Happening(Kind.GREEN, 20), END)
    await push(rig, call, "CallStart", START)
    await rig.run(61)
    spans = {id_of(each): each for each in sent.of(START)}
    claims = [each for each in spans.values() if each.name == "claim"]
    assert {parent_of(claim) for claim in claims} == {first_span(START).span}
    assert {(word(claim, "callkeeper.institution"), word(claim, "callkeeper.voice_id")) for claim in claims} == {
        (call.institution_key, call.voice_id)
    }
    others = [each for each in spans.values() if each.name != "claim"]
    assert all(parent_of(each) in spans for each in others)
    [assign] = [each for each in others if each.name == "POST /external/calls/assign"]
    effect = spans[parent_of(assign) or ""]
    assert (effect.name, word(effect, "callkeeper.effect"), word(effect, "callkeeper.state")) == (
        "send assign",
        "assign",
        "applied",
    )
    checks = [each for each in others if word(each, "callkeeper.endpoint") == "check"]
    assert len(checks) == (await rig.record(call)).plan.checks_used > 0
    assert {each.name for each in checks} == {"GET /external/calls/{}/details"}
    assert {word(each, "http.response.status_code") for each in checks} == {200}
    steps = {word(each, "callkeeper.step") for each in others if each.name == "decide"}
    assert {"Intend", "Send", "Check", "Wait", "Read"} <= steps


async def test_header_of_a_request_names_its_span(sandbox_asgi: Asgi, redis: Redis, sent: Sent) -> None:
    """Whoever has the service's log finds the span of a request, and the other way round."""
    spy = Spy(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, transport=spy)
    call = rig.stage.call(END)
    await push(rig, call, "CallStart", START)
    await rig.run(30)
    headers = {tuple(header.split("-")[1:3]) for path, header in spy.sent if call.voice_id in path or "assign" in path}
    requests = {(trace_of(each), id_of(each)) for each in sent.of(START) if "/calls/" in each.name}
    assert headers == requests
    assert len(headers) > 2


async def test_claim_links_to_the_events_before(rig: Rig, sent: Sent) -> None:
    """The end of a call is an event of its own; its claim leads back to the trace of the start."""
    call = rig.stage.call(Happening(Kind.GREEN, 20), END)
    await push(rig, call, "CallStart", START)
    await rig.run(61)
    await push(rig, call, "CallEnd", END_EVENT)
    await rig.run(20)
    assert (await rig.record(call)).life.phase is Phase.SETTLED
    first, *later = [each for each in sent.of(END_EVENT) if each.name == "claim"]
    assert parent_of(first) == first_span(END_EVENT).span
    assert [(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in first.links] == [
        first_span(START)
    ]
    assert all(not each.links for each in later)
    assert any(word(each, "callkeeper.reason") == "authenticated" for each in sent.of(END_EVENT))


async def test_trace_that_no_event_began_begins_with_the_first_claim(rig: Rig, sent: Sent) -> None:
    """A call that only the queue showed: its first claim has no parent, and its later ones are below it."""
    call = await rig.begin_call(END, run_s=30, is_pushed=False)
    trace = (await rig.record(call)).trace
    assert trace is not None
    first, *later = [each for each in sent.of(trace) if each.name == "claim"]
    assert (id_of(first), parent_of(first)) == (first_span(trace).span, None)
    assert later
    assert {parent_of(each) for each in later} == {id_of(first)}


async def test_look_at_a_queue_has_a_trace_of_its_own(rig: Rig, sent: Sent) -> None:
    """It is for an institution, not for a call."""
    await rig.begin_call(END, run_s=10, is_pushed=False)
    looks = sent.named("list queue")
    assert looks
    assert {parent_of(look) for look in looks} == {None}
    for look in looks:
        requests = [each for each in sent.of(trace_of(look)) if each is not look]
        assert {each.name for each in requests} <= {"GET /external/calls/queue", "POST /external/token/request"}
        assert word(look, "callkeeper.institution") == KEY


async def test_statement_begins_the_trace_of_what_follows_from_it(desk: DeskRig, sent: Sent) -> None:
    """The action's id is the trace: of the span at the desk, of the claim and of the enroll."""
    call = await desk.begin_call(END, run_s=10, is_pushed=False)
    said = await desk.say(call, "verified", person_id="p-1", validation_type="OneTimePasswordAuth")
    await desk.run(10)
    trace = said.json()["watch"].rpartition("/")[2]
    first, *others = sent.of(trace)
    assert (first.name, id_of(first)) == ("statement verified", first_span(trace).span)
    assert "claim" in {each.name for each in others}


async def test_statement_that_is_repeated_has_one_span(desk: DeskRig, sent: Sent) -> None:
    """A client repeats it under one Idempotency-Key before a worker has read it. The id of a span occurs once."""
    call = await desk.begin_call(END, run_s=10, is_pushed=False)
    for _ in range(2):
        said = await desk.say(call, "distrusted", key="4711", reason="wrong answers")
    trace = said.json()["action_id"]
    assert [id_of(each) for each in sent.of(trace)].count(first_span(trace).span) == 1


async def test_refused_request_is_a_failed_span(sandbox_asgi: Asgi, redis: Redis, sent: Sent) -> None:
    """A status from 400 on and a lost connection are errors of the request's span, and its claim is none."""

    class Refusing(httpx.AsyncBaseTransport):
        def __init__(self) -> None:
            self.turns = 0

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if "/details" not in request.url.path:
                return await sandbox_asgi.transport.handle_async_request(request)
            self.turns += 1
            if self.turns % 2:
                return httpx.Response(500, text="canary-body")
            raise httpx.ReadError("canary-text")

    rig = Rig(sandbox_asgi, redis, transport=Refusing())
    call = rig.stage.call(END)
    await push(rig, call, "CallStart", START)
    await rig.run(30)
    requests = [each for each in sent.of(START) if "details" in each.name]
    assert {word(each, "error.type") for each in requests} == {"500", "ReadError"}
    assert not any(each.status.is_ok or each.status.is_unset for each in requests)
    assert all(each.status.is_unset for each in sent.of(START) if each.name == "claim")
    assert "canary" not in "".join(each.to_json() for each in sent.exporter.get_finished_spans())


async def test_outcome_is_posted_in_the_trace_of_its_call(courier: Courier, sent: Sent) -> None:
    """The delivery is below the event that the call was handled for last; a refused post is an error."""
    call = courier.stage.call(Happening(Kind.GREEN, 20), END)
    await push(courier, call, "CallStart", START)
    await courier.run(61)
    await push(courier, call, "CallEnd", END_EVENT)
    await courier.run(20)
    trace = (await courier.record(call)).trace
    assert trace == END_EVENT
    posts = [each for each in sent.named("POST outcome") if trace_of(each) == END_EVENT]
    assert "call.settled" in {word(each, "callkeeper.message") for each in posts}
    assert {word(each, "http.response.status_code") for each in posts} <= {200, 204}
    deliveries = {
        id_of(each): parent_of(each) for each in sent.named("deliver outcomes") if trace_of(each) == END_EVENT
    }
    assert {parent_of(each) for each in posts} <= deliveries.keys()
    assert set(deliveries.values()) == {first_span(END_EVENT).span}


async def test_bug_is_shown_with_its_place(sandbox_asgi: Asgi, redis: Redis, sent: Sent) -> None:
    """An error tracker that takes spans sees type and code places of a failed step, and no message."""

    class Broken(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if "/details" in request.url.path:
                raise RuntimeError("canary-5550100001")
            return await sandbox_asgi.transport.handle_async_request(request)

    rig = Rig(sandbox_asgi, redis, transport=Broken())
    await push(rig, rig.stage.call(END), "CallStart", START)
    await rig.run(10)
    failed = [each for each in sent.of(START) if each.name == "claim" and not each.status.is_unset]
    assert failed
    assert {word(each, "error.type") for each in failed} == {"RuntimeError"}
    [event] = failed[0].events
    assert "handle_async_request" in str((event.attributes or {})["exception.stacktrace"])
    assert "canary" not in "".join(each.to_json() for each in sent.exporter.get_finished_spans())

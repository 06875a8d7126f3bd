"""``POST /push`` over ASGI: every answer, and what was recorded before it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Unpack

import httpx
import msgspec
import pytest
from fakeredis import FakeAsyncRedis, FakeRedis
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError, ResponseError
from redis.retry import Retry
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message, Receive
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.metrics.counting import field_name
from callkeeper.calls.store.attempt_limiter import ALLOWED
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import DOCTOR, Intake
from callkeeper.service.push_event import PushEvent, parse_header_settings
from callkeeper.service.tracing import SpanAttributes, SpanKind, TraceSpan, is_trace, traced_by
from receiver.authentication import PushAuthentication
from receiver.push import PushCounting, PushEndpoint, lag_of

SECRET = "the-configured-push-secret"
AUTHENTIC = {"X-Push-Key": SECRET}
EVENT = {"Type": "CallStart", "VoiceId": "voice-1", "InstitutionKey": "cu-1", "PhoneNumber": "+15550100"}
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
AUTHENTICATION = PushAuthentication(parse_header_settings(f"X-Push-Key: {SECRET}"))


class Failing(Intake):
    """An intake whose first attempts fail."""

    def __init__(self, redis: FakeAsyncRedis, *failures: Exception) -> None:
        super().__init__(redis, within_s=60)  # on a busy machine a hundred events take more than a second
        self.failures = list(failures)
        self.event_ids: list[str] = []
        self.tried_at_s: list[float] = []
        self.has_given_wake_back = False

    async def record(self, event: PushEvent, *, event_id: str) -> bool:
        """Fail as often as it was told to, then record."""
        self.event_ids.append(event_id)
        self.tried_at_s.append(asyncio.get_running_loop().time())
        if self.failures:
            raise self.failures.pop(0)
        return await super().record(event, event_id=event_id)

    async def clear_wake(self) -> None:
        """Note that the wake marker was given back."""
        self.has_given_wake_back = True
        await super().clear_wake()


def absent_redis() -> Redis:
    """Return a connection to a port where nobody listens."""
    return Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0), socket_timeout=1)


@pytest.fixture
def jobs() -> FakeRedis:
    """Return the Redis that jobs are enqueued to."""
    return FakeRedis()


@pytest.fixture
def intake(fake_redis: FakeAsyncRedis) -> Failing:
    """Return an intake that does not fail until told to."""
    return Failing(fake_redis)


@pytest.fixture
def endpoint(intake: Failing, jobs: FakeRedis, log: FilteringBoundLogger) -> PushEndpoint:
    """Return the endpoint under test."""
    return PushEndpoint(AUTHENTICATION, intake, Waker(jobs), log, now=lambda: NOW, pauses_s=(0, 0))


@pytest.fixture
async def client(endpoint: PushEndpoint) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the endpoint."""
    async with client_of(endpoint) as client:
        yield client


def client_of(endpoint: PushEndpoint) -> httpx.AsyncClient:
    """Return a client of one endpoint at /push."""
    app = Starlette(routes=[Route("/push", endpoint, methods=["POST"])])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://receiver")


async def recorded(redis: FakeAsyncRedis) -> list[dict[str, object]]:
    """Return the event log."""
    entries = await redis.zrange(Keys().events, 0, -1)
    return [msgspec.json.decode(entry) for entry in entries if isinstance(entry, bytes)]


async def test_push_answers_202_once_recorded(client: httpx.AsyncClient, fake_redis: FakeAsyncRedis) -> None:
    """The answer is small, fixed and carries the id under which the event stands in Redis. Promise 1."""
    answer = await client.post("/push", json=EVENT, headers=AUTHENTIC)
    assert answer.status_code == 202
    assert answer.headers["content-type"] == "application/json"
    [entry] = await recorded(fake_redis)
    assert answer.json() == {"accepted": True, "event_id": entry["id"]}


async def test_push_enqueues_one_job_for_many_events(client: httpx.AsyncClient, jobs: FakeRedis) -> None:
    """B1: a hundred events at once enqueue one job."""
    answers = await asyncio.gather(*(client.post("/push", json=EVENT, headers=AUTHENTIC) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {202}
    assert jobs.llen("rq:queue:calls:2") == 1


@pytest.mark.parametrize(
    "headers",
    [{}, {"X-Push-Key": "wrong"}, {"X-Push-Key": SECRET[:-1]}, {"X-Push-Key": b"\xff\xfe"}],
    ids=["none", "wrong", "prefix", "non-ascii"],
)
async def test_push_answers_401_whatever_the_body_is(
    headers: dict[str, str], client: httpx.AsyncClient, logged: LogCapture
) -> None:
    """A1, A2: a request without the right headers gets one fixed answer whatever its body is, and is counted."""
    answer = await client.post("/push", content=b"\xff not json", headers=headers)
    assert answer.status_code == 401
    refusal = answer.json()
    assert (refusal["accepted"], refusal["error"], refusal["field"]) == (False, "unauthorized", "request headers")
    assert answer.headers["connection"] == "close"
    assert [entry["reason"] for entry in logged.entries] == ["credentials"]


async def test_push_ignores_strangers_and_never_the_real_sender(client: httpx.AsyncClient, logged: LogCapture) -> None:
    """A1: after ten failures an address gets 429, except for requests with the right headers."""
    for n in range(3 * ALLOWED):
        answer = await client.post("/push", json=EVENT, headers={"X-Push-Key": f"guess-{n}"})
        assert answer.status_code == (401 if n < ALLOWED else 429)
        assert (await client.post("/push", json=EVENT, headers=AUTHENTIC)).status_code == 202
    assert int(answer.headers["retry-after"]) > 0
    refused = [entry["event"] for entry in logged.entries if entry["event"] != "push_accepted"]
    assert refused == ["push_refused"] * (ALLOWED - 1) + ["attempts_limited", "push_refused"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"])
async def test_push_answers_405_to_other_methods(method: str, client: httpx.AsyncClient) -> None:
    """A5: events are posted."""
    answer = await client.request(method, "/push", headers=AUTHENTIC)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "text/html+json"}, 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
        ({"Content-Type": "Application/JSON; charset=utf-8"}, 202),
        ({"Content-Type": "application/cloudevents+json"}, 202),
        ({"Content-Type": "text/json; charset=utf-8"}, 202),
        ({"Content-Type": ""}, 202),
        ({}, 202),
    ],
)
async def test_push_takes_uncompressed_json_only(
    headers: dict[str, str], status: int, client: httpx.AsyncClient
) -> None:
    """A5: another content type gets 415; a missing or empty one counts as JSON."""
    answer = await client.post("/push", content=msgspec.json.encode(EVENT), headers=AUTHENTIC | headers)
    assert answer.status_code == status


@pytest.mark.parametrize("declared", ["16385", "9" * 5000], ids=["over the cap", "no number that Python reads"])
async def test_push_refuses_a_declared_length_before_reading(endpoint: PushEndpoint, declared: str) -> None:
    """A6: Content-Length over the cap is 413, and not one byte of the body is taken."""

    async def receive() -> Message:
        raise AssertionError("the body was read")

    assert await status_of(endpoint, receive, [(b"content-length", declared.encode())]) == 413


async def test_push_stops_reading_at_the_cap(endpoint: PushEndpoint) -> None:
    """A6: a body without a declared length is 413 at the first chunk over the cap; the rest is never taken."""
    taken = 0

    async def receive() -> Message:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 1024, "more_body": True}

    assert await status_of(endpoint, receive, []) == 413
    assert taken == 17


@pytest.mark.parametrize(("length", "status"), [(16_384, 202), (16_385, 413)])
async def test_push_accepts_a_body_of_exactly_the_cap(endpoint: PushEndpoint, length: int, status: int) -> None:
    """The cap itself is allowed, one byte more is not. A message that does not say that more follows is the last one."""
    messages: list[Message] = [{"type": "http.request", "body": msgspec.json.encode(EVENT).ljust(length)}]

    async def receive() -> Message:
        return messages.pop(0)

    assert await status_of(endpoint, receive, []) == status


async def test_push_forgets_a_client_that_left(
    endpoint: PushEndpoint, fake_redis: FakeAsyncRedis, logged: LogCapture
) -> None:
    """A8: an incomplete body is not recorded, not accepted, and no error."""
    messages: list[Message] = [
        {"type": "http.request", "body": msgspec.json.encode(EVENT), "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    assert await status_of(endpoint, receive, []) == 400
    assert await recorded(fake_redis) == []
    assert [(entry["reason"], entry["log_level"]) for entry in logged.entries] == [("client_left", "info")]


async def status_of(endpoint: PushEndpoint, receive: Receive, headers: list[tuple[bytes, bytes]]) -> int:
    """Run one authentic request whose body comes from ``receive``, and return the status of its answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"x-push-key", SECRET.encode()), *headers]
    await endpoint({"type": "http", "method": "POST", "headers": headers}, receive, send)
    status: int = sent[0]["status"]
    return status


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", "body"),
        (b"[" * 10_000, "body"),
        (b'{"Type":"CallStart","InstitutionKey":"cu-1","VoiceId":"canary/../7f3a"}', "VoiceId"),
    ],
    ids=["empty", "nested", "id"],
)
async def test_push_answers_400_naming_the_field(
    content: bytes, field: str, client: httpx.AsyncClient, logged: LogCapture, fake_redis: FakeAsyncRedis
) -> None:
    """A9, A10: the answer says which field and what is expected; neither it nor the log repeats what was sent."""
    answer = await client.post("/push", content=content, headers=AUTHENTIC)
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert "canary" not in answer.text + str(logged.entries)
    assert await recorded(fake_redis) == []


@pytest.mark.parametrize(
    "failure",
    [RedisConnectionError(), TimeoutError(), OSError(), ReadOnlyError("READONLY"), ResponseError("OOM")],
    ids=lambda failure: type(failure).__name__,
)
async def test_push_waits_a_moment_for_redis(
    failure: Exception, intake: Failing, jobs: FakeRedis, log: FilteringBoundLogger
) -> None:
    """C1, C3: if Redis returns in time, the event is accepted; every attempt uses the same id."""
    endpoint = PushEndpoint(AUTHENTICATION, intake, Waker(jobs), log, now=lambda: NOW, pauses_s=(0.003, 0.006))
    intake.failures = [failure, failure]
    async with client_of(endpoint) as client:
        assert (await client.post("/push", json=EVENT, headers=AUTHENTIC)).status_code == 202
    assert len(intake.event_ids) == 3
    assert len(set(intake.event_ids)) == 1
    first_s, second_s, third_s = intake.tried_at_s
    assert second_s - first_s > 0.002
    assert third_s - second_s > 0.005


async def test_push_answers_503_while_redis_is_away(
    client: httpx.AsyncClient, intake: Failing, logged: LogCapture
) -> None:
    """C1, C3: after the last attempt the answer is 503 with Retry-After, an alert is logged, and never a 2xx."""
    intake.failures = [RedisError(f"secret detail {n}") for n in range(3)]
    answer = await client.post("/push", json=EVENT, headers=AUTHENTIC)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    [entry] = logged.entries
    assert (entry["event"], entry["log_level"], entry["error"]) == ("push_not_recorded", "error", "RedisError")
    assert "secret detail" not in str(entry) + answer.text


async def test_push_stands_when_nobody_can_be_woken(
    intake: Failing, log: FilteringBoundLogger, logged: LogCapture, fake_redis: FakeAsyncRedis
) -> None:
    """If enqueueing fails, the answer is still 202, and the next event may enqueue."""
    endpoint = PushEndpoint(AUTHENTICATION, intake, Waker(absent_redis()), log, now=lambda: NOW)
    async with client_of(endpoint) as client:
        answer = await client.post("/push", json=EVENT, headers=AUTHENTIC)
    assert answer.status_code == 202
    assert intake.has_given_wake_back
    assert not await fake_redis.exists(Keys().wake)
    assert "wake_failed" in {entry["event"] for entry in logged.entries}


async def test_push_tells_when_the_previous_headers_are_used(
    intake: Failing, jobs: FakeRedis, log: FilteringBoundLogger, logged: LogCapture
) -> None:
    """A3: during a rotation the old headers are accepted, and the log shows that they still are in use."""
    previous = parse_header_settings("X-Push-Key: the-secret-before-it")
    current = parse_header_settings(f"X-Push-Key: {SECRET}")
    endpoint = PushEndpoint(PushAuthentication(current, previous), intake, Waker(jobs), log, now=lambda: NOW)
    async with client_of(endpoint) as client:
        answer = await client.post("/push", json=EVENT, headers={"X-Push-Key": "the-secret-before-it"})
    assert answer.status_code == 202
    assert logged.entries[0]["event"] == "push_previous_headers_used"


async def test_push_logs_ids_and_nothing_personal(client: httpx.AsyncClient, logged: LogCapture) -> None:
    """Promise 6: neither the caller's number nor the push secret is in the log."""
    await client.post("/push", json=EVENT, headers=AUTHENTIC)
    assert logged.entries[0]["voice_id"] == "voice-1"
    assert "5550100" not in str(logged.entries)
    assert SECRET not in str(logged.entries)


@dataclass(frozen=True, slots=True)
class Counted(PushCounting):
    """Notes what is counted."""

    seen: list[str] = field(default_factory=list)

    def accepted(self, event: PushEvent, received_at: datetime, took_s: float) -> None:
        """Note an event."""
        assert 0 <= took_s < 60
        self.seen.append(event.type)

    def refused(self, reason: str) -> None:
        """Note a refusal."""
        self.seen.append(reason)


async def test_every_answer_is_counted_once(intake: Failing, jobs: FakeRedis, log: FilteringBoundLogger) -> None:
    """Accepted events by type, refusals by reason, also those of a sender who tries too often."""
    counted = Counted()
    endpoint = PushEndpoint(AUTHENTICATION, intake, Waker(jobs), log, now=lambda: NOW, pauses_s=(), counting=counted)
    async with client_of(endpoint) as client:
        await client.post("/push", json=EVENT, headers=AUTHENTIC)
        await client.post("/push", json={}, headers=AUTHENTIC)
        for _ in range(ALLOWED + 2):
            await client.post("/push", json=EVENT)
        intake.failures = [ReadOnlyError("READONLY")]
        await client.post("/push", json=EVENT, headers=AUTHENTIC)
    await status_of(endpoint, leave, [])
    assert counted.seen == ["CallStart", "unreadable", *["credentials"] * (ALLOWED + 2), "not_recorded", "client_left"]


async def leave() -> Message:
    """End the connection before the body is complete."""
    return {"type": "http.disconnect"}


class Spans:
    """A tracer that keeps what its spans say, and is each of them."""

    is_recorded = True

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    @contextmanager
    def span(self, name: str, kind: SpanKind, attributes: SpanAttributes, **more: Any) -> Iterator[TraceSpan]:
        """Keep how it began."""
        self.said.append({"name": name, "kind": kind, **attributes, **more})
        yield self

    def note(self, **attributes: Unpack[SpanAttributes]) -> None:
        """Keep more of it."""
        self.said[-1] |= attributes

    def fail(self, kind: str) -> None:
        """Keep how it failed."""
        self.said[-1]["failed"] = kind

    def header(self) -> None:
        """Return none: a push sends no request."""


async def test_span_of_a_push_says_what_became_of_it(
    intake: Failing, jobs: FakeRedis, log: FilteringBoundLogger, logged: LogCapture
) -> None:
    """It begins the trace that has the event's id, and has the ids and the status, as the log line."""
    endpoint, spans = PushEndpoint(AUTHENTICATION, intake, Waker(jobs), log, now=lambda: NOW, pauses_s=()), Spans()
    by_alternate_id = {"Type": "CallStart", "AlternateVoiceId": "alt-1", "InstitutionKey": "cu-1", "IsTest": True}
    with traced_by(spans):
        async with client_of(endpoint) as client:
            await client.post("/push", json=by_alternate_id, headers=AUTHENTIC)
            await client.post("/push", json={}, headers=AUTHENTIC)
            intake.failures = [ReadOnlyError("READONLY")]
            await client.post("/push", json=EVENT, headers=AUTHENTIC)
    began = {"name": "POST /push", "kind": SpanKind.SERVER, "method": "POST", "route": "/push"}
    accepted, unreadable, failed = ({**said, "trace": None} for said in spans.said)
    began |= {"is_first": True, "links": [], "trace": None}
    assert accepted == began | {"institution": "cu-1", "voice_id": "alt-1", "push": "sample", "status": 202}
    assert unreadable == began | {"status": 400, "failed": "unreadable"}
    push = {"institution": "cu-1", "voice_id": "voice-1", "push": "CallStart"}
    assert failed == began | push | {"status": 503, "failed": "not_recorded"}
    assert [said["trace"] for said in spans.said[::2]] == intake.event_ids
    line = logged.entries[0]
    assert (line["event_id"], line["trace_id"], line["is_test"]) == (intake.event_ids[0], intake.event_ids[0], True)
    assert is_trace(intake.event_ids[0])


LAGS = {
    "late": ("2026-11-21T11:59:57Z", 3.0),
    "by a clock that is ahead": ("2026-11-21T12:00:02+00:00", 0.0),
    "without a zone": ("2026-11-21T11:59:57", 3.0),
    "an hour late": ("2026-11-21T11:00:00Z", 3600.0),
    "later": ("2026-11-21T10:59:59Z", None),
    "in another zone": ("2026-11-21T13:00:01Z", None),
    "no time": ("noon", None),
    "none": (None, None),
}


@pytest.mark.parametrize(("written", "lag_s"), LAGS.values(), ids=LAGS)
def test_delay_of_a_push_is_measured_if_its_time_is_plausible(written: str | None, lag_s: float | None) -> None:
    """A time without a zone is taken for UTC. An end is measured by the time of the end."""
    start = PushEvent(type="CallStart", institution_key="cu-1", start_date_time=written)
    lag = lag_of(start, NOW)
    assert (None if lag is None else lag.total_seconds()) == lag_s
    assert lag_of(msgspec.structs.replace(start, start_date_time="noon", end_date_time=written), NOW) == lag


def test_recorded_push_is_counted_and_its_delay_measured() -> None:
    """The time of a sample says nothing of how fast the service pushes."""
    counting = PushCounting()
    event = PushEvent(type="CallEnd", institution_key="cu-1", voice_id="v-1", end_date_time="2026-11-21T11:59:57Z")
    counting.accepted(event, NOW, 0.25)
    counting.accepted(event, NOW, 0.25)
    sample = msgspec.structs.replace(event, is_test=True, end_date_time="2026-11-21T11:59:00Z")
    counting.accepted(sample, NOW, 0.5)
    counting.accepted(msgspec.structs.replace(sample, institution_key=DOCTOR), NOW, 0.5)
    counting.accepted(PushEvent(type="Moved", institution_key="cu-1"), NOW, 0.5)
    batch = counting.figures.batch()
    counted = {
        kind: batch.increments[field_name("pushes", (kind,))] for kind in ("CallEnd", "sample", "doctor", "other")
    }
    assert counted == {"CallEnd": 2, "sample": 1, "doctor": 1, "other": 1}
    assert batch.increments[field_name("push_answer_seconds", (), "sum")] == 2_000_000
    assert batch.increments[field_name("push_lag_seconds", (), "sum")] == 6_000_000
    assert batch.seen == {}


@pytest.mark.parametrize(
    ("reason", "contradicted"),
    [
        ("credentials", []),
        ("media_type", [("push-media-type", "push-not-json")]),
        ("unreadable", [("push-fields", "push-unreadable")]),
        ("too_large", [("push-media-type", "push-too-large")]),
    ],
)
def test_refused_push_is_counted_and_contradicts_what_is_assumed(
    reason: str, contradicted: list[tuple[str, str]]
) -> None:
    """Only one with the right header: a stranger's says nothing of the service."""
    counting = PushCounting()
    counting.refused(reason)
    batch = counting.figures.batch()
    assert batch.increments == {field_name("pushes_refused", (reason,)): 1}
    assert [(each.assumption, each.answer) for each in batch.seen] == contradicted


async def test_trace_from_outside_is_not_the_events_id(client: httpx.AsyncClient, intake: Failing) -> None:
    """Two pushes that name one trace are two events; with the sender's trace as id the second would be a repetition."""
    outside = {"traceparent": f"00-{'5' * 32}-{'7' * 16}-01"}
    for _ in range(2):
        assert (await client.post("/push", json=EVENT, headers=AUTHENTIC | outside)).status_code == 202
    assert len({*intake.event_ids, "5" * 32}) == 3

"""``POST /push``: authenticates, parses and records an event, and answers. Workers do the rest.

202 means that Redis has confirmed the record. The service sends an event only once (Spec: Events 1), so whatever can be
understood is accepted. If Redis is down, the endpoint retries for a short time. A lost event delays a call but does not
lose it, because the queue will show it.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from redis.exceptions import RedisError
from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.store.attempt_limiter import AttemptLimiter, network_of
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.push_intake import CALL_END, CALL_START, DOCTOR, Intake
from callkeeper.service.push_event import PushEvent, PushUnreadable, parse_push
from callkeeper.service.tracing import HEADER, SpanAttributes, SpanKind, TraceSpan, place_in, span
from receiver import responses
from receiver.authentication import PushAuthentication

TRACE: Final = HEADER.encode()

BODY_LIMIT: Final = 16 * 1024
"""In bytes. A push has some 300."""

_MOST_DIGITS: Final = 18
"""How many digits of a declared length are read. Python refuses to convert thousands of them."""


class BodyTooLarge(Exception):
    """The body is, or declares to be, longer than the limit."""


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(receive: Receive, *, declared: bytes | None) -> bytes:
    """Return the whole body.

    ``declared`` is the Content-Length header, if there is one.

    Raises:
        BodyTooLarge: By its declared length, before anything is read; else at the limit.
        ClientLeft: The connection ended mid-body.
    """
    if declared is not None and declared.isdigit() and int(declared[:_MOST_DIGITS]) > BODY_LIMIT:
        raise BodyTooLarge
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        chunk: bytes = message.get("body", b"")
        body += chunk
        if len(body) > BODY_LIMIT:
            raise BodyTooLarge
        if not message.get("more_body"):
            return body


DISCARD_WITHIN_S: Final = 0.5
"""How long to wait for the body of a request that was refused by its headers, in seconds."""


async def discard_body(receive: Receive, *, declared: bytes | None) -> None:
    """Wait for a body that nobody needs, as far as `read_body` would read it.

    If the connection were closed while the client still sends, it would be reset, and the client might not see why it is
    refused.
    """
    with suppress(BodyTooLarge, ClientLeft, TimeoutError):
        async with asyncio.timeout(DISCARD_WITHIN_S):
            await read_body(receive, declared=declared)


FARTHEST: Final = timedelta(hours=1)
"""If the time in a push differs from now by more than this, its delay is not measured."""


class PushCounting:
    """Counts and measures pushes."""

    def __init__(self, figures: Figures | None = None) -> None:
        self.figures = Figures() if figures is None else figures

    def accepted(self, event: PushEvent, received_at: datetime, took_s: float) -> None:
        """Count a recorded event, how long recording took, and its delay since the time in it."""
        self.figures.count(figure.PUSHES, kind_of(event))
        self.figures.observe(figure.PUSH_ANSWER, took_s)
        lag = None if event.is_test else lag_of(event, received_at)
        if lag is not None:
            self.figures.observe(figure.PUSH_LAG, lag.total_seconds())

    def refused(self, reason: str) -> None:
        self.figures.count(figure.PUSHES_REFUSED, reason)
        if reason in _CONTRADICTING:
            self.figures.see(*_CONTRADICTING[reason])


_CONTRADICTING: Final = {
    "media_type": ("push-media-type", "push-not-json"),
    "unreadable": ("push-fields", "push-unreadable"),
    "too_large": ("push-media-type", "push-too-large"),
}
"""What a refused push with the right header contradicts."""


def kind_of(event: PushEvent) -> str:
    """Return the kind of an event as a figure and a span name it."""
    if event.is_test:
        return "doctor" if event.institution_key == DOCTOR else "sample"
    return event.type if event.type in {CALL_START, CALL_END} else "other"


def lag_of(event: PushEvent, received_at: datetime) -> timedelta | None:
    """Return the delay of a push since the time that it names; None if there is no plausible one."""
    written = event.end_date_time or event.start_date_time
    if written is None:
        return None
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        return None
    lag = received_at - (at if at.tzinfo else at.replace(tzinfo=UTC))
    return max(lag, timedelta()) if abs(lag) <= FARTHEST else None


PAUSES_S: Final = (0.1, 0.4)
"""Seconds between the attempts to record an event."""

_ABOUT: Final = SpanAttributes(method="POST", route="/push")

_REDIS_AWAY: Final = (RedisError, OSError, TimeoutError)


class NotRecorded(Exception):
    """Redis did not confirm the event. The cause says why."""


def utc_now() -> datetime:
    """Return the present, in UTC."""
    return datetime.now(UTC)


class PushEndpoint:
    """Receives the events that the service posts. Spec: Events."""

    def __init__(
        self,
        authentication: PushAuthentication,
        intake: Intake,
        waker: Waker,
        log: FilteringBoundLogger,
        *,
        now: Callable[[], datetime] = utc_now,
        pauses_s: Sequence[float] = PAUSES_S,
        counting: PushCounting | None = None,
    ) -> None:
        self._authentication = authentication
        self._intake = intake
        self._waker = waker
        self._log = log
        self._now = now
        self._pauses_s = pauses_s
        self._counting = PushCounting() if counting is None else counting
        self._limiter = AttemptLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: the endpoint of ``Route("/push", ..., methods=["POST"])``.

        It is an ASGI application, because Starlette's wrapper around a plain function costs as much as parsing the event.
        """
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(pairs)
        refusal = self._check_headers(scope, pairs, headers)
        if refusal is not None:
            await discard_body(receive, declared=headers.get(b"content-length"))
        answer = refusal or await self._receive(receive, headers)
        await answer(scope, receive, send)

    def _check_headers(
        self, scope: Scope, pairs: list[tuple[bytes, bytes]], headers: Mapping[bytes, bytes]
    ) -> Response | None:
        """Return the answer to a request whose body is not needed; None if it is."""
        sender = self._authentication.recognise(pairs)
        if sender is None:
            return self._refuse_sender(network_of(scope.get("client")))
        if not is_plain_json(headers):
            return self._refuse("media_type", responses.unsupported_media_type())
        if sender == "previous":
            self._log.info("push_previous_headers_used")
        return None

    def _refuse(self, reason: str, answer: Response, **more: str) -> Response:
        """Log and count why a request is refused, and return the answer."""
        self._log.warning("push_refused", reason=reason, **more)
        self._counting.refused(reason)
        return answer

    def _refuse_sender(self, who: str) -> Response:
        """Return the answer to wrong or missing headers. Requests with the right ones are never limited."""
        if wait_s := self._limiter.count(who):
            self._counting.refused("credentials")
            return responses.too_many_attempts(wait_s)
        if self._limiter.wait_s(who):
            self._log.warning("attempts_limited", where="push", address=who)
        return self._refuse("credentials", responses.unauthorized())

    async def _receive(self, receive: Receive, headers: Mapping[bytes, bytes]) -> Response:
        """Read and record the body of an authentic request, and return the answer.

        The event's id is also the id of its trace. A trace that the sender names is only linked to. If it became the event's
        id, a sender could make an event look like the repetition of another one, or decide what is traced.
        """
        try:
            body = await read_body(receive, declared=headers.get(b"content-length"))
        except ClientLeft:
            self._log.info("push_refused", reason="client_left")
            self._counting.refused("client_left")
            return responses.client_left()
        except BodyTooLarge:
            return self._refuse("too_large", responses.too_large(BODY_LIMIT))
        event_id, sender = secrets.token_hex(16), place_in(headers.get(TRACE))
        with span("POST /push", SpanKind.SERVER, trace=event_id, is_first=True, links=[sender], **_ABOUT) as receiving:
            answer = await self._take(body, event_id, receiving)
            receiving.note(status=answer.status_code)
            return answer

    async def _take(self, body: bytes, event_id: str, receiving: TraceSpan) -> Response:
        """Record an authentic body and return the answer. A job is enqueued after the answer has been sent.

        That happens within the request, not in a separate task, so a graceful stop waits for it but the sender does
        not.
        """
        try:
            event = parse_push(body)
        except PushUnreadable as problem:
            receiving.fail("unreadable")
            answer = responses.unreadable(problem.field, problem.remedy)
            return self._refuse("unreadable", answer, field=problem.field)
        if receiving.is_recorded:
            voice_id = event.voice_id or event.alternate_voice_id or ""
            receiving.note(institution=event.institution_key, voice_id=voice_id, push=kind_of(event))
        received_at, began_s = self._now(), time.perf_counter()
        try:
            wake = await self._record(event, event_id)
        except NotRecorded as problem:
            self._log.error(
                "push_not_recorded",
                institution=event.institution_key,
                trace_id=event_id,
                error=type(problem.__cause__).__name__,
            )
            self._counting.refused("not_recorded")
            receiving.fail("not_recorded")
            return responses.unavailable()
        self._counting.accepted(event, received_at, time.perf_counter() - began_s)
        self._log.info(
            "push_accepted",
            event_id=event_id,
            trace_id=event_id,
            type=event.type,
            institution=event.institution_key,
            voice_id=event.voice_id,
            alternate_id=event.alternate_voice_id,
            is_test=event.is_test is True,
        )
        return responses.accepted(event_id, BackgroundTask(self._wake, event) if wake else None)

    async def _record(self, event: PushEvent, event_id: str) -> bool:
        """Record the event, with retries after short waits; return whether to enqueue a job.

        Repeating is safe, because the id stays the same.

        Raises:
            NotRecorded: Every attempt failed.
        """
        for pause_s in self._pauses_s:
            try:
                return await self._intake.record(event, event_id=event_id)
            except _REDIS_AWAY:
                await asyncio.sleep(pause_s)
        try:
            return await self._intake.record(event, event_id=event_id)
        except _REDIS_AWAY as error:
            raise NotRecorded from error

    async def _wake(self, event: PushEvent) -> None:
        """Enqueue a job for an event. If that fails, the next event or the watchdog does it."""
        try:
            call = event.voice_id or event.alternate_voice_id
            await asyncio.to_thread(self._waker.enqueue, f"{kind_of(event)} {call} of {event.institution_key}")
        except _REDIS_AWAY as error:
            self._log.error("wake_failed", error=type(error).__name__)
            with suppress(*_REDIS_AWAY):
                await self._intake.clear_wake()


def is_plain_json(headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether the headers declare uncompressed JSON. A missing or empty content type counts as JSON.

    Assumed (`push-media-type`): the service sends its events so, as ``application/json``, ``text/json`` or
    ``application/...+json``.
    """
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    is_json = media_type in _JSON_TYPES or (media_type.startswith(b"application/") and media_type.endswith(b"+json"))
    return is_json and headers.get(b"content-encoding", b"identity").strip().lower() == b"identity"


_JSON_TYPES: Final = frozenset({b"application/json", b"text/json", b""})

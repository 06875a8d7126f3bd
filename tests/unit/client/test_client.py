"""The client of the desk: it waits where waiting helps, repeats under one key, resumes its stream, and never spins."""

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import httpx
import pytest
from standardwebhooks import Webhook

from callkeeper.desk.openapi import document
from callkeeper_client import AsyncDesk, Desk, DeskRefused, DeskUnavailable, NotSigned, protocol, verify, views

ACTION = {"action_id": "a-1", "action": "verified", "state": "done", "reasons": [], "operator": "agent-7", "watch": "/"}
SECRET = "whsec_" + base64.b64encode(b"canary-outcome-key-0123456789abcd").decode()
SHAPES = {
    "CallView": views.Call,
    "StoryView": views.Story,
    "LineView": views.Line,
    "RowView": views.Row,
    "ActionView": views.Action,
    "ReasonView": views.Reason,
    "CandidateView": views.Candidate,
    "VerifiedView": views.Verified,
    "EffectsView": views.Effects,
    "EffectView": views.Effect,
    "OutcomeMessage": views.Outcome,
    "OutcomeData": views.OutcomeData,
}


def answers(
    *given: httpx.Response | Exception,
) -> tuple[Callable[[httpx.Request], httpx.Response], list[httpx.Request]]:
    """Return a desk that gives some answers, the last one for ever, and what it was asked."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        found = given[min(len(asked), len(given)) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    return answer, asked


def say(desk: Desk) -> views.Action:
    """Verify a caller."""
    return desk.verified("cu/1", "v 1", operator="agent-7", person_id="p-1", validation_type="Other")


def test_action_waits_for_restarts_and_new_tokens_and_is_repeated_under_one_key() -> None:
    """No connection, 503, 429 and 401 are retried under one idempotency key, with the current token."""
    answer, asked = answers(
        httpx.ConnectError("refused"), *map(httpx.Response, (503, 429, 401)), httpx.Response(202, json=ACTION)
    )
    tokens = iter(["old", "old", "old", "old", "new"])
    with Desk("http://desk", lambda: next(tokens), first_wait_s=0.0, transport=httpx.MockTransport(answer)) as desk:
        assert say(desk)["state"] == "done"
    assert [request.headers["Authorization"] for request in asked] == ["Bearer old"] * 4 + ["Bearer new"]
    assert len({request.headers["Idempotency-Key"] for request in asked}) == 1
    assert asked[-1].url.raw_path == b"/desk/calls/cu%2F1/v%201/verified"
    assert json.loads(asked[-1].content) == {"operator": "agent-7", "person_id": "p-1", "validation_type": "Other"}


async def test_async_client_does_the_same() -> None:
    """The async client retries like the sync client."""
    answer, asked = answers(httpx.Response(503), httpx.Response(202, json=ACTION))
    async with AsyncDesk("http://desk", "token", first_wait_s=0.0, transport=httpx.MockTransport(answer)) as desk:
        said = await desk.verified("cu-1", "v-1", operator="a", person_id="p-1", validation_type="Other")
    assert (said["state"], len(asked)) == ("done", 2)


def test_refusal_is_not_repeated() -> None:
    """A refusal that waiting cannot change is raised at once, with code and reasons."""
    problem = {"status": 409, "code": "refused", "title": "No.", "reasons": [{"name": "call_ended", "meaning": "over"}]}
    answer, asked = answers(httpx.Response(409, json=problem))
    with (
        Desk("http://desk", "token", first_wait_s=0.0, transport=httpx.MockTransport(answer)) as desk,
        pytest.raises(DeskRefused) as caught,
    ):
        say(desk)
    assert (caught.value.code, caught.value.reasons[0]["name"], len(asked)) == ("refused", "call_ended", 1)


@pytest.mark.parametrize(("status", "expected"), [(503, DeskUnavailable), (401, DeskRefused)])
def test_patience_ends(status: int, expected: type[Exception]) -> None:
    """A desk that does not answer is an error after ``patience_s``; a token that stays wrong is a refusal."""
    answer, _ = answers(httpx.Response(status, headers={"Retry-After": "20"}))
    desk = Desk("http://desk", "token", patience_s=5, first_wait_s=0.0, transport=httpx.MockTransport(answer))
    with desk, pytest.raises(expected):
        say(desk)


def test_waits_grow_and_obey_retry_after() -> None:
    """The waits between attempts grow, and Retry-After is obeyed."""
    retry = protocol.Retry(protocol.FOR_EVER, first_s=0.5)
    waits = [retry.wait_s(None) for _ in range(10)]
    assert waits[0] <= 0.6
    assert 24.0 <= waits[-1] <= 36.0
    assert retry.wait_s(httpx.Response(503, headers={"Retry-After": "12"})) >= 12
    retry.succeeded()
    assert retry.wait_s(httpx.Response(503, headers={"Retry-After": "12"})) == 12


class Cut(httpx.SyncByteStream):
    """A stream that is cut after some events."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __iter__(self) -> Iterator[bytes]:
        yield self._text.encode()
        raise httpx.ReadError("cut")


def event(number: int, kind: str = "call", **data: str) -> str:
    """Return an event as the desk writes it."""
    return f"event: {kind}\nid: {number}-0\ndata: {json.dumps(data)}\n\n"


def test_stream_lists_first_and_resumes_where_it_was_cut() -> None:
    """Open calls come first; after a cut and a 503 the stream goes on behind the last event, and lists nothing again."""
    call = {"institution_key": "cu-1", "voice_id": "v-1"}
    streams = iter([Cut(f"retry: 1000\n\n: hello\n\n{event(1, **call)}"), None, Cut(event(2, "gone", **call))])
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.path == "/desk/calls":
            return httpx.Response(200, json={"calls": [call], "next": None})
        stream = next(streams)
        return httpx.Response(503) if stream is None else httpx.Response(200, stream=stream)

    with Desk("http://desk", "token", first_wait_s=0.0, transport=httpx.MockTransport(answer)) as desk:
        changes = desk.changes()
        seen = [next(changes) for _ in range(3)]
    assert [(change.kind, change.call) for change in seen] == [("call", call), ("call", call), ("gone", None)]
    assert [(request.url.path, request.headers.get("Last-Event-ID")) for request in asked] == [
        ("/desk/stream", None),
        ("/desk/calls", None),
        ("/desk/stream", "1-0"),
        ("/desk/stream", "1-0"),
    ]


def test_stream_lists_again_after_a_reset() -> None:
    """After a reset, the open calls are listed again."""
    call = {"institution_key": "cu-1", "voice_id": "v-1"}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/desk/calls":
            return httpx.Response(200, json={"calls": [call], "next": None})
        return httpx.Response(200, stream=Cut(event(9, "reset")))

    with Desk("http://desk", "token", first_wait_s=0.0, transport=httpx.MockTransport(answer)) as desk:
        changes = desk.changes(last_event_id="3-0")
        assert [next(changes).kind for _ in range(2)] == ["reset", "call"]


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_those_of_the_openapi_document(name: str) -> None:
    """The client's types have exactly the fields of the OpenAPI document."""
    schema: dict[str, Any] = json.loads(document())["components"]["schemas"][name]
    assert set(get_type_hints(SHAPES[name])) == set(schema["properties"])


def test_webhook_is_verified_with_either_secret() -> None:
    """A message that one of the secrets signed is returned; another body, or none of the secrets, is refused."""
    body = json.dumps({"type": "callkeeper.test", "version": 1}).encode()
    now = dt.datetime.now(dt.UTC)
    signature = Webhook(SECRET).sign("m-1", now, body.decode())
    headers = {
        "Webhook-Id": "m-1",
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": signature,
    }
    other = "whsec_" + base64.b64encode(b"canary-another-key-0123456789abcd").decode()
    assert verify(body, headers, other, SECRET)["type"] == "callkeeper.test"
    with pytest.raises(NotSigned):
        verify(body + b" ", headers, SECRET)
    with pytest.raises(NotSigned):
        verify(body, headers, other)


@pytest.mark.parametrize("signature", ["", "garbage", "v1,abc", "v1,\xe4", "v1,&&& v1"])
def test_malformed_signature_is_not_signed(signature: str) -> None:
    """A post with a signature of any other form is refused like a wrong one, so that the receiver answers 400."""
    now = str(int(dt.datetime.now(dt.UTC).timestamp()))
    headers = {"webhook-id": "m-1", "webhook-timestamp": now, "webhook-signature": signature}
    with pytest.raises(NotSigned):
        verify(b"{}", headers, SECRET)
    with pytest.raises(NotSigned):
        verify(b"\xff", headers, SECRET)

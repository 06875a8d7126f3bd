"""The client of the desk: it waits where waiting helps, repeats under one key, resumes its stream, and never spins."""

import base64
import datetime as dt
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    "AskedView": views.Asked,
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
    """No connection, 503, 429 and a token that was exchanged are retried under one idempotency key."""
    answer, asked = answers(
        httpx.ConnectError("refused"), *map(httpx.Response, (503, 429, 401)), httpx.Response(202, json=ACTION)
    )
    tokens = itertools.chain(["old"] * 4, itertools.repeat("new"))
    with Desk("http://desk", lambda: next(tokens), first_wait_s=0.0, transport=httpx.MockTransport(answer)) as desk:
        assert say(desk)["state"] == "done"
    assert [request.headers["Authorization"] for request in asked] == ["Bearer old"] * 4 + ["Bearer new"]
    assert len({request.headers["Idempotency-Key"] for request in asked}) == 1
    assert asked[-1].url.raw_path == b"/desk/calls/cu%2F1/v%201/verified"
    assert json.loads(asked[-1].content) == {"operator": "agent-7", "person_id": "p-1", "validation_type": "Other"}


@pytest.mark.parametrize(("url", "token"), [("http://desk", "a\n"), ("http://desk", ""), ("desk:8000", "a")])
def test_mistake_of_the_program_is_no_outage(url: str, token: str) -> None:
    """Waiting does not help: a token read with its line break, none at all, or an address without http is told at once."""
    answer, asked = answers(httpx.Response(200, json={"calls": [], "next": None}))
    with pytest.raises(ValueError, match=r"the token must be|url: must begin"):
        list(Desk(url, token, transport=httpx.MockTransport(answer)).calls())
    assert asked == []


def test_outage_says_what_failed_last() -> None:
    """Otherwise a wrong certificate and a wrong port read the same."""
    answer, _ = answers(httpx.ConnectError("certificate verify failed"))
    desk = Desk("https://desk", "a", patience_s=0.0, transport=httpx.MockTransport(answer))
    with desk, pytest.raises(DeskUnavailable, match="certificate verify failed") as told:
        list(desk.calls())
    assert isinstance(told.value.__cause__, httpx.ConnectError)


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


def test_refusal_that_is_not_the_desks_asks_for_the_address() -> None:
    """A proxy, or another page of the same host, answers without a code: the address may be wrong."""
    answer, _ = answers(httpx.Response(401, text="Login required."))
    transport = httpx.MockTransport(answer)
    with (
        Desk("http://desk/board", "token", transport=transport) as desk,
        pytest.raises(DeskRefused, match=r"^401: this is no answer of a desk; is its address right\?$"),
    ):
        next(desk.calls())


def test_patience_ends() -> None:
    """A desk that does not answer is an error after ``patience_s``."""
    answer, _ = answers(httpx.Response(503, headers={"Retry-After": "20"}))
    desk = Desk("http://desk", "token", patience_s=5, first_wait_s=0.0, transport=httpx.MockTransport(answer))
    with desk, pytest.raises(DeskUnavailable):
        say(desk)


@pytest.mark.parametrize("token", ["wrong", lambda: "wrong"], ids=["text", "function"])
@pytest.mark.parametrize("ask", [lambda desk: desk.calls(), lambda desk: desk.changes()], ids=["calls", "changes"])
def test_wrong_token_is_an_error_at_once(token: Any, ask: Callable[[Desk], Iterator[Any]]) -> None:
    """A token that was never accepted is refused at the first answer, also by what otherwise waits for ever."""
    problem = {"status": 401, "code": "unauthorized", "title": "A valid bearer token or ticket is required."}
    answer, asked = answers(httpx.Response(401, json=problem))
    with (
        Desk("http://desk", token, transport=httpx.MockTransport(answer)) as desk,
        pytest.raises(DeskRefused) as caught,
    ):
        next(ask(desk))
    assert (caught.value.status, caught.value.code, len(asked)) == (401, "unauthorized", 1)


async def test_wrong_token_is_an_error_at_once_for_the_async_client() -> None:
    """The async client does not wait either."""
    answer, asked = answers(httpx.Response(401))
    async with AsyncDesk("http://desk", lambda: "wrong", transport=httpx.MockTransport(answer)) as desk:
        with pytest.raises(DeskRefused):
            await anext(desk.changes())
        with pytest.raises(DeskRefused):
            await desk.call("cu-1", "v-1")
    assert len(asked) == 2


def test_token_that_was_accepted_may_be_exchanged(caplog: pytest.LogCaptureFixture) -> None:
    """After an accepted token a 401 is waited out for ``patience_s``, with a warning; then it is a refusal."""
    good, bad = httpx.Response(200, json={"calls": [], "next": None}), httpx.Response(401)
    answer, asked = answers(good, bad, bad, good, bad)
    transport = httpx.MockTransport(answer)
    with Desk("http://desk", lambda: "t", patience_s=0.5, first_wait_s=0.0, transport=transport) as desk:
        assert list(desk.calls()) == list(desk.calls()) == []
        assert (len(asked), caplog.text.count("waiting for another one")) == (4, 1)
    retry, tokens = protocol.Retry(protocol.FOR_EVER, first_s=500.0, longest_s=500.0), protocol.Tokens(lambda: "t")
    tokens.accepted()
    with pytest.raises(DeskRefused):
        retry.wait_s(bad, tokens)


def test_text_is_never_exchanged() -> None:
    """A token that is a text cannot change, so a 401 is an error, whatever was accepted before."""
    answer, _ = answers(httpx.Response(200, json={"calls": [], "next": None}), httpx.Response(401))
    with Desk("http://desk", "t", transport=httpx.MockTransport(answer)) as desk:
        assert list(desk.calls()) == []
        with pytest.raises(DeskRefused):
            list(desk.calls())


def test_waits_grow_and_obey_retry_after() -> None:
    """The waits between attempts grow, and Retry-After is obeyed."""
    retry = protocol.Retry(protocol.FOR_EVER, first_s=0.5)
    tokens = protocol.Tokens("t")
    waits = [retry.wait_s(None, tokens) for _ in range(10)]
    assert waits[0] <= 0.6
    assert 24.0 <= waits[-1] <= 36.0
    assert retry.wait_s(httpx.Response(503, headers={"Retry-After": "12"}), tokens) >= 12
    retry.succeeded()
    assert retry.wait_s(httpx.Response(503, headers={"Retry-After": "12"}), tokens) == 12


class Cut(httpx.SyncByteStream):
    """A stream that is cut after some events."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __iter__(self) -> Iterator[bytes]:
        yield self._text.encode()
        raise httpx.ReadError("cut")


def event(number: int, kind: str = "call", **data: object) -> str:
    """Return an event as the desk writes it."""
    return f"event: {kind}\nid: {number}-0\ndata: {json.dumps(data)}\n\n"


def test_stream_lists_first_and_resumes_where_it_was_cut() -> None:
    """Open calls come first; after a cut and a 503 the stream goes on behind the last event, and lists nothing again."""
    call: dict[str, Any] = {"institution_key": "cu-1", "voice_id": "v-1", "revision": 1, "phase": "live"}
    streams = iter([Cut(f"retry: 1000\n\n: hello\n\n{event(1, **call)}"), None, Cut(event(2, "gone", **call))])
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.path == "/desk/calls":
            return httpx.Response(200, json={"calls": [call], "next": None})
        stream = next(streams)
        return httpx.Response(503) if stream is None else httpx.Response(200, stream=stream)

    with Desk("http://desk", "token", first_wait_s=0.0, transport=httpx.MockTransport(answer)) as desk:
        changes = desk.changes(phone="5550100001")
        seen = [next(changes) for _ in range(3)]
    assert [(change.kind, change.call) for change in seen] == [("call", call), ("call", call), ("gone", None)]
    assert {request.url.params["phone"] for request in asked} == {"5550100001"}
    assert [(request.url.path, request.headers.get("Last-Event-ID")) for request in asked] == [
        ("/desk/stream", None),
        ("/desk/calls", None),
        ("/desk/stream", "1-0"),
        ("/desk/stream", "1-0"),
    ]


@given(listed=st.integers(0, 5), place=st.integers(0, 6), settles=st.booleans())
def test_list_and_stream_are_joined_in_any_order(listed: int, place: int, settles: bool) -> None:
    """Wherever a list's view comes among a stream's, no call goes back to an older state, and the newest is yielded."""
    joined = protocol.Joined()
    views: list[Any] = [
        {"institution_key": "cu-1", "voice_id": "v-1", "revision": n, "phase": "live"} for n in range(6)
    ]
    views.insert(place, {**views[listed]})
    if settles:
        views.append({**views[0], "revision": 6, "phase": "settled"})
    changes = [protocol.Change("call", "cu-1", "v-1", view) for view in views]
    seen = [view["revision"] for change, view in zip(changes, views, strict=True) if joined.is_news(change)]
    assert seen == sorted(seen)
    assert seen[-1] == 5 + settles


def test_reset_begins_anew() -> None:
    """After a reset a lower revision counts again: Redis may have lost what was newer."""
    joined = protocol.Joined()
    call: Any = {"institution_key": "cu-1", "voice_id": "v-1", "revision": 9, "phase": "live"}
    older = protocol.Change("call", "cu-1", "v-1", call | {"revision": 3})
    assert joined.is_news(protocol.Change("call", "cu-1", "v-1", call))
    assert not joined.is_news(older)
    assert joined.is_news(protocol.Change("reset", "", "", None))
    assert joined.is_news(older)


def test_stream_lists_again_after_a_reset() -> None:
    """After a reset, the open calls are listed again."""
    call = {"institution_key": "cu-1", "voice_id": "v-1", "revision": 1, "phase": "live"}

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

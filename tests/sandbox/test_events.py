"""Push events: what is sent, with which headers, how often, and what is kept of it."""

from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.push import parse_headers
from callkeeper_sandbox.service.state import Happening, Kind, PushSettings
from tests.sandbox_fixtures import KEY, PHONE, Asgi


class Listener(httpx.AsyncBaseTransport):
    """A receiver that remembers what came and answers what it is told to."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.answer = httpx.Response(202, text="thank you")
        self.error: Exception | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Remember a request and answer it."""
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return self.answer

    def events(self) -> list[tuple[str, str | None]]:
        """Return type and voice id of everything that came, in order."""
        bodies = [msgspec.json.decode(request.content) for request in self.requests]
        return [(body["Type"], body.get("VoiceId")) for body in bodies]


@pytest.fixture
def listener() -> Listener:
    """Return a receiver."""
    return Listener()


@pytest.fixture
async def pushing(listener: Listener) -> AsyncIterator[Asgi]:
    """Return a stand-in whose institution has registered the receiver."""
    stage = Asgi(listener)
    stage.world.state.institutions[KEY].push = PushSettings("http://us/push", "X-Key: one; X-Other:two")
    async with stage.client, stage.sandbox.client:
        yield stage


async def test_call_start_is_pushed_with_its_payload(pushing: Asgi, listener: Listener) -> None:
    """A start sends exactly the payload's fields, with StartDateTime and IsTest null.

    Spec: Events, payload; Events, types.
    """
    call = pushing.call()
    await pushing.sandbox.deliver()
    assert msgspec.json.decode(listener.requests[0].content) == {
        "Type": "CallStart",
        "StartDateTime": "2026-11-21T12:00:00Z",
        "VoiceId": call.voice_id,
        "AlternateVoiceId": call.alternate_id,
        "PhoneNumber": PHONE,
        "DestinationPhoneNumber": "5550000000",
        "IsTest": None,
        "InstitutionKey": KEY,
    }


async def test_call_end_is_pushed_with_its_end(pushing: Asgi, listener: Listener) -> None:
    """An end sends EndDateTime in place of StartDateTime.

    Spec: Events, payload; States and transitions, row 4.
    """
    pushing.call(Happening(Kind.END, 30))
    pushing.advance(30)
    await pushing.sandbox.deliver()
    payload = msgspec.json.decode(listener.requests[1].content)
    assert (payload["Type"], payload["EndDateTime"]) == ("CallEnd", "2026-11-21T12:00:30Z")
    assert "StartDateTime" not in payload


async def test_push_carries_the_configured_headers(pushing: Asgi, listener: Listener) -> None:
    """The headers are those entered with the address, as JSON content.

    Spec: Events.
    """
    pushing.call()
    await pushing.sandbox.deliver()
    headers = listener.requests[0].headers
    assert (headers["x-key"], headers["x-other"], headers["content-type"]) == ("one", "two", "application/json")


_token = st.text("abcXYZ019-", min_size=1)


@given(st.lists(st.tuples(_token, _token)))
def test_header_settings_are_read_back_as_entered(pairs: list[tuple[str, str]]) -> None:
    """Any pairs written as ``Header: value`` and separated by ``;`` are read back, in order.

    Spec: Events.
    """
    assert parse_headers("; ".join(f"{name}: {value}" for name, value in pairs)) == pairs


@pytest.mark.parametrize("error", [None, httpx.ConnectError("no"), httpx.ReadTimeout("slow")], ids=repr)
async def test_push_is_sent_once_whatever_comes_of_it(
    pushing: Asgi, listener: Listener, error: Exception | None
) -> None:
    """One POST, no retry: neither after an error status nor after no answer at all.

    Spec: Events, rule 1.
    """
    listener.answer, listener.error = httpx.Response(500), error
    pushing.call()
    for _ in range(3):
        await pushing.sandbox.deliver()
        pushing.advance(60)
    assert len(listener.requests) == 1


async def test_attempt_is_recorded_with_status_and_body(pushing: Asgi, listener: Listener) -> None:
    """Every attempt keeps the receiver's status and the beginning of its body.

    Spec: Events, rule 2.
    """
    call = pushing.call()
    await pushing.sandbox.deliver()
    (attempt,) = pushing.sandbox.pusher.attempts
    assert (attempt.voice_id, attempt.status, attempt.body) == (call.voice_id, 202, "thank you")


async def test_attempt_without_an_answer_is_recorded_too(pushing: Asgi, listener: Listener) -> None:
    """A receiver that does not answer leaves the kind of failure.

    Spec: Events, rule 2.
    """
    listener.error = httpx.ConnectError("no")
    pushing.call()
    await pushing.sandbox.deliver()
    (attempt,) = pushing.sandbox.pusher.attempts
    assert (attempt.status, attempt.error) == (None, "ConnectError")


async def test_malformed_address_is_recorded_and_harms_nothing(pushing: Asgi, listener: Listener) -> None:
    """An address or header that cannot be sent to is an attempt that failed.

    Spec: Events, rule 2.
    """
    for settings in (PushSettings("not an address"), PushSettings("http://us/", "X-Key: caf\u00e9\u2713")):
        pushing.world.state.institutions[KEY].push = settings
        pushing.call()
        await pushing.sandbox.deliver()
    assert [attempt.status for attempt in pushing.sandbox.pusher.attempts] == [None, None]


async def test_unregistered_institution_gets_no_push(pushing: Asgi, listener: Listener) -> None:
    """Without an address nothing is sent.

    Spec: States and transitions, row 4; Events.
    """
    pushing.world.state.institutions[KEY].push = PushSettings()
    pushing.call()
    await pushing.sandbox.deliver()
    assert listener.requests == []


@pytest.mark.parametrize("event_type", ["CallStart", "CallEnd"])
async def test_sample_is_marked_as_a_test(pushing: Asgi, listener: Listener, event_type: str) -> None:
    """A sample is sent with IsTest true, for no call that exists, and recorded.

    Spec: Events, rule 2; Events, payload.
    """
    answer = await pushing.client.post("/control/push/sample", json={"institution_key": KEY, "type": event_type})
    payload = msgspec.json.decode(listener.requests[0].content)
    assert (payload["IsTest"], payload["Type"], answer.json()["is_test"]) == (True, event_type, True)
    assert pushing.world.any_call(payload["VoiceId"]) is None


async def test_queue_is_the_truth_when_a_push_is_lost(pushing: Asgi, listener: Listener) -> None:
    """A lost push is counted and never sent; the call is listed all the same.

    Spec: Events, rule 3.
    """
    pushing.sandbox.faults.add(Fault(target="push", action=Action.LOST))
    call = pushing.call()
    await pushing.sandbox.deliver()
    assert (listener.requests, pushing.sandbox.pusher.totals.lost) == ([], 1)
    assert [entry["voiceId"] for entry in await pushing.queue()] == [call.voice_id]


async def test_doubled_push_comes_twice(pushing: Asgi, listener: Listener) -> None:
    """A doubled push is the same event two times.

    Spec: Events, rule 1.
    """
    pushing.sandbox.faults.add(Fault(target="push", action=Action.DOUBLED, times=1))
    call = pushing.call()
    await pushing.sandbox.deliver()
    assert listener.events() == [("CallStart", call.voice_id)] * 2


async def test_reordered_push_comes_after_the_next_one(pushing: Asgi, listener: Listener) -> None:
    """A start that is held back arrives after the end of its call.

    Spec: Events, rule 3.
    """
    pushing.sandbox.faults.add(Fault(target="push", action=Action.REORDERED, event="CallStart"))
    call = pushing.call(Happening(Kind.END, 5))
    pushing.advance(5)
    await pushing.sandbox.deliver()
    assert listener.events() == [("CallEnd", call.voice_id), ("CallStart", call.voice_id)]


async def test_late_push_waits_for_its_latency(pushing: Asgi, listener: Listener) -> None:
    """A push with latency leaves when it is due, not before.

    Spec: Events, rule 3.
    """
    pushing.sandbox.faults.add(Fault(target="push", latency_s=4))
    pushing.call()
    sent = []
    for _ in range(3):
        await pushing.sandbox.deliver()
        sent.append(len(listener.requests))
        pushing.advance(2)
    assert sent == [0, 0, 1]


@pytest.mark.parametrize(("action", "ids"), [(Action.ALTERNATE_ONLY, 1), (Action.ALTERNATE_FIRST, 2)])
async def test_push_can_know_the_alternate_id_first(
    pushing: Asgi, listener: Listener, action: Action, ids: int
) -> None:
    """A push can carry the alternate id alone, followed by the full one or not.

    Spec: Events, payload; What the service does.
    """
    pushing.sandbox.faults.add(Fault(target="push", action=action))
    call = pushing.call()
    await pushing.sandbox.deliver()
    assert listener.events() == [("CallStart", None), ("CallStart", call.voice_id)][:ids]
    assert msgspec.json.decode(listener.requests[0].content)["AlternateVoiceId"] == call.alternate_id


async def test_any_payload_can_be_pushed(pushing: Asgi, listener: Listener) -> None:
    """A forged or malformed payload is sent as it is, with the institution's headers.

    Spec: Events.
    """
    for payload in ({"Type": "CallStart", "VoiceId": "forged"}, ["no", "event"]):
        await pushing.client.post("/control/push", json={"institution_key": KEY, "payload": payload})
    bodies = [msgspec.json.decode(request.content) for request in listener.requests]
    assert bodies == [{"Type": "CallStart", "VoiceId": "forged"}, ["no", "event"]]
    assert listener.requests[0].headers["x-key"] == "one"

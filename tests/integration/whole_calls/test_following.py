"""One event, one trace: from the push through every request that is sent for it, into the trail and the log."""

import re

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.notes import Verified
from callkeeper.calls.record import Phase
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

START, END_EVENT, WISH = "0a" * 16, "0b" * 16, "0c" * 16
END = Happening(Kind.END, 60)


class Spy(httpx.AsyncBaseTransport):
    """Stands between worker and service and keeps each request's operation and trace."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.sent: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        self.sent.append((request.url.path, request.headers.get("traceparent", "")))
        return await self.inner.handle_async_request(request)

    def traces(self, part: str) -> list[str]:
        """Return the traces of the requests whose path has a part, each once, in order."""
        return list(dict.fromkeys(header.split("-")[1] for path, header in self.sent if part in path and header))


@pytest.fixture
def spied(sandbox_asgi: Asgi, redis: Redis) -> tuple[Rig, Spy]:
    """Return a rig, and what stands before its service."""
    spy = Spy(sandbox_asgi.transport)
    return Rig(sandbox_asgi, redis, transport=spy), spy


async def push(rig: Rig, call: Call, kind: str, event_id: str) -> None:
    """Record a push that was answered with this id."""
    event = rig.event(call, kind)
    await rig.intake.record(event, event_id=event_id)


async def test_every_request_of_a_call_carries_the_event_it_moves_by(spied: tuple[Rig, Spy]) -> None:
    """Reads, checks and the assign carry the push of the start, the last reads that of the end."""
    rig, spy = spied
    call = rig.stage.call(Happening(Kind.GREEN, 20), END)
    await push(rig, call, "CallStart", START)
    await rig.run(61)
    assert spy.traces(call.voice_id) == [START]
    assert spy.traces("assign") == [START]
    await push(rig, call, "CallEnd", END_EVENT)
    await rig.run(20)
    assert (await rig.record(call)).life.phase is Phase.SETTLED
    assert spy.traces(call.voice_id) == [START, END_EVENT]


async def test_newest_of_several_events_is_followed(spied: tuple[Rig, Spy]) -> None:
    """Events that wait together are folded together, and further requests carry the last one's trace."""
    rig, spy = spied
    call = await rig.begin_call(END, run_s=10, is_pushed=False)
    for event_id, kind in ((END_EVENT, "CallEnd"), (START, "CallStart")):
        await push(rig, call, kind, event_id)
        rig.clock.advance(0.1)
    await rig.run(3)
    assert spy.traces(call.voice_id)[1:] == [START]


async def test_effect_carries_the_word_that_it_follows(spied: tuple[Rig, Spy]) -> None:
    """An enroll that follows a person's statement carries its trace, which the desk's answer had."""
    rig, spy = spied
    call = rig.stage.call(END)
    await push(rig, call, "CallStart", START)
    await rig.run(10)
    said = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now, wish=WISH)
    await rig.note(call, said)
    await rig.run(5)
    assert spy.traces("/enroll") == [WISH]
    sent = [line for line in await rig.trail(call) if line.what in {"sent", "answered"} and line.kind == "enroll"]
    assert [line.trace for line in sent] == [WISH, WISH]


async def test_trail_names_the_event_of_every_request(spied: tuple[Rig, Spy]) -> None:
    """Each line that stands for a request names the event that it was made for."""
    rig, _ = spied
    call = rig.stage.call(Happening(Kind.GREEN, 20), END)
    await push(rig, call, "CallStart", START)
    await rig.run(30)
    lines = [line for line in await rig.trail(call) if line.what in {"read", "checked", "sent", "answered"}]
    assert {line.what for line in lines} == {"read", "checked", "sent", "answered"}
    assert {line.trace for line in lines} == {START}


async def test_call_that_nobody_pushed_has_a_trace_of_its_own(spied: tuple[Rig, Spy]) -> None:
    """A call that only the queue showed gets a random trace, and keeps it."""
    rig, spy = spied
    first, second = rig.stage.call(END), rig.stage.call(END)
    await rig.run(40)
    [of_first], [of_second] = spy.traces(first.voice_id), spy.traces(second.voice_id)
    assert of_first != of_second
    assert (await rig.record(first)).trace == of_first


async def test_header_is_a_trace_parent(spied: tuple[Rig, Spy]) -> None:
    """The header is W3C's: 32 and 16 hexadecimal digits; each request has a number of its own, looks at queues too."""
    rig, spy = spied
    await push(rig, rig.stage.call(END), "CallStart", START)
    await rig.run(30)
    headers = [header for path, header in spy.sent if "/calls/" in path]
    assert all(re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", header) for header in headers)
    assert len(set(headers)) == len(headers)


async def test_id_that_is_no_trace_is_not_sent(spied: tuple[Rig, Spy]) -> None:
    """Whatever an event was numbered by, only 32 hexadecimal digits go out: never an id of a call or a person."""
    rig, spy = spied
    call = rig.stage.call(END)
    await push(rig, call, "CallStart", call.voice_id)
    await rig.run(20)
    assert all(call.voice_id not in header for _, header in spy.sent)
    [trace] = spy.traces(call.voice_id)
    assert trace != START


async def test_every_line_about_a_call_says_so(spied: tuple[Rig, Spy]) -> None:
    """Every log line about a call has its institution, call and event."""
    rig, _ = spied
    call = rig.stage.call(Happening(Kind.POLICY, 9, "Mauve Something"), END)
    await push(rig, call, "CallStart", START)
    await rig.run(80)
    names = {"effect_answered", "policy_unclassified", "call_settled"}
    entries = [entry for entry in rig.log.entries if entry["event"] in names]
    assert {entry["event"] for entry in entries} == names
    about = {(entry["institution"], entry["voice_id"], entry["trace_id"]) for entry in entries}
    assert about == {(call.institution_key, call.voice_id, START)}

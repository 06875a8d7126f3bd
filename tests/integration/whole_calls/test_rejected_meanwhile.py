"""What must not be enrolled: a member who is rejected in another call meanwhile, or whose voice did not match."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.notes import Distrusted
from callkeeper.calls.record import Mark
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, SHIPPED, Rig
from tests.sandbox_fixtures import Asgi

MISMATCHED = (
    Happening(Kind.STATUS, 5, "VoiceMismatch"),
    Happening(Kind.MFA_VALIDATED, 40),
    Happening(Kind.END, 160),
)


@dataclass
class Wire(httpx.AsyncBaseTransport):
    """Lets a test look at each request first. What ``look`` returns is the answer; None: the stand-in's."""

    inner: httpx.AsyncBaseTransport
    look: Callable[[httpx.Request], Awaitable[httpx.Response | None]] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        answer = await self.look(request) if self.look is not None else None
        return answer or await self.inner.handle_async_request(request)


@dataclass
class TwiceListed(httpx.AsyncBaseTransport):
    """While ``person_id`` is set, the queue has a second entry of its first call, with this person."""

    inner: httpx.AsyncBaseTransport
    person_id: str = field(default="")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        answer = await self.inner.handle_async_request(request)
        if not self.person_id or not request.url.path.endswith("/queue"):
            return answer
        await answer.aread()
        body = answer.json()
        body["phoneCalls"] += [entry | {"personId": self.person_id} for entry in body["phoneCalls"][:1]]
        return httpx.Response(200, json=body)


@pytest.mark.parametrize("by", ["our reject", "a reject elsewhere"])
async def test_enroll_is_not_sent_after_a_reject_in_another_call_of_the_member(
    sandbox_asgi: Asgi, redis: Redis, by: str
) -> None:
    """The enroll is intended, and its confirming read fails for half a minute. Meanwhile the other call is rejected."""
    wire = Wire(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, SHIPPED, transport=wire)
    verified = rig.stage.call(Happening(Kind.MFA_VALIDATED, 20), Happening(Kind.END, 60))
    other = rig.stage.call(Happening(Kind.END, 300))

    async def away(request: httpx.Request) -> httpx.Response | None:
        is_asked = verified.voice_id in request.url.path and request.url.path.endswith("/details")
        is_intended = is_asked and (await rig.record(verified)).ledger.enroll.state is EffectState.INTENDED
        return httpx.Response(503) if is_intended else None

    wire.look = away
    await rig.push(verified)
    await rig.push(other)
    await rig.run(75)
    assert (await rig.record(verified)).ledger.enroll.state is EffectState.INTENDED
    if by == "our reject":
        await rig.note(other, Distrusted(operator="ann", said_at=rig.clock.now))
    else:
        rig.stage.happen(other, Kind.REJECTED)
    await rig.run(30)
    wire.look = None
    await rig.run(60)
    assert "enroll" not in rig.ledger(verified)
    assert list(await rig.queries.attention()) == [rig.call_id(verified).member]


async def test_reject_that_is_under_way_warns_other_calls_of_the_member(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The mark is there before the request is sent: its answer may take long."""
    wire = Wire(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, SHIPPED, transport=wire)
    call, marks = rig.stage.call(Happening(Kind.END, 300)), list[list[object]]()
    place = rig.store.keys.earlier(KEY, "p:p-1")

    async def look(request: httpx.Request) -> None:
        if request.url.path.endswith("/reject-voice"):
            marks.append(list(await redis.zrange(place, 0, -1)))

    wire.look = look
    await rig.run(20)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now))
    await rig.run(20)
    assert marks == [[f"{Mark.SUSPECTED}:{call.voice_id}".encode()]]
    assert f"{Mark.REJECTED}:{call.voice_id}".encode() in await redis.zrange(place, 0, -1)


async def test_second_entry_in_the_queue_makes_no_mismatch_forgotten(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Details name the same member all the time; an entry that names another one is late, or garbled."""
    sandbox_asgi.world.add_member(KEY, "p-2", ["5550100002"])
    wire = TwiceListed(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, transport=wire)
    call = await rig.begin_call(*MISMATCHED, run_s=50)
    assert (await rig.record(call)).seen.mismatch
    wire.person_id = "p-2"
    await rig.run(12)
    wire.person_id = ""
    await rig.run(200)
    record = await rig.record(call)
    assert (record.seen.person_id, record.seen.mismatch, rig.ledger(call).get("enroll")) == ("p-1", True, None)

"""An assign that the service accepts and then ignores: neither its queue nor its details ever show the member."""

import json
from dataclasses import dataclass

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.action_status import ActionState, statuses_of
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.effect_resolution import NOT_SHOWN
from callkeeper.calls.member_evidence import usable_answers
from callkeeper.calls.notes import AssignWish
from callkeeper.calls.record import Reason
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.integration.whole_calls.test_rejected_meanwhile import Wire
from tests.sandbox_fixtures import Asgi

H = Happening


class Ignoring:
    """Accepts the first assigns without passing them on."""

    def __init__(self, times: int) -> None:
        self.left, self.taken = times, 0

    async def look(self, request: httpx.Request) -> httpx.Response | None:
        """Return the answer to an assign that is ignored."""
        if not request.url.path.endswith("/assign"):
            return None
        self.taken += 1
        if self.left <= 0:
            return None
        self.left -= 1
        return httpx.Response(200, json={"success": True, "voiceId": json.loads(await request.aread())["voiceId"]})


@dataclass
class Nameless(httpx.AsyncBaseTransport):
    """Takes the person out of all details."""

    inner: httpx.AsyncBaseTransport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        answer = await self.inner.handle_async_request(request)
        if not request.url.path.endswith("/details"):
            return answer
        await answer.aread()
        body = {key: value for key, value in answer.json().items() if key != "personId"}
        return httpx.Response(200, json=body | {"phoneCall": body["phoneCall"] | {"personId": None}})


def ignoring(stage: Asgi, redis: Redis, times: int) -> tuple[Rig, Ignoring]:
    """Return a rig whose service ignores the first assigns."""
    wire, ignored = Wire(stage.transport), Ignoring(times)
    wire.look = ignored.look
    return Rig(stage, redis, transport=wire), ignored


SCRIPT = (H(Kind.MFA_VALIDATED, 40), H(Kind.END, 200))


async def test_assign_that_is_ignored_once_is_repeated(sandbox_asgi: Asgi, redis: Redis) -> None:
    """After half a minute neither queue nor details show the member, so nothing was carried out."""
    rig, ignored = ignoring(sandbox_asgi, redis, 1)
    call = await rig.begin_call(*SCRIPT, run_s=45)
    assert (ignored.taken, call.person_id) == (2, "p-1")
    await rig.run(60)
    assert (ignored.taken, await rig.queries.attention()) == (2, {})


async def test_assign_that_is_always_ignored_is_told(sandbox_asgi: Asgi, redis: Redis) -> None:
    """It is repeated within its limit. Then a person must look, and nobody is said to be assigned."""
    rig, ignored = ignoring(sandbox_asgi, redis, 99)
    call = await rig.begin_call(*SCRIPT, run_s=120)
    record = await rig.record(call)
    assert (ignored.taken, record.seen.person_id, record.ledger.assign.state) == (3, None, EffectState.REFUSED)
    assert list((await rig.queries.attention()).values()) == [f"assign refused by the service: {NOT_SHOWN}"]
    await rig.run(120)
    record = await rig.record(call)
    assert (record.life.reason, rig.ledger(call).get("enroll")) == (Reason.UNASSIGNED, None)


async def test_checks_before_the_assign_was_carried_out_say_nothing_of_the_voice(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """No account was correlated then: whoever has the member's phone is not enrolled on the strength of them."""
    rig, _ = ignoring(sandbox_asgi, redis, 1)
    call = await rig.begin_call(*SCRIPT, run_s=20)
    before = (await rig.record(call)).plan.checks_used
    await rig.run(60)
    seen = (await rig.record(call)).seen
    assert before > 1
    assert usable_answers(seen) >> before
    assert not usable_answers(seen) & ((1 << before) - 1)


@pytest.mark.parametrize("again", [False, True])
async def test_person_who_asked_for_an_ignored_assign_learns_it(sandbox_asgi: Asgi, redis: Redis, again: bool) -> None:
    """She may ask for it once more."""
    rig, ignored = ignoring(sandbox_asgi, redis, 3)
    call = await rig.begin_call(H(Kind.END, 400), persons=[], run_s=5)
    await rig.note(call, AssignWish(person_id="p-1", operator="ann", said_at=rig.clock.now, wish="a1"))
    await rig.run(150)
    if again:
        await rig.note(call, AssignWish(person_id="p-1", operator="ann", said_at=rig.clock.now, wish="a2"))
        await rig.run(60)
    states = statuses_of(await rig.record(call), await rig.trail(call))
    assert states["a2" if again else "a1"].state is (ActionState.DONE if again else ActionState.REFUSED)
    assert ignored.taken == (4 if again else 3)


async def test_member_whom_only_the_queue_shows_is_assigned(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Details of this service never name a person, but its queue does: that is enough."""
    rig = Rig(sandbox_asgi, redis, transport=Nameless(sandbox_asgi.transport))
    call = await rig.begin_call(*SCRIPT, run_s=100)
    assert (rig.ledger(call)["assign"], (await rig.record(call)).seen.person_id) == (1, "p-1")


async def test_member_whom_another_tool_corrects_at_once_was_assigned(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Details showed our member for a moment: our assign was carried out, and the correction stays."""
    sandbox_asgi.world.add_member(KEY, "p-2", ["5550100222"])
    rig = Rig(sandbox_asgi, redis)
    call = await rig.begin_call(H(Kind.CLAIMED, 4, "zed", "p-2"), H(Kind.END, 200), run_s=100)
    record = await rig.record(call)
    assert (record.seen.person_id, record.ledger.assign.state) == ("p-2", EffectState.APPLIED)


async def test_correction_that_the_service_ignores_is_not_told_as_done(rig: Rig) -> None:
    """An assign over an assigned person succeeds and changes nothing."""
    rig.stage.sandbox.choose(["assign-over-ignored"])
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = await rig.begin_call(H(Kind.END, 400), run_s=15)
    await rig.note(call, AssignWish(person_id="p-2", operator="ann", said_at=rig.clock.now, wish="a1"))
    await rig.run(60)
    record = await rig.record(call)
    assert record.seen.person_id == "p-1"
    assert statuses_of(record, await rig.trail(call))["a1"].state is ActionState.HELD

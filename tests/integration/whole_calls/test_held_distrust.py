"""A distrust that had to wait: an enroll of the member that came after it stays, unless a person says so once more."""

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.action_status import statuses_of
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.notes import Distrusted
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import DEMO, SHIPPED, Rig
from tests.integration.whole_calls.test_outcomes_told import verify_again
from tests.integration.whole_calls.test_pause import pause, resume
from tests.integration.whole_calls.test_rejected_meanwhile import Wire
from tests.sandbox_fixtures import Asgi

H = Happening


async def distrusted_in_a_pause(rig: Rig) -> Call:
    """An impostor calls as p-1 during a pause, and Bob says so. Ten minutes pass."""
    await pause(rig)
    call = rig.stage.call(H(Kind.END, 40))
    await rig.push(call)
    await rig.run(20)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1"))
    await rig.run(600)
    return call


@pytest.mark.parametrize("wait_s", [30, 33])
async def test_member_whom_ann_verified_later_stays_enrolled(rig: Rig, wait_s: float) -> None:
    """At the resume both are due. If the reject goes first, Ann has not named it, and is asked before any enroll."""
    first = await distrusted_in_a_pause(rig)
    second = rig.stage.call(H(Kind.END, 900))
    await rig.push(second)
    await rig.run(wait_s)
    await verify_again(rig, second, after_s=10)
    await rig.run(10)
    await resume(rig)
    await rig.run(120)
    enrolls = rig.ledger(second).get("enroll", 0)
    assert (second.manual_person_id, first.rejected, enrolls) in {("p-1", False, 1), (None, True, 0)}
    assert (rig.call_id(second).member in await rig.queries.attention()) is first.rejected


async def test_member_whom_another_tool_enrolled_meanwhile_stays_enrolled(rig: Rig) -> None:
    """The enroll was read before the reject was sent."""
    await distrusted_in_a_pause(rig)
    second = rig.stage.call(H(Kind.ENROLLED, 10, "zed", "p-1"), H(Kind.END, 900))
    await rig.push(second)
    await rig.run(30)
    await resume(rig)
    await rig.run(120)
    assert second.manual_person_id == "p-1", await rig.queries.attention()


@pytest.mark.parametrize("by", ["person", "rule"])
async def test_member_who_is_enrolled_between_intention_and_request_stays_enrolled(
    sandbox_asgi: Asgi, redis: Redis, by: str
) -> None:
    """The reject is intended, and its confirming read fails for a minute. Meanwhile Ann verifies the member."""
    wire = Wire(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, SHIPPED if by == "person" else DEMO, transport=wire)
    signs = (H(Kind.MISMATCH, 20), H(Kind.HIGH_RISK, 20)) if by == "rule" else ()
    first, second = rig.stage.call(*signs, H(Kind.END, 900)), rig.stage.call(H(Kind.END, 900))

    async def away(request: httpx.Request) -> httpx.Response | None:
        is_asked = first.voice_id in request.url.path and request.url.path.endswith("/details")
        is_intended = is_asked and (await rig.record(first)).ledger.reject.state is EffectState.INTENDED
        return httpx.Response(503) if is_intended else None

    wire.look = away
    await rig.run(20)
    if by == "person":
        await rig.note(first, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1"))
    await rig.run(20)
    await verify_again(rig, second)
    await rig.run(20)
    assert (await rig.record(first)).ledger.reject.state is EffectState.INTENDED
    wire.look = None
    await rig.run(60)
    assert second.manual_person_id == "p-1", await rig.whats(first)
    assert rig.call_id(first).member in await rig.queries.attention()


async def test_person_who_distrusts_once_more_is_obeyed(rig: Rig) -> None:
    """The reject was never sent, and a person was told why. Who then says it again knows of the enroll."""
    first = await distrusted_in_a_pause(rig)
    second = rig.stage.call(H(Kind.ENROLLED, 10, "zed", "p-1"), H(Kind.END, 900))
    await rig.push(second)
    await rig.run(30)
    await resume(rig)
    await rig.run(30)
    assert not first.rejected
    assert statuses_of(await rig.record(first), await rig.trail(first))["r1"].reasons == ("enrolled_since",)
    again = Distrusted(operator="bob", said_at=rig.clock.now, reason="I know", wish="r2")
    await rig.note(first, again, even_settled=True)
    await rig.run(30)
    assert first.rejected, await rig.whats(first)


async def test_distrust_of_a_voice_that_is_enrolled_after_a_reject_outlives_a_pause_of_five_hours(rig: Rig) -> None:
    """Another tool rejected and then enrolled the voice. The call is not given up before Bob's word is carried out."""
    call = await rig.begin_call(H(Kind.REJECTED, 5), H(Kind.ENROLLED, 15, "zed", "p-1"), H(Kind.END, 60), run_s=30)
    await pause(rig)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1"))
    await rig.run(10)
    rig.stage.advance(5 * 3600)
    await rig.run(10)
    await resume(rig)
    await rig.run(120)
    assert (rig.ledger(call)["reject_voice"], call.manual_person_id) == (1, None)


@pytest.mark.parametrize("is_enrolled_anew", [False, True])
async def test_enroll_that_a_reject_took_back_holds_no_distrust_up(rig: Rig, is_enrolled_anew: bool) -> None:
    """Another tool enrolled the member in the pause, and took that back. There is nothing that a reject could undo."""
    await distrusted_in_a_pause(rig)
    second = rig.stage.call(H(Kind.ENROLLED, 10, "zed", "p-1"), H(Kind.REJECTED, 30), H(Kind.END, 900))
    await rig.push(second)
    await rig.run(60)
    assert (await rig.record(second)).seen.unenrolled
    if is_enrolled_anew:
        rig.stage.happen(second, Kind.ENROLLED, "zed", "p-1")
        await rig.run(70)
    await resume(rig)
    await rig.run(120)
    attention = "reject not carried out: the member was enrolled since"
    assert (attention in (await rig.queries.attention()).values()) is is_enrolled_anew

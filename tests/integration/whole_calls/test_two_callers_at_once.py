"""Two callers who are verified as one member at the same time: one of them is not the member."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.effect_resolution import ENROLLED_BESIDE, RECOGNISED_BESIDE
from callkeeper.calls.notes import Distrusted, Resolved
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.integration.whole_calls.test_clocks import Clocks, rig_of
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.sandbox_fixtures import Asgi

H = Happening


async def second_call(rig: Rig, *, after_s: float) -> Call:
    """Let p-1 call and prove a passcode, and so many seconds later somebody else whom an agent takes for p-1."""
    first = await rig.begin_call(H(Kind.MFA_VALIDATED, 30), H(Kind.END, 100), run_s=after_s)
    script = (H(Kind.MFA_VALIDATED, 30), H(Kind.END, 120))
    second = await rig.begin_call(*script, run_s=5, phone_number="5559999999", persons=[])
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    await rig.run(105 - after_s if after_s < 100 else 40)
    assert rig.ledger(first)["enroll"] == 1
    return second


@pytest.mark.parametrize("after_s", [pytest.param(0.0, marks=pytest.mark.night), 60.0])
async def test_second_of_two_callers_at_once_is_not_enrolled_without_a_person(rig: Rig, after_s: float) -> None:
    """Both proved a passcode, and nothing is known of either voice: a person has to find out who is the member."""
    second = await second_call(rig, after_s=after_s)
    await rig.run(200)
    assert "enroll" not in rig.ledger(second)
    assert list((await rig.queries.attention()).values()) == ["enroll not carried out: the member was enrolled since"]
    await rig.note(second, verified(rig), even_settled=True)
    await rig.run(30)
    assert rig.ledger(second).get("enroll") == 1, "a person has decided"
    assert not await rig.queries.attention()


async def test_second_caller_whom_a_person_rejects_needs_nobody_any_more(rig: Rig) -> None:
    """The person who was asked has found out that the second one is not the member."""
    second = await second_call(rig, after_s=60.0)
    await rig.run(200)
    await rig.note(second, Distrusted(operator="bob", said_at=rig.clock.now, reason="not her voice"), even_settled=True)
    await rig.run(60)
    assert second.rejected
    assert list((await rig.queries.attention()).values()) == ["enroll taken back"], "of the first call"


async def test_two_callers_at_once_count_as_such_also_if_no_worker_saw_the_second_begin(rig: Rig) -> None:
    """Its push was recorded before the first call's end, but workers were back only after the end of that one."""
    first = await rig.begin_call(H(Kind.MFA_VALIDATED, 30), H(Kind.END, 100), run_s=50)
    rig.stage.advance(10)
    second = rig.stage.call(H(Kind.MFA_VALIDATED, 90), H(Kind.END, 200), phone_number="5559999999", persons=[])
    await rig.push(second)
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    rig.stage.advance(40)
    await rig.push(first, "CallEnd")
    rig.stage.advance(30)
    await rig.run(300)
    assert [rig.ledger(call).get("enroll", 0) for call in (first, second)] == [1, 0]
    assert list((await rig.queries.attention()).values()) == ["enroll not carried out: the member was enrolled since"]


@pytest.mark.parametrize("begins_s", [10.0, pytest.param(60.0, marks=pytest.mark.night), 200.0])
async def test_caller_who_begins_after_the_first_was_enrolled_and_while_that_call_goes_on_is_not_enrolled(
    rig: Rig, begins_s: float
) -> None:
    """A person has verified the first one, who is still on the line: the second one, too, proves a passcode as p-1."""
    first = await rig.begin_call(H(Kind.END, 600), run_s=20)
    await rig.note(first, verified(rig))
    await rig.run(begins_s)
    assert rig.ledger(first)["enroll"] == 1
    script = (H(Kind.MFA_VALIDATED, 30), H(Kind.END, 120))
    second = await rig.begin_call(*script, run_s=5, phone_number="5559999999", persons=[])
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    await rig.run(200)
    assert (first.ended_at, rig.ledger(second).get("enroll")) == (None, None)
    assert list((await rig.queries.attention()).values()) == ["enroll not carried out: the member was enrolled since"]


async def test_two_callers_at_once_count_as_such_also_if_the_second_call_is_found_late(rig: Rig) -> None:
    """The queue cannot be listed for 200 s, and the second call's push is lost. The service says when it began."""
    first = await rig.begin_call(H(Kind.END, 120), run_s=20)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.DROP))
    script = (H(Kind.MFA_VALIDATED, 260), H(Kind.END, 330))
    second = rig.stage.call(*script, phone_number="5559999999", persons=[])
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    await rig.run(40)
    await rig.note(first, verified(rig))
    await rig.run(140)
    rig.stage.sandbox.faults.clear()
    await rig.run(250)
    heard_at = (await rig.record(second)).life.first_seen_at
    assert first.ended_at is not None
    assert heard_at is not None
    assert heard_at > first.ended_at
    assert [rig.ledger(call).get("enroll", 0) for call in (first, second)] == [1, 0]
    assert list((await rig.queries.attention()).values()) == ["enroll not carried out: the member was enrolled since"]


async def test_caller_who_rings_again_at_once_is_enrolled_as_before(rig: Rig) -> None:
    """The line dropped. The first call's enroll comes ten seconds after its end, when the second one has begun."""
    second = await second_call(rig, after_s=103.0)
    await rig.run(200)
    assert rig.ledger(second).get("enroll") == 1
    assert not await rig.queries.attention()


async def test_callers_whom_persons_have_verified_are_both_enrolled(rig: Rig) -> None:
    """A person's word is enough, also beside an enroll elsewhere."""
    first, second = (rig.stage.call(H(Kind.END, 200)) for _ in range(2))
    await rig.run(20)
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    for wish, call in (("e1", first), ("e2", second)):
        await rig.note(call, verified(rig, wish))
        await rig.run(20)
    assert [rig.ledger(call).get("enroll") for call in (first, second)] == [1, 1]


async def test_caller_whom_a_rule_has_enrolled_is_a_question_once_a_person_verifies_one_beside_it(rig: Rig) -> None:
    """Her word stands. A person finds out who called first, and says that it was the member as well, or distrusts him."""
    first = await rig.begin_call(H(Kind.MFA_VALIDATED, 30), H(Kind.END, 100), run_s=50)
    second = await rig.begin_call(H(Kind.END, 350), run_s=5, phone_number="5559999999", persons=[])
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    await rig.run(95)
    assert rig.ledger(first)["enroll"] == 1
    await rig.note(second, verified(rig))
    await rig.run(300)
    assert rig.ledger(second).get("enroll") == 1
    assert await rig.queries.attention() == {rig.call_id(first).member: ENROLLED_BESIDE}
    seen = Resolved(operator="eve", said_at=rig.clock.now, applied=True, wish="s1")
    await rig.note(first, seen, even_settled=True)
    await rig.run(10)
    assert not await rig.queries.attention()


@pytest.mark.parametrize("lives_on_s", [30.0, 300.0])
async def test_two_callers_at_once_count_as_such_after_a_jump_of_the_clock_of_redis(
    sandbox_asgi: Asgi, redis: Redis, lives_on_s: float
) -> None:
    """It jumps ahead between the two: the first call's enroll was stored by the earlier clock."""
    clocks = Clocks(sandbox_asgi)
    rig = rig_of(sandbox_asgi, redis, clocks)
    first = await rig.begin_call(H(Kind.END, 15 + lives_on_s), run_s=10)
    second = await rig.begin_call(H(Kind.MFA_VALIDATED, 100), H(Kind.END, 150), run_s=5, phone_number="5559999999")
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    await rig.note(first, verified(rig))
    await rig.run(60)
    assert rig.ledger(first)["enroll"] == 1
    clocks.redis = timedelta(seconds=400)
    await rig.run(200)
    assert "enroll" not in rig.ledger(second)


async def test_reject_is_not_repeated_after_an_enroll_and_a_jump_of_the_clock_of_redis(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """It would take back the enroll of another call, which came after the first reject, before the jump."""
    clocks = Clocks(sandbox_asgi)
    rig = rig_of(sandbox_asgi, redis, clocks)
    first, second = (rig.stage.call(H(Kind.END, 300)) for _ in range(2))
    await rig.run(20)
    rig.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.UNAUTHORIZED, times=1))
    await rig.note(first, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1"))
    await rig.run(2)
    await rig.note(second, verified(rig))
    await rig.run(3)
    clocks.redis = timedelta(seconds=400)
    await rig.run(60)
    assert (second.manual_person_id, first.rejected) == ("p-1", False)


class Meeting(httpx.AsyncBaseTransport):
    """Holds the first enroll up until another one has come, or has had the time to."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner, self._another, self._came = inner, asyncio.Event(), 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if request.url.path.endswith("/enroll"):
            self._came += 1
            if self._came == 1:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._another.wait(), 0.5)
            self._another.set()
        return await self._inner.handle_async_request(request)


async def test_enrolls_of_two_callers_at_once_that_are_due_at_the_same_moment_wait_for_a_person(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """Each is looked up before the other is answered. If neither saw the other, an impostor would be enrolled, too."""
    rig = Rig(sandbox_asgi, redis, transport=Meeting(sandbox_asgi.transport))
    script = (H(Kind.MFA_VALIDATED, 30), H(Kind.END, 100))
    first, second = rig.stage.call(*script), rig.stage.call(*script, phone_number="5559999999", persons=[])
    for call in (first, second):
        await rig.push(call)
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    await rig.run(200)
    assert [rig.ledger(call).get("enroll", 0) for call in (first, second)] == [0, 0]
    why = "enroll not carried out: the member was enrolled since"
    assert list((await rig.queries.attention()).values()) == [why, why]
    await rig.note(first, verified(rig), even_settled=True)
    await rig.run(30)
    assert [rig.ledger(call).get("enroll", 0) for call in (first, second)] == [1, 0]


@pytest.mark.parametrize("by", ["a person", "a rule"])
async def test_caller_who_rings_again_while_the_service_is_away_is_enrolled_as_before(rig: Rig, by: str) -> None:
    """The line dropped, and the push of that was lost: the end is read late, and the service's record says when it was."""
    first = await rig.begin_call(*([] if by == "a person" else [H(Kind.MFA_VALIDATED, 30)]), H(Kind.END, 100), run_s=50)
    if by == "a person":
        await rig.note(first, verified(rig))
    await rig.run(40)
    for target in ("queue", "details"):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.DROP))
    await rig.run(15)
    second = await rig.begin_call(H(Kind.MFA_VALIDATED, 60), H(Kind.END, 150), run_s=40)
    rig.stage.sandbox.faults.clear()
    await rig.run(300)
    ended_at = (await rig.record(first)).life.ended_at
    assert ended_at is not None
    assert ended_at > second.started_at, "it was read late"
    assert [rig.ledger(call).get("enroll") for call in (first, second)] == [1, 1]
    assert not await rig.queries.attention()


async def recognised(rig: Rig, *, ends_s: float) -> Call:
    """Let p-1 call for some time, and be recognised by the voice."""
    first = await rig.begin_call(H(Kind.GREEN, 5), H(Kind.END, ends_s), run_s=20)
    assert (await rig.record(first)).seen.authenticated_members == ("p-1",)
    return first


@pytest.mark.parametrize("ends_s", [60.0, 400.0])
async def test_caller_beside_one_whose_voice_is_the_members_is_not_enrolled_without_a_person(
    rig: Rig, ends_s: float
) -> None:
    """He proves a passcode as p-1, who is on another line, or was until a moment before his enroll was due."""
    await recognised(rig, ends_s=ends_s)
    second = await rig.begin_call(H(Kind.MFA_VALIDATED, 20), H(Kind.END, 100), run_s=5, phone_number="5559999999")
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    await rig.run(150)
    assert "enroll" not in rig.ledger(second)
    assert await rig.queries.attention() == {rig.call_id(second).member: f"enroll not carried out: {RECOGNISED_BESIDE}"}
    trail = await rig.trail(second)
    assert [line.because for line in trail if line.kind == "enroll" and line.state] == [RECOGNISED_BESIDE]
    await rig.note(second, verified(rig), even_settled=True)
    await rig.run(30)
    assert rig.ledger(second).get("enroll") == 1, "a person has decided"
    assert not await rig.queries.attention()


async def test_caller_whom_a_rule_has_enrolled_is_a_question_once_the_voice_beside_it_is_the_members(rig: Rig) -> None:
    """The member talks on another line, and her voice is recognised only after he has hung up and was enrolled."""
    first = await rig.begin_call(H(Kind.GREEN, 150), H(Kind.END, 300), run_s=20)
    second = await rig.begin_call(H(Kind.MFA_VALIDATED, 20), H(Kind.END, 60), run_s=5, phone_number="5559999999")
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    await rig.run(115)
    assert rig.ledger(second).get("enroll") == 1
    assert not await rig.queries.attention()
    await rig.run(300)
    assert await rig.queries.attention() == {rig.call_id(second).member: ENROLLED_BESIDE}
    assert (await rig.record(second)).ledger.enrolled_beside == first.voice_id


async def test_caller_who_rings_again_after_a_recognised_call_is_enrolled(rig: Rig) -> None:
    """The first call had ended: it is the member again, whose voice was not recognised this time."""
    await recognised(rig, ends_s=30)
    await rig.run(20)
    second = await rig.begin_call(H(Kind.MFA_VALIDATED, 20), H(Kind.END, 100), run_s=150)
    assert rig.ledger(second).get("enroll") == 1
    assert not await rig.queries.attention()


async def test_caller_beside_one_whose_voice_a_person_rejected_is_asked_about_because_of_that(rig: Rig) -> None:
    """A rejected voice is not the member's: what speaks against this caller are the marks that it left."""
    first = await recognised(rig, ends_s=300)
    await rig.begin_call(H(Kind.MFA_VALIDATED, 20), H(Kind.END, 100), run_s=20)
    await rig.note(first, Distrusted(operator="bob", said_at=rig.clock.now, reason="a clone"))
    await rig.run(150)
    assert first.rejected
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but rejected before'"]

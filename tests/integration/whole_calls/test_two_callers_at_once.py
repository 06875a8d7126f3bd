"""Two callers who are established as one member at the same time: one of them is not the member."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.notes import Distrusted, Resolved
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.integration.whole_calls.test_clocks import Clocks, rig_of
from tests.integration.whole_calls.test_outcomes_told import verified, verify_again
from tests.records import facts_of_record
from tests.sandbox_fixtures import Asgi

H = Happening
ASKED = "asked by rule 'same_member_live'"


async def beside(rig: Rig, *script: Happening, run_s: float = 5) -> Call:
    """Let somebody call from another number whom an agent takes for p-1."""
    call = await rig.begin_call(*script, run_s=run_s, phone_number="5559999999", persons=[])
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-1")
    return call


async def asked(rig: Rig, *calls: Call) -> bool:
    """Tell whether exactly these calls ask a person, each names another one of them, and the law says so."""
    for call in calls:
        record = await rig.record(call)
        assert facts_of_record(record, rig.book.policies).same_member_live
        assert record.ledger.beside == tuple(other.voice_id for other in calls if other is not call)
    return await rig.queries.attention() == {rig.call_id(call).member: ASKED for call in calls}


def enrolls(rig: Rig, *calls: Call) -> list[int]:
    """Return how many enrolls each call got."""
    return [rig.ledger(call).get("enroll", 0) for call in calls]


BY: dict[str, Happening] = {"a passcode": H(Kind.MFA_VALIDATED, 20), "the voice": H(Kind.GREEN, 20)}


@pytest.mark.parametrize("ends_first", ["the first", "the second"])
@pytest.mark.parametrize(
    ("first_by", "second_by"),
    [("a passcode", "a passcode"), ("the voice", "a passcode"), ("a passcode", "the voice")],
)
async def test_neither_of_two_callers_at_once_is_enrolled_by_a_rule_and_both_ask_at_once(
    rig: Rig, first_by: str, second_by: str, ends_first: str
) -> None:
    """While both are on the line, however each of them was established. Who hangs up first does not matter."""
    first = await rig.begin_call(BY[first_by], H(Kind.END, 100 if ends_first == "the first" else 160), run_s=10)
    second = await beside(rig, BY[second_by], H(Kind.END, 120))
    await rig.run(45)
    assert (first.ended_at, second.ended_at) == (None, None)
    assert await asked(rig, first, second)
    await rig.run(300)
    assert enrolls(rig, first, second) == [0, 0]
    assert await asked(rig, first, second)
    await rig.note(first, replace(verified(rig), despite=("same_member_live",)), even_settled=True)
    await rig.run(30)
    assert enrolls(rig, first, second) == [1 if first_by == "a passcode" else 0, 0], "a person has decided"


@pytest.mark.parametrize("by", ["a rule", "a person"])
async def test_caller_who_is_enrolled_already_is_asked_about_as_well(rig: Rig, by: str) -> None:
    """A person finds out who of the two it was. If a rule enrolled him, also while that call goes on."""
    script = (H(Kind.MFA_VALIDATED, 5), H(Kind.END, 50)) if by == "a rule" else (H(Kind.END, 80),)
    first = await rig.begin_call(*script, run_s=20)
    if by == "a person":
        await rig.note(first, verified(rig))
    second = await beside(rig, H(Kind.MFA_VALIDATED, 100), H(Kind.END, 300), run_s=15)
    await rig.run(60)
    assert (enrolls(rig, first, second), await rig.queries.attention()) == ([1, 0], {})
    await rig.run(60)
    assert await asked(rig, first, second)
    seen = Resolved(operator="eve", said_at=rig.clock.now, applied=True, wish="s1")
    await rig.note(first, seen, even_settled=True)
    await rig.run(10)
    assert await rig.queries.attention() == {rig.call_id(second).member: ASKED}
    await rig.run(300)
    assert enrolls(rig, first, second) == [1, 0]


async def test_caller_whom_a_person_rejects_leaves_the_other_to_what_that_says(rig: Rig) -> None:
    """The person who was asked has found the impostor. The rules ask about the member, because of the reject."""
    first = await rig.begin_call(H(Kind.MFA_VALIDATED, 20), H(Kind.END, 200), run_s=10)
    second = await beside(rig, H(Kind.MFA_VALIDATED, 20), H(Kind.END, 220))
    await rig.run(60)
    assert await asked(rig, first, second)
    await rig.note(second, Distrusted(operator="bob", said_at=rig.clock.now, reason="not her voice"))
    await rig.run(300)
    assert (second.rejected, enrolls(rig, first, second)) == (True, [0, 0])
    assert await rig.queries.attention() == {rig.call_id(first).member: "asked by rule 'verified, but rejected before'"}


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
    assert enrolls(rig, first, second) == [1, 0]
    assert await asked(rig, first, second)


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
    assert enrolls(rig, first, second) == [1, 0]
    assert await asked(rig, first, second)


@pytest.mark.parametrize("how", [Kind.MFA_VALIDATED, Kind.GREEN])
async def test_caller_who_rings_again_at_once_is_enrolled_as_before(rig: Rig, how: Kind) -> None:
    """The line dropped. What becomes of the first call comes ten seconds after its end, when the second one has begun."""
    first = await rig.begin_call(H(how, 30), H(Kind.END, 100), run_s=103)
    second = await beside(rig, H(Kind.MFA_VALIDATED, 30), H(Kind.END, 120))
    await rig.run(300)
    assert enrolls(rig, first, second) == [1 if how is Kind.MFA_VALIDATED else 0, 1]
    assert not await rig.queries.attention()


async def test_callers_whom_persons_have_verified_are_both_enrolled(rig: Rig) -> None:
    """A person's word acts, also beside another caller, if it names that: whoever says it has to know of both."""
    first, second = (rig.stage.call(H(Kind.END, 200)) for _ in range(2))
    await rig.run(20)
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-1")
    for wish, call in (("e1", first), ("e2", second)):
        await rig.note(call, verified(rig, wish))
        await rig.run(20)
    assert enrolls(rig, first, second) == [1, 0]
    assert set((await rig.queries.attention()).values()) == {"asked by rule 'verified, but evidence against it'"}
    await rig.note(second, replace(verified(rig, "e3"), despite=("same_member_live",)))
    await rig.run(20)
    assert enrolls(rig, first, second) == [1, 1]


@pytest.mark.parametrize("lives_on_s", [30.0, 300.0])
async def test_two_callers_at_once_count_as_such_after_a_jump_of_the_clock_of_redis(
    sandbox_asgi: Asgi, redis: Redis, lives_on_s: float
) -> None:
    """It jumps ahead between the two: the first caller was stored by the earlier clock."""
    clocks = Clocks(sandbox_asgi)
    rig = rig_of(sandbox_asgi, redis, clocks)
    first = await rig.begin_call(H(Kind.END, 15 + lives_on_s), run_s=10)
    second = await beside(rig, H(Kind.MFA_VALIDATED, 100), H(Kind.END, 150))
    await rig.note(first, verified(rig))
    await rig.run(60)
    assert enrolls(rig, first) == [1]
    clocks.redis = timedelta(seconds=400)
    await rig.run(200)
    assert enrolls(rig, second) == [0]
    assert (await rig.record(second)).ledger.beside == (first.voice_id,)


@pytest.mark.parametrize("is_same", [True, False])
async def test_two_callers_who_are_established_in_two_workers_at_one_instant_are_found(
    sandbox_asgi: Asgi, redis: Redis, is_same: bool
) -> None:
    """Each is stored before the other is looked up, so at least one finds the other, whichever steps are mixed."""
    clocks = Clocks(sandbox_asgi)
    one, two = rig_of(sandbox_asgi, redis, clocks), rig_of(sandbox_asgi, redis, clocks)
    script = (H(Kind.MFA_VALIDATED, 20), H(Kind.END, 100))
    first = await one.begin_call(*script, run_s=0)
    second = one.stage.call(*script, phone_number="5559999999", persons=[])
    await one.push(second)
    one.stage.happen(second, Kind.CLAIMED, "zed", "p-1" if is_same else "p-2")
    for _ in range(800):
        await asyncio.gather(one.tick(), two.tick())
        one.stage.advance(0.25)
    assert enrolls(one, first, second) == ([0, 0] if is_same else [1, 1])
    if is_same:
        assert await asked(one, first, second)


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
    await verify_again(rig, second)
    await rig.run(3)
    clocks.redis = timedelta(seconds=400)
    await rig.run(60)
    assert (second.manual_person_id, first.rejected) == ("p-1", False)


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

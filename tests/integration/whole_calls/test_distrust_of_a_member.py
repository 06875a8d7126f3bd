"""A distrust is of the caller as one member. If another member stands on the call by then, that one loses nothing."""

from dataclasses import replace as with_rules

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.action_status import statuses_of
from callkeeper.calls.effect_resolution import HELD_BACK
from callkeeper.calls.notes import AssignWish, Distrusted, Resolved, Withdrawn
from callkeeper.calls.record import Reason
from callkeeper.calls.rules import Outcome, Rule, load_rules
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.courier import Courier
from tests.harness.virtual_time import DEMO, KEY, SHIPPED, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.integration.whole_calls.test_pause import pause, resume
from tests.sandbox_fixtures import Asgi

H = Happening
NUMBER = "5550100222"


@pytest.fixture
async def enrolled(rig: Rig) -> Call:
    """Return an earlier call in which a person verified p-2."""
    rig.stage.world.add_member(KEY, "p-2", [NUMBER])
    call = await rig.begin_call(H(Kind.END, 60), phone_number=NUMBER, run_s=20)
    await rig.note(call, replace(verified(rig), person_id="p-2"))
    await rig.run(100)
    assert call.manual_person_id == "p-2"
    return call


def distrust(rig: Rig, wish: str) -> Distrusted:
    """Return Bob's word."""
    return Distrusted(operator="bob", said_at=rig.clock.now, reason="not her voice", wish=wish)


@pytest.mark.parametrize("is_settled", [False, True])
async def test_member_who_was_put_on_the_call_later_keeps_what_they_have(
    rig: Rig, enrolled: Call, is_settled: bool
) -> None:
    """The number's only candidate was the wrong person: held up by a pause, or said before our record shows it."""
    call = await rig.begin_call(H(Kind.END, 60 if is_settled else 900), run_s=120 if is_settled else 20)
    if is_settled:
        rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
        await rig.note(call, distrust(rig, "r1"), even_settled=True)
    else:
        await pause(rig)
        await rig.note(call, distrust(rig, "r1"))
        await rig.run(30)
        rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
        await rig.run(30)
        await resume(rig)
    await rig.run(60)
    assert (call.rejected, enrolled.manual_person_id) == (False, "p-2")
    told = statuses_of(await rig.record(call), await rig.trail(call))["r1"]
    assert (told.state, told.reasons) == ("held", ("distrusted_as_another",))
    await rig.note(call, distrust(rig, "r2"), even_settled=True)
    await rig.run(30)
    assert call.rejected, "who says it again knows of the member"


async def test_member_whom_nobody_had_named_yet_keeps_what_they_have(rig: Rig, enrolled: Call) -> None:
    """Nobody stood on the call when Bob spoke. An agent who does not know of it takes the caller for p-2."""
    await pause(rig)
    call = await rig.begin_call(H(Kind.END, 900), run_s=20, phone_number="5559999999")
    await rig.note(call, distrust(rig, "r1"))
    await rig.run(10)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(30)
    await resume(rig)
    await rig.run(30)
    assert (call.rejected, enrolled.manual_person_id) == (False, "p-2")


async def test_member_whom_the_queue_names_after_the_word_keeps_what_they_have(rig: Rig, enrolled: Call) -> None:
    """Details cannot be read for a while, so the word and the claim of an agent who does not know of it wait together."""
    call = await rig.begin_call(H(Kind.END, 900), run_s=20, phone_number="5559999999")
    rig.stage.sandbox.faults.add(Fault(target="details", action=Action.ANSWER))
    await rig.run(60)
    await rig.note(call, distrust(rig, "r1"))
    await rig.run(20)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(60)
    rig.stage.sandbox.faults.clear()
    await rig.run(60)
    assert (call.person_id, call.rejected, enrolled.manual_person_id) == ("p-2", False, "p-2")
    told = statuses_of(await rig.record(call), await rig.trail(call))["r1"]
    assert (told.state, told.reasons) == ("held", ("distrusted_as_another",))


async def test_distrust_that_was_never_carried_out_needs_a_person(courier: Courier) -> None:
    """Bob's reject was held until the call's end. Somebody else learns of it, too; whoever says it again is obeyed."""
    courier.stage.world.add_member(KEY, "p-2", [NUMBER])
    call = await courier.begin_call(H(Kind.END, 120), run_s=20)
    courier.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await courier.note(call, distrust(courier, "r1"))
    await courier.run(60)
    assert list((await courier.queries.attention()).values()) == ["asked by rule 'member_changed'"]
    await courier.run(100)
    record = await courier.record(call)
    assert (record.is_settled, record.life.reason, call.rejected) == (True, Reason.UNDECIDED, False)
    assert list((await courier.queries.attention()).values()) == [f"reject not carried out: {HELD_BACK}"]
    told = statuses_of(record, await courier.trail(call))["r1"]
    assert (told.state, told.reasons) == ("held", ("distrusted_as_another",))
    [data] = [one["data"] for one in courier.receiver.taken if one["type"] == "call.not_carried_out"]
    assert (data["effect"], data["operator"], data["reason"]) == ("reject", "bob", HELD_BACK)
    await courier.note(call, distrust(courier, "r2"), even_settled=True)
    await courier.run(60)
    assert (call.rejected, await courier.queries.attention()) == (True, {})


async def test_distrust_that_was_never_carried_out_is_seen(rig: Rig) -> None:
    """Sue finds out that it was a mistake. It is not listed again."""
    rig.stage.world.add_member(KEY, "p-2", [NUMBER])
    call = await rig.begin_call(H(Kind.END, 60), run_s=20)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.note(call, distrust(rig, "r1"))
    await rig.run(100)
    assert await rig.queries.attention()
    await rig.note(call, Resolved(applied=False, operator="sue", said_at=rig.clock.now), even_settled=True)
    await rig.run(30)
    assert not await rig.queries.attention()


async def test_distrust_that_a_pause_held_for_more_than_a_day_needs_a_person(rig: Rig) -> None:
    """It counts for a day after the end. Nobody would look at the call any more."""
    await pause(rig)
    call = await rig.begin_call(H(Kind.END, 60), run_s=20)
    await rig.note(call, distrust(rig, "r1"))
    await rig.run(100)
    assert not await rig.queries.attention()
    rig.stage.advance(25 * 3600)
    await rig.run(10)
    assert (await rig.record(call)).is_settled
    assert list((await rig.queries.attention()).values()) == [f"reject not carried out: {HELD_BACK}"]
    assert statuses_of(await rig.record(call), await rig.trail(call))["r1"].reasons == ("held_too_long",)


@pytest.mark.parametrize("rules", ["watch-only", "asks"])
async def test_distrust_that_the_rules_do_not_carry_out_needs_nobody_by_itself(
    sandbox_asgi: Asgi, redis: Redis, rules: str
) -> None:
    """Whoever installed the rules knows that they only watch; and who the caller is, is asked anyway."""
    asking = Rule("distrusted", (("distrusted", True),), Outcome.ASK, "Look.")
    other = Rule("known", (("fraud", True), ("voice_mismatch", True)), Outcome.REJECT, "A known fraudster.")
    book = load_rules(rules) if rules == "watch-only" else with_rules(SHIPPED, rules=(asking, other, SHIPPED.rules[-1]))
    rig = Rig(sandbox_asgi, redis, book)
    rig.stage.world.add_member(KEY, "p-2", [NUMBER])
    call = await rig.begin_call(H(Kind.CLAIMED, 5, "zed", "p-1"), H(Kind.END, 90), run_s=20)
    await rig.note(call, distrust(rig, "r1"))
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(200)
    assert (await rig.record(call)).is_settled
    asked = ["asked by rule 'member_changed'"] if rules == "asks" else []
    assert list((await rig.queries.attention()).values()) == asked


async def test_member_who_comes_back_is_the_one_who_was_distrusted(rig: Rig, enrolled: Call) -> None:
    """Another member stood there by mistake for a while, or nobody did."""
    await pause(rig)
    call = await rig.begin_call(H(Kind.END, 900), run_s=20)
    await rig.note(call, distrust(rig, "r1"))
    for person_id in ("p-2", "p-1"):
        rig.stage.happen(call, Kind.CLAIMED, "zed", person_id)
        await rig.run(30)
    await resume(rig)
    await rig.run(30)
    assert (call.rejected, enrolled.manual_person_id) == (True, "p-2")


async def test_member_whom_the_desk_has_asked_to_assign_is_the_one_who_was_distrusted(rig: Rig, enrolled: Call) -> None:
    """Bob says who the caller is, and then that the caller lies. The first request of the assign is lost."""
    call = await rig.begin_call(H(Kind.END, 900), run_s=20, phone_number="5559999999")
    rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.DROP, times=1))
    await rig.note(call, AssignWish(operator="bob", said_at=rig.clock.now, person_id="p-2", wish="a1"))
    await rig.run(0.5)
    await rig.note(call, distrust(rig, "r1"))
    await rig.run(60)
    assert (call.person_id, call.rejected, enrolled.manual_person_id) == ("p-2", True, None)


async def test_rejected_caller_whom_nobody_was_assigned_to_is_not_assigned_by_itself(rig: Rig) -> None:
    """The queue was late. His number is p-1's, who had no part in the call: nothing of it must count against her."""
    call = rig.stage.call(H(Kind.END, 120), listed_after_s=8)
    await rig.push(call)
    await rig.run(1)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="a robot"))
    await rig.run(60)
    assert (call.rejected, call.person_id) == (True, None)
    assert not await rig.redis.exists(rig.store.keys.earlier(KEY, "p:p-1"))


@pytest.mark.parametrize("said_at_s", [1, 5], ids=["before it was read", "after it was read"])
async def test_distrusted_caller_whom_nobody_was_assigned_to_is_not_assigned_by_itself(
    rig: Rig, said_at_s: float
) -> None:
    """During a pause the reject waits. It must neither be about p-1, whose number the queue shows, nor come to nothing."""
    await pause(rig)
    call = rig.stage.call(H(Kind.END, 120), listed_after_s=8)
    await rig.push(call)
    await rig.run(said_at_s)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="a robot"))
    await rig.run(20)
    await resume(rig)
    await rig.run(60)
    assert (call.rejected, call.person_id) == (True, None)
    assert not await rig.redis.exists(rig.store.keys.earlier(KEY, "p:p-1"))


@pytest.mark.parametrize("apart_s", [0.0, 10.0], ids=["at once", "later"])
async def test_member_who_is_not_the_caller_by_the_desk_keeps_what_they_have(
    rig: Rig, enrolled: Call, apart_s: float
) -> None:
    """Zed has put p-2 on the call, and that stays. Bob says that it is p-1, and that he lies."""
    call = await rig.begin_call(H(Kind.CLAIMED, 0, "zed", "p-2"), H(Kind.END, 300), run_s=20)
    await rig.note(call, AssignWish(operator="bob", said_at=rig.clock.now, person_id="p-1", wish="a1"))
    await rig.run(apart_s)
    await rig.note(call, distrust(rig, "r1"))
    await rig.run(60)
    assert (call.person_id, call.rejected, enrolled.manual_person_id) == ("p-2", False, "p-2")
    told = statuses_of(await rig.record(call), await rig.trail(call))["r1"]
    assert (told.state, told.reasons) == ("held", ("distrusted_as_another", "named_as_another"))
    await rig.note(call, Withdrawn(operator="bob", said_at=rig.clock.now, what="assign", wish="w1"))
    await rig.note(call, distrust(rig, "r2"))
    await rig.run(30)
    assert call.rejected, "it is p-2 all the same"


async def test_rule_rejects_no_member_who_is_not_the_caller_by_the_desk(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The voice is not p-2's, of course: it is another caller's."""
    rig = Rig(sandbox_asgi, redis, DEMO)
    rig.stage.world.add_member(KEY, "p-2", [NUMBER])
    signs = (H(Kind.MISMATCH, 30), H(Kind.HIGH_RISK, 30))
    call = await rig.begin_call(H(Kind.CLAIMED, 0, "zed", "p-2"), *signs, H(Kind.END, 300), run_s=20)
    await rig.note(call, AssignWish(operator="bob", said_at=rig.clock.now, person_id="p-1", wish="a1"))
    await rig.run(60)
    assert not call.rejected


async def test_caller_whom_one_claim_finds_named_and_distrusted_is_rejected_as_named(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """Both words come while a check is under way, so that they are folded together."""
    rig = Rig(sandbox_asgi, redis)
    rig.stage.world.add_member(KEY, "p-2", [NUMBER])
    call = await rig.begin_call(H(Kind.END, 200), run_s=20)
    await rig.note(call, AssignWish(operator="bob", said_at=rig.clock.now, person_id="p-2", wish="a1"))
    rig.stage.advance(1)
    await rig.note(call, distrust(rig, "r1"))
    await rig.run(60)
    assert (call.person_id, call.rejected) == ("p-2", True)

"""A member who opted out in one call is not enrolled in another one on a passcode, until they opt in."""

import pytest
from msgspec.structs import replace

from callkeeper.calls.action_status import ActionState, statuses_of
from callkeeper.calls.fact_derivation import earlier_calls_of
from callkeeper.calls.notes import OptedIn, OptedOut
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.erasing import Eraser, Holds, Whose
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.records import facts_of_record

H = Happening
ASKED = "asked by rule 'verified, but opted out before'"
PASSCODE = (H(Kind.MFA_VALIDATED, 20), H(Kind.END, 80))


async def opted_out(rig: Rig, *script: Happening, by: str = "status") -> Call:
    """Return a call of p-1 in which the caller opted out, before the line dropped after a minute."""
    shown = (H(Kind.OPT_OUT, 20),) if by == "status" else ()
    call = await rig.begin_call(*shown, *script, H(Kind.END, 60), run_s=30)
    if by == "desk":
        await rig.note(call, OptedOut(operator="ann", said_at=rig.clock.now, wish="o1"))
    await rig.run(40)
    assert (await rig.record(call)).seen.opted_out
    return call


async def is_held(rig: Rig, call: Call) -> bool:
    """Tell whether the opt-out in another call is known of a call."""
    return facts_of_record(await rig.record(call), rig.book.policies).opted_out_before


@pytest.mark.parametrize("by", ["status", "desk"])
async def test_member_who_opted_out_and_rings_again_is_asked_about(rig: Rig, by: str) -> None:
    """A word about identity is none about consent: it enrolls nobody. The member opts in, and is enrolled."""
    first = await opted_out(rig, by=by)
    second = await rig.begin_call(*PASSCODE, run_s=150)
    assert "enroll" not in rig.ledger(second)
    assert list((await rig.queries.attention()).values()) == [ASKED]
    assert earlier_calls_of(await rig.record(second)) == {"opted_out_before": first.voice_id}
    await rig.note(second, verified(rig), even_settled=True)
    await rig.run(30)
    assert "enroll" not in rig.ledger(second)
    agreed = OptedIn(operator="ann", said_at=rig.clock.now, wish="i1", remark="asked, and agreed")
    await rig.note(second, agreed, even_settled=True)
    await rig.run(30)
    assert rig.ledger(second).get("enroll") == 1
    assert not await rig.queries.attention()


async def test_opt_in_of_nobody_in_particular_takes_nothing_back(rig: Rig) -> None:
    """Nothing says that the caller is the member, so it is not the member who opts in."""
    await opted_out(rig)
    other = await rig.begin_call(H(Kind.END, 60), run_s=20)
    await rig.note(other, OptedIn(operator="ann", said_at=rig.clock.now, wish="i1", remark="agreed"))
    await rig.run(60)
    later = await rig.begin_call(*PASSCODE, run_s=150)
    assert await is_held(rig, later)
    assert "enroll" not in rig.ledger(later)


async def test_opt_in_waits_until_the_caller_is_established_and_says_so(rig: Rig) -> None:
    """It is recorded, and not done, while nobody knows who opted in. Then it is done, and stays so."""
    await opted_out(rig)
    later = await rig.begin_call(H(Kind.END, 100), run_s=20)
    await rig.note(later, OptedIn(operator="ann", said_at=rig.clock.now, wish="i1", remark="agreed"))
    await rig.run(2)
    waits = statuses_of(await rig.record(later), await rig.trail(later))["i1"]
    assert (waits.state, waits.reasons, waits.may_change) == (ActionState.HELD, ("identity_unknown",), True)
    await rig.note(later, verified(rig))
    await rig.run(2)
    assert statuses_of(await rig.record(later), await rig.trail(later))["i1"].state is ActionState.DONE
    await rig.run(200)
    assert rig.ledger(later).get("enroll") == 1
    assert statuses_of(await rig.record(later), await rig.trail(later))["i1"].state is ActionState.DONE


async def test_opt_out_outlives_the_other_marks(rig: Rig) -> None:
    """Two years after it, when no other mark is left, a passcode enrolls nobody."""
    await opted_out(rig)
    rig.stage.advance(730 * 86400.0)
    assert [key async for key in rig.redis.scan_iter(match=rig.store.keys.earlier(KEY, "p:*"))] == []
    assert await rig.redis.ttl(rig.store.keys.earlier(KEY, "c:p-1")) == -1
    later = await rig.begin_call(*PASSCODE, run_s=150)
    assert await is_held(rig, later)
    assert "enroll" not in rig.ledger(later)


async def test_erased_member_stays_opted_out(rig: Rig) -> None:
    """Only that their id opted out is kept, and of no call."""
    await opted_out(rig)
    await rig.run(30)
    found = await Eraser(rig.redis, keys=rig.store.keys).erase(Whose(KEY, person_id="p-1"), holds=Holds())
    assert found.erased == 1
    assert await rig.redis.zrange(rig.store.keys.earlier(KEY, "c:p-1"), 0, -1) == [b"opted_out:"]
    later = await rig.begin_call(*PASSCODE, run_s=150)
    assert await is_held(rig, later)
    assert earlier_calls_of(await rig.record(later)) == {}


@pytest.mark.parametrize("said_s", [2.0, 60.0, 85.0])
async def test_opt_out_in_a_call_that_goes_on_counts_at_once(rig: Rig, said_s: float) -> None:
    """Also if it comes when the passcode of the other call was seen already, and its enroll is about to be sent."""
    first = await rig.begin_call(H(Kind.END, 400), run_s=5)
    second = await rig.begin_call(*PASSCODE, run_s=said_s)
    await rig.note(first, OptedOut(operator="ann", said_at=rig.clock.now, wish="o1"))
    await rig.run(160 - said_s)
    assert "enroll" not in rig.ledger(second)
    assert list((await rig.queries.attention()).values()) == [ASKED]


@pytest.mark.parametrize("where", ["the same call", "a call between", "the later call"])
async def test_opt_in_takes_earlier_opt_outs_of_the_member_back(rig: Rig, where: str) -> None:
    """Also in the call of the opt-out itself, if the caller is established as the member there."""
    opt_in = H(Kind.OPT_IN, 35)
    await opted_out(rig, *([H(Kind.MFA_VALIDATED, 10), opt_in] if where == "the same call" else []))
    if where == "a call between":
        await rig.begin_call(H(Kind.MFA_VALIDATED, 10), opt_in, H(Kind.END, 60), run_s=80)
    later = await rig.begin_call(*([H(Kind.OPT_IN, 8)] if where == "the later call" else []), *PASSCODE, run_s=150)
    assert not await is_held(rig, later)
    assert rig.ledger(later).get("enroll") == 1, await rig.queries.attention()


IMPOSTORS = {
    "whom nobody has verified": (),
    "whose voice is another": (H(Kind.MFA_VALIDATED, 10), H(Kind.MISMATCH, 20)),
    "whose voice turns out to be another": (H(Kind.MFA_VALIDATED, 10), H(Kind.MISMATCH, 45)),
    "whose call is a fraud": (H(Kind.MFA_VALIDATED, 10), H(Kind.CASE, 30, "DeterminedFraud")),
}


@pytest.mark.parametrize("script", IMPOSTORS.values(), ids=IMPOSTORS)
async def test_opt_in_of_a_caller_who_may_not_be_the_member_takes_no_opt_out_back(
    rig: Rig, script: tuple[Happening, ...]
) -> None:
    """He was taken for her. Whoever calls as her later is asked about, as if he had not called."""
    await opted_out(rig)
    his = await rig.begin_call(*script, H(Kind.OPT_IN, 35), H(Kind.END, 70), run_s=110)
    assert (await rig.record(his)).seen.opted_in
    assert "enroll" not in rig.ledger(his)
    hers = await rig.begin_call(*PASSCODE, run_s=150)
    assert await is_held(rig, hers)
    assert "enroll" not in rig.ledger(hers)


@pytest.mark.parametrize("by", ["desk", "voice"])
async def test_opt_in_counts_once_the_caller_turns_out_to_be_the_member(rig: Rig, by: str) -> None:
    """It came before a person verified her, or before the voice was recognised."""
    await opted_out(rig)
    shown = (H(Kind.GREEN, 40),) if by == "voice" else ()
    between = await rig.begin_call(H(Kind.OPT_IN, 8), *shown, H(Kind.END, 100), run_s=30)
    assert await is_held(rig, between)
    if by == "desk":
        await rig.note(between, verified(rig))
    await rig.run(120)
    later = await rig.begin_call(H(Kind.END, 60), run_s=20)
    assert not await is_held(rig, later)


async def test_opt_out_after_an_opt_in_counts(rig: Rig) -> None:
    """In the same call, at the desk, while the service's record still shows the opt-in."""
    first = await rig.begin_call(H(Kind.OPT_IN, 8), H(Kind.END, 60), run_s=30)
    await rig.note(first, OptedOut(operator="ann", said_at=rig.clock.now, wish="o1"))
    await rig.run(50)
    later = await rig.begin_call(*PASSCODE, run_s=150)
    assert await is_held(rig, later)
    assert "enroll" not in rig.ledger(later)


async def test_opt_in_of_another_caller_takes_no_opt_out_back(rig: Rig) -> None:
    """He was taken for p-1, opted in, and turned out to be p-2."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    await opted_out(rig)
    other = await rig.begin_call(H(Kind.OPT_IN, 10), H(Kind.END, 80), run_s=30)
    assert (await rig.record(other)).seen.opted_in
    rig.stage.happen(other, Kind.CLAIMED, "zed", "p-2")
    await rig.run(80)
    assert await is_held(rig, await rig.begin_call(H(Kind.END, 60), run_s=20))


async def test_opt_out_is_the_members_and_not_the_numbers(rig: Rig) -> None:
    """Another member calls from the same number; the first one calls from another."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    await opted_out(rig)
    other = rig.stage.call(H(Kind.CLAIMED, 2, "zed", "p-2"), *PASSCODE, persons=[])
    await rig.push(other)
    await rig.run(150)
    assert rig.ledger(other).get("enroll") == 1, await rig.queries.attention()
    hers = rig.stage.call(H(Kind.CLAIMED, 2, "zed", "p-1"), *PASSCODE, phone_number="5550100333", persons=[])
    await rig.push(hers)
    await rig.run(150)
    assert "enroll" not in rig.ledger(hers)


async def test_record_of_release_0_4_0_leaves_its_mark_with_the_next_write(rig: Rig) -> None:
    """That release stored none."""
    first = await rig.begin_call(H(Kind.OPT_OUT, 8), H(Kind.END, 300), run_s=30)
    place, mark = rig.store.keys.earlier(KEY, "c:p-1"), f"opted_out:{first.voice_id}".encode()
    assert await rig.redis.zrange(place, 0, -1) == [mark]
    await rig.redis.delete(place)
    record = await rig.record(first)
    earlier = replace(record, ledger=replace(record.ledger, kept_marks=None))
    await rig.redis.hset(rig.store.keys.item(rig.call_id(first).member), "rec", encode_call(earlier))
    await rig.run(60)
    assert await rig.redis.zrange(place, 0, -1) == [mark]

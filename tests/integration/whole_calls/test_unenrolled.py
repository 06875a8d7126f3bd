"""A reject undoes all earlier enrolls of the member (Spec: States), and our other calls show it, also settled ones."""

from dataclasses import replace as but
from typing import Any

import pytest

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.effect_resolution import OPTED_OUT
from callkeeper.calls.member_evidence import enrolled_member
from callkeeper.calls.notes import Distrusted, OptedOut, Resolved, Verified
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.record import Reason
from callkeeper.desk.board.states import StateName, state_of
from callkeeper.desk.views import call_view
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.records import facts_of_record

END, SOON = Happening(Kind.END, 900), Happening(Kind.END, 30)
TAKEN_BACK = "enroll taken back"


async def enrolled(
    rig: Rig, *script: Happening, person_id: str = "p-1", despite: tuple[str, ...] = (), **more: Any
) -> Call:
    """Return a call whose caller an agent verified, and whose voice was therefore enrolled."""
    call = await rig.begin_call(*script, **more, run_s=8, is_pushed=False)
    said: dict[str, Any] = {
        "operator": "ann",
        "said_at": rig.clock.now,
        "wish": f"e{call.voice_id}",
        "despite": despite,
    }
    await rig.note(call, Verified(person_id=person_id, validation_type="OneTimePasswordAuth", **said))
    await rig.run(6)
    assert (await rig.record(call)).ledger.enroll.state is EffectState.APPLIED
    return call


async def reject(rig: Rig, end: Happening = END) -> Call:
    """Have the voice of a new call of the same member rejected."""
    call = await rig.begin_call(end, run_s=8, is_pushed=False)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish=f"r{call.voice_id}"))
    await rig.run(6)
    assert call.rejected
    return call


def types(trail: Any) -> list[str]:
    """Return the types of a trail's outcomes."""
    return [outcome.type for outcome in outcomes(trail)]


async def says_taken_back(rig: Rig, call: Call) -> None:
    """Hold record, facts, desk, board, outcomes and attention to it; nothing is enrolled again."""
    record = await rig.record(call)
    facts, view = facts_of_record(record, rig.book.policies), call_view(record, rig.book.policies)
    assert (facts.unenrolled, facts.enrolled, facts.manual, facts.green) == (True, False, False, False)
    assert (view.unenrolled, view.manual) == (True, False)
    assert state_of(record, rig.book).name is StateName.UNENROLLED
    assert types(await rig.trail(call)).count("unenrolled") == 1
    assert TAKEN_BACK in (await rig.queries.attention()).values()
    assert rig.ledger(call)["enroll"] == 1


async def test_reject_takes_back_the_enroll_of_another_live_call(rig: Rig) -> None:
    """Both calls are ours: the enrolled one says within seconds that it was taken back, and is not enrolled again."""
    call = await enrolled(rig, END)
    await reject(rig)
    await says_taken_back(rig, call)
    rig.stage.happen(call, Kind.VIEWED)
    await rig.run(40)
    await says_taken_back(rig, call)
    rig.stage.happen(call, Kind.END)
    await rig.run(30)
    assert (await rig.record(call)).life.reason is Reason.UNENROLLED


async def test_reject_takes_back_the_enroll_of_a_settled_call(rig: Rig) -> None:
    """A call that is long over is read once: its record says what the service says. It stays settled."""
    call = await enrolled(rig, SOON)
    await rig.run(60)
    assert (await rig.record(call)).life.reason is Reason.ENROLLED
    reads = rig.ledger(call)["read"]
    await reject(rig, SOON)
    await rig.run(60)
    await says_taken_back(rig, call)
    record = await rig.record(call)
    assert (record.is_settled, record.life.reason) == (True, Reason.UNENROLLED)
    await rig.run(1200)
    assert rig.ledger(call)["read"] == reads + 1
    assert types(await rig.trail(call)) == ["enrolled", "settled", "unenrolled"]


async def test_enroll_that_the_service_takes_back_later_is_found(rig: Rig) -> None:
    """The service may need a while: a settled call is read at most three times in ten minutes, then left alone."""
    call = await enrolled(rig, SOON)
    await rig.run(60)
    other = await enrolled(rig, SOON)
    await rig.run(60)
    reads = rig.ledger(other)["read"]
    rig.stage.world.manual.clear()
    await reject(rig, SOON)
    await rig.run(10)
    call.manual_person_id = None
    rig.stage.happen(call, Kind.STATUS, "FullAuthenticationUnenrolled")
    await rig.run(1500)
    assert (await rig.record(call)).life.reason is Reason.UNENROLLED
    assert (await rig.record(other)).life.reason is Reason.ENROLLED
    assert rig.ledger(other)["read"] == reads + 3


async def test_reject_leaves_the_calls_of_others_alone(rig: Rig) -> None:
    """A reject causes no reads of other members' calls, nor of calls that were not enrolled."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100002"])
    call = await enrolled(rig, SOON, person_id="p-2", phone_number="5550100002")
    plain = await rig.begin_call(Happening(Kind.END, 10), run_s=60, is_pushed=False)
    before = rig.ledger(call)["read"], rig.ledger(plain)["read"]
    await reject(rig)
    await rig.run(120)
    assert (rig.ledger(call)["read"], rig.ledger(plain)["read"]) == before
    assert (await rig.record(call)).life.reason is Reason.ENROLLED


@pytest.mark.parametrize("status", ["FullAuthenticationUnenrolled"])
async def test_status_alone_says_that_an_enroll_was_taken_back(rig: Rig, status: str) -> None:
    """A reject by somebody else, of a call that we do not know: the status in any read is enough."""
    call = await enrolled(rig, END)
    call.manual_person_id = None
    rig.stage.happen(call, Kind.STATUS, status)
    await rig.run(20)
    await says_taken_back(rig, call)


@pytest.mark.parametrize("hides", [Kind.VIEWED, Kind.END])
async def test_new_enroll_is_seen_by_its_policy_alone(rig: Rig, hides: Kind) -> None:
    """Another tool enrolls the voice once more, and a later activity hides that status before details are read."""
    call = await enrolled(rig, END)
    await reject(rig)
    await rig.run(60)
    await says_taken_back(rig, call)
    rig.stage.happen(call, Kind.ENROLLED, "zed", "p-1")
    rig.stage.happen(call, hides)
    await rig.run(120)
    assert call.manual_person_id == "p-1"
    assert types(await rig.trail(call))[:3] == ["enrolled", "unenrolled", "enrolled"]
    assert facts_of_record(await rig.record(call), rig.book.policies).enrolled
    assert TAKEN_BACK not in (await rig.queries.attention()).values()


async def test_person_closes_what_was_taken_back(rig: Rig) -> None:
    """It needs a person until one says that she has seen it."""
    call = await enrolled(rig, SOON)
    await rig.run(60)
    await reject(rig)
    await rig.run(60)
    seen = Resolved(applied=False, operator="eve", said_at=rig.clock.now, wish="s1")
    await rig.store.note(rig.call_id(call), seen, even_settled=True)
    await rig.run(5)
    assert TAKEN_BACK not in (await rig.queries.attention()).values()
    assert (await rig.record(call)).life.reason is Reason.UNENROLLED


async def test_second_reject_that_a_person_has_confirmed_is_told_to_the_other_calls(rig: Rig) -> None:
    """It came after their enroll, and nobody knew whether it was applied. They have heard of the first one only."""
    impostor = await reject(rig)
    call = await enrolled(rig, SOON, despite=("rejected_before",))
    await rig.run(60)
    rig.stage.happen(impostor, Kind.ENROLLED, "zed", "p-1")
    await rig.run(70)
    rig.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.CUT))
    await rig.note(impostor, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r2"))
    await rig.run(0.5)
    rig.stage.happen(impostor, Kind.VIEWED)
    await rig.run(60)
    assert list((await rig.queries.attention()).values()) == ["reject unresolved"]
    await rig.note(impostor, Resolved(applied=True, operator="eve", said_at=rig.clock.now, wish="s1"))
    await rig.run(60)
    await says_taken_back(rig, call)


async def test_enroll_whose_policy_was_never_read_is_taken_back_too(rig: Rig) -> None:
    """The policy may show later than the status, and an activity hide the status: the reject of the member is known."""
    rig.stage.world.options = but(rig.stage.world.options, policy_lag_s=3.0)
    other, call = rig.stage.call(END), await enrolled(rig, Happening(Kind.END, 17))
    await rig.note(other, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1"))
    while not other.rejected:
        await rig.run(0.25)
    rig.stage.happen(call, Kind.VIEWED)
    await rig.run(30)
    assert (await rig.record(call)).life.reason is Reason.UNENROLLED


async def test_enroll_is_taken_back_after_its_call_settled(rig: Rig) -> None:
    """The member is rejected while the enrolled call is still live, but the service takes a while to un-enroll."""
    rig.stage.world.options = but(rig.stage.world.options, unenroll_after_s=25.0)
    call = await enrolled(rig, END)
    await reject(rig)
    rig.stage.happen(call, Kind.END)
    await rig.run(18)
    assert (await rig.record(call)).is_settled
    await rig.run(200)
    assert (await rig.record(call)).life.reason is Reason.UNENROLLED
    assert types(await rig.trail(call)) == ["enrolled", "settled", "unenrolled"]


async def test_reject_between_an_enroll_and_its_record_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker rejects the member after the service enrolled, and before the enroll is recorded."""
    rig.stage.world.options = but(rig.stage.world.options, unenroll_after_s=60.0)
    call = await rig.begin_call(SOON, run_s=8, is_pushed=False)
    follow = rig.store.members.follow
    told: list[Any] = []

    async def late(call_id: Any, record: Any, now: Any) -> Any:
        if enrolled_member(record) and not told:
            told.append(call_id)
            await reject(rig)
        return await follow(call_id, record, now)

    monkeypatch.setattr(rig.store.members, "follow", late)
    said: dict[str, Any] = {"operator": "ann", "said_at": rig.clock.now, "wish": "e"}
    await rig.note(call, Verified(person_id="p-1", validation_type="OneTimePasswordAuth", **said))
    await rig.run(200)
    assert told
    assert (await rig.record(call)).life.reason is Reason.UNENROLLED


async def test_reject_elsewhere_before_the_enroll_was_ever_shown_takes_it_back(rig: Rig) -> None:
    """The status after an enroll is the enroll's, so a reject that is shown came later: there is nothing left to reject."""
    call = await rig.begin_call(END, run_s=8, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="read", action=Action.RESET, skip=1, times=1))
    await rig.note(call, Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now))
    await rig.run(0.1)
    assert rig.ledger(call)["enroll"] == 1
    rig.stage.happen(call, Kind.REJECTED)
    await rig.run(10)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor"))
    await rig.run(30)
    assert (await rig.record(call)).ledger.enroll.state is EffectState.TAKEN_BACK
    assert "reject_voice" not in rig.ledger(call)


@pytest.mark.parametrize("is_own_rules", [False, True], ids=["shipped", "own"])
@pytest.mark.parametrize("by", ["desk", "status", "desk, settled"])
async def test_opt_out_after_an_enroll_needs_a_person(rig: Rig, by: str, is_own_rules: bool) -> None:
    """Nothing takes the enroll back by itself. It is shown whatever the rules, until somebody has seen to it."""
    if is_own_rules:
        rig = Rig(rig.stage, rig.redis, but(rig.book, rules=tuple(r for r in rig.book.rules if r.outcome != "ask")))
    call = await enrolled(rig, Happening(Kind.END, 60))
    assert not await rig.queries.attention()
    if by == "status":
        rig.stage.happen(call, Kind.OPT_OUT)
    elif by == "desk":
        await rig.note(call, OptedOut(operator="ann", said_at=rig.clock.now))
    await rig.run(120)
    assert (await rig.record(call)).is_settled
    if by == "desk, settled":
        await rig.note(call, OptedOut(operator="ann", said_at=rig.clock.now), even_settled=True)
        await rig.run(5)
    assert list((await rig.queries.attention()).values()) == [OPTED_OUT]
    await rig.note(call, Resolved(applied=False, operator="sue", said_at=rig.clock.now), even_settled=True)
    await rig.run(5)
    assert not await rig.queries.attention()


async def test_opt_out_needs_nobody_once_the_enroll_is_taken_back(rig: Rig) -> None:
    """A reject in another call has done it, as the service's operator would."""
    call = await enrolled(rig)
    rig.stage.happen(call, Kind.OPT_OUT)
    await rig.run(60)
    assert list((await rig.queries.attention()).values()) == [OPTED_OUT]
    await reject(rig)
    await rig.run(60)
    assert list((await rig.queries.attention()).values()) == [TAKEN_BACK]


async def test_opt_out_that_an_opt_in_followed_needs_nobody(rig: Rig) -> None:
    """The caller has changed their mind twice: the voiceprint is what they want."""
    call = await enrolled(rig)
    rig.stage.happen(call, Kind.OPT_OUT)
    await rig.run(60)
    assert list((await rig.queries.attention()).values()) == [OPTED_OUT]
    rig.stage.happen(call, Kind.OPT_IN)
    await rig.run(60)
    assert not await rig.queries.attention()
    await rig.note(call, OptedOut(operator="ann", said_at=rig.clock.now))
    await rig.run(5)
    assert list((await rig.queries.attention()).values()) == [OPTED_OUT]


async def test_opt_out_that_comes_again_after_somebody_closed_the_first_needs_a_person(rig: Rig) -> None:
    """The caller opted in between the two."""
    call = await enrolled(rig)
    rig.stage.happen(call, Kind.OPT_OUT)
    await rig.run(60)
    await rig.note(call, Resolved(applied=False, operator="sue", said_at=rig.clock.now))
    await rig.run(5)
    assert not await rig.queries.attention()
    rig.stage.happen(call, Kind.OPT_IN)
    await rig.run(60)
    assert not await rig.queries.attention()
    rig.stage.happen(call, Kind.OPT_OUT)
    await rig.run(60)
    assert list((await rig.queries.attention()).values()) == [OPTED_OUT]


async def test_opt_out_of_a_caller_who_is_not_enrolled_needs_nobody(rig: Rig) -> None:
    """Nor is anybody enrolled after it."""
    call = await rig.begin_call(Happening(Kind.OPT_OUT, 5), Happening(Kind.END, 60), run_s=20)
    await rig.note(call, Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now))
    await rig.run(100)
    assert ((await rig.record(call)).is_settled, call.manual_person_id) == (True, None)
    assert not await rig.queries.attention()

"""A call whose member was changed after its first check: no rule enrolls or rejects in it, and a person is asked."""

from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.notes import Distrusted, Resolved
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import DEMO, EAGER, KEY, Rig
from tests.integration.whole_calls.test_another_person import put
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.integration.whole_calls.test_pause import pause, resume
from tests.sandbox_fixtures import Asgi

ASKED = "asked by rule 'member_changed'"
MEMBERS = pytest.mark.parametrize("members", [("p-2",), ("p-2", "p-1")], ids=" then ".join)
"""The member who comes, and one who comes back."""


async def changed(rig: Rig, call: Call, *members: str, run_s: float = 15) -> None:
    """Let an operator elsewhere put members on the call, one after the other."""
    for member in members:
        rig.stage.world.add_member(KEY, member, [f"555010077{member[-1]}"])
        await put(rig, call, member, run_s=run_s)


async def reasons(rig: Rig) -> list[str]:
    """Return why calls need a person."""
    return list((await rig.queries.attention()).values())


@MEMBERS
async def test_no_rule_enrolls_once_the_member_was_changed(
    sandbox_asgi: Asgi, redis: Redis, members: tuple[str, ...]
) -> None:
    """The passcode, all checks and the final analysis do not tell who of the two the caller is."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(Happening(Kind.END, 500), run_s=20)
    await changed(rig, call, *members)
    assert await reasons(rig) == [ASKED]
    rig.stage.happen(call, Kind.MFA_VALIDATED)
    await rig.run(560)
    record = await rig.record(call)
    assert (record.is_settled, record.seen.person_id, rig.ledger(call).get("enroll")) == (True, members[-1], None)
    assert await reasons(rig) == [ASKED]
    [why] = [entry.because for entry in await rig.trail(call) if entry.rule == "member_changed"][:1]
    assert "Find out who the caller is" in (why or "")


@MEMBERS
@pytest.mark.parametrize("is_held", [False, True])
async def test_no_rule_rejects_once_the_member_was_changed(
    sandbox_asgi: Asgi, redis: Redis, members: tuple[str, ...], is_held: bool
) -> None:
    """Neither for what is shown anew of the present member, nor a reject that a pause has held when the change came."""
    rig = Rig(sandbox_asgi, redis, DEMO)
    call = await rig.begin_call(Happening(Kind.END, 300), run_s=20)
    if is_held:
        await pause(rig)
        rig.stage.happen(call, Kind.MISMATCH)
        rig.stage.happen(call, Kind.HIGH_RISK)
        await rig.run(20)
    await changed(rig, call, *members)
    if is_held:
        await resume(rig)
    else:
        rig.stage.happen(call, Kind.MISMATCH)
        rig.stage.happen(call, Kind.HIGH_RISK)
    await rig.run(400)
    assert "reject_voice" not in rig.ledger(call)
    assert await reasons(rig) == [ASKED]


@MEMBERS
@pytest.mark.parametrize("shown", [None, Kind.GREEN, Kind.MISMATCH])
@pytest.mark.parametrize("said", ["verified", "distrusted"])
async def test_word_of_a_person_acts_after_the_change(
    rig: Rig, members: tuple[str, ...], shown: Kind | None, said: str
) -> None:
    """It answers the question. What the record still shows of the voice, from before, stands against nobody."""
    happens = [] if shown is None else [Happening(shown, 5)]
    call = await rig.begin_call(*happens, Happening(Kind.END, 900), run_s=20)
    call.provider.is_mismatch = False  # of the next member the provider has nothing to say
    await changed(rig, call, *members)
    assert await reasons(rig) == [ASKED]
    if said == "verified":
        await rig.note(call, replace(verified(rig), person_id=members[-1], despite=("voice_mismatch",)))
    else:
        await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="an impostor"))
    await rig.run(20)
    assert (call.manual_person_id, call.rejected) == ((members[-1], False) if said == "verified" else (None, True))
    assert await reasons(rig) == []


async def test_member_who_is_changed_before_the_first_check_is_enrolled_by_the_rules(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """Nothing was heard of the voice yet, so nothing is in doubt."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(Happening(Kind.END, 600), run_s=3)
    await changed(rig, call, "p-2")
    rig.stage.happen(call, Kind.MFA_VALIDATED)
    await rig.run(500)
    assert (call.person_id, call.manual_person_id, await reasons(rig)) == ("p-2", "p-2", [])


@MEMBERS
@pytest.mark.parametrize("more", [(), (Kind.HIGH_RISK,)], ids=["the voice", "the device"])
async def test_changed_call_leaves_marks_of_the_device_and_none_of_the_voice(
    rig: Rig, members: tuple[str, ...], more: tuple[Kind, ...]
) -> None:
    """Neither for the member before, nor for the next one, nor for the number; also if the mismatch shows again."""
    call = await rig.begin_call(Happening(Kind.MISMATCH, 5), Happening(Kind.END, 400), run_s=40)
    for kind in more:
        rig.stage.happen(call, kind)
    await rig.run(20)
    left = {member: rig.store.keys.earlier(KEY, f"p:{member}") for member in ("p-1", "p-2")}
    assert await rig.redis.exists(left["p-1"])
    await changed(rig, call, *members, run_s=30)
    rig.stage.happen(call, Kind.MISMATCH)
    await rig.run(500)
    record = await rig.record(call)
    assert (record.is_settled, record.seen.mismatch) == (True, True)
    found = {member for member, place in left.items() if await rig.redis.exists(place)}
    assert found == ({"p-1", "p-2"} if more else set())
    numbers = [key async for key in rig.redis.scan_iter(match=rig.store.keys.earlier(KEY, "n:*"))]
    assert bool(numbers) is bool(more)


async def test_word_about_the_member_before_is_none_about_another(rig: Rig) -> None:
    """Ann verified p-1 during a pause. Another member came and went: who the caller is, she has to say again."""
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=20)
    await pause(rig)
    await rig.note(call, verified(rig))
    await rig.run(5)
    await changed(rig, call, "p-2")
    await resume(rig)
    await rig.run(20)
    assert (call.manual_person_id, await reasons(rig)) == (None, [ASKED])
    await changed(rig, call, "p-1")
    assert (call.manual_person_id, await reasons(rig)) == (None, [ASKED])
    await rig.note(call, verified(rig, "e2"))
    await rig.run(10)
    assert (call.manual_person_id, await reasons(rig)) == ("p-1", [])


async def test_word_about_the_member_who_comes_acts_once_they_are_there(rig: Rig) -> None:
    """Ann verifies p-2 and has them assigned. Which of the two is carried out first does not matter."""
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=20)
    await rig.note(call, replace(verified(rig), person_id="p-2"))
    await rig.run(3)
    await changed(rig, call, "p-2")
    assert (call.manual_person_id, await reasons(rig)) == ("p-2", [])


async def test_distrust_of_the_member_before_does_not_answer_for_the_next(rig: Rig) -> None:
    """A pause held it. A reject would take back what p-2 has, whom nobody distrusted."""
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=20)
    await pause(rig)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="an impostor"))
    await rig.run(5)
    await changed(rig, call, "p-2")
    await resume(rig)
    await rig.run(20)
    assert (call.rejected, await reasons(rig)) == (False, [ASKED])


async def test_next_change_asks_again(rig: Rig) -> None:
    """Bob has seen that p-2 came. That p-3 came later, he has not."""
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=20)
    await changed(rig, call, "p-2")
    await rig.note(call, Resolved(operator="bob", said_at=rig.clock.now, wish="seen", applied=False))
    await rig.run(40)
    assert await reasons(rig) == []
    await changed(rig, call, "p-3", run_s=70)
    assert await reasons(rig) == [ASKED]


@pytest.mark.parametrize("action", [Action.CUT, Action.REFUSED], ids=["no answer", "refused"])
async def test_enroll_of_the_member_before_is_not_sent_again(sandbox_asgi: Asgi, redis: Redis, action: Any) -> None:
    """It was sent when the change came. Of a refusal a second request would follow; nothing is sent for the next one."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 5), Happening(Kind.END, 900), run_s=20)
    rig.stage.sandbox.faults.add(Fault(target="enroll", action=action, times=1, applied=False))
    while not (await rig.record(call)).ledger.enroll.arrived:
        await rig.run(1)
    await changed(rig, call, "p-2", run_s=200)
    record = await rig.record(call)
    assert (record.ledger.enroll.attempts, call.manual_person_id) == (1, None)
    first = "enroll unresolved" if action is Action.CUT else ASKED
    assert await reasons(rig) == [first]
    if action is Action.CUT:
        assert record.ledger.enroll.state is EffectState.UNRESOLVED
    assert record.statements.open_question is not None

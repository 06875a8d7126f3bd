"""A call that the service forgets is settled as lost. When it is shown again it is handled again."""

from dataclasses import replace as but

import pytest
from msgspec.structs import replace

from callkeeper.calls.action_status import line_of, status_of
from callkeeper.calls.effect_resolution import RECORD_LOST
from callkeeper.calls.notes import AssignWish, CheckWish, Distrusted, Statement, Verified
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.record import Phase, Reason
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import START

NO_CALLS = '{"success": true, "phoneCalls": []}'
NOT_FOUND = '{"success": false, "error": "Phone call not found."}'


def forgets(rig: Rig) -> None:
    """Let the service show none of its calls: its queue is empty, and details are "not found"."""
    rig.stage.sandbox.faults.add(Fault(target="details", action=Action.REFUSED, body=NOT_FOUND))
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body=NO_CALLS))


async def lose(rig: Rig, *script: Happening) -> Call:
    """Return a call that was settled as lost."""
    call = await rig.begin_call(*script, Happening(Kind.END, 400), run_s=5, is_pushed=False)
    forgets(rig)
    await rig.run(100)
    assert (await rig.record(call)).life.reason is Reason.LOST
    return call


async def place(rig: Rig, call: Call) -> tuple[bool, bool, bool]:
    """Return whether a call is in the list of live calls, in that of settled ones, and whether it expires."""
    keys, member = rig.store.keys, rig.call_id(call).member
    live, settled = await rig.redis.zscore(keys.live, member), await rig.redis.zscore(keys.settled, member)
    return live is not None, settled is not None, await rig.redis.ttl(keys.item(member)) > 0


async def test_lost_call_that_is_listed_again_is_handled_to_its_end(rig: Rig) -> None:
    """The service forgets its calls for minutes, then lists them again: the verified caller is enrolled after all."""
    call = await lose(rig, Happening(Kind.MFA_VALIDATED, 200))
    assert await place(rig, call) == (False, True, True)
    rig.stage.sandbox.faults.clear()
    await rig.run(15)
    record = await rig.record(call)
    assert (record.life.phase, record.life.reason, record.plan.needs_verifying) == (Phase.LIVE, None, False)
    assert await place(rig, call) == (True, False, False)
    await rig.run(700)
    assert (await rig.record(call)).life.reason is Reason.ENROLLED
    assert rig.ledger(call)["enroll"] == 1
    assert rig.ledger(call)["assign"] == 1, "it was assigned before it was lost"


@pytest.mark.parametrize("kind", ["CallStart", "CallEnd"])
async def test_lost_call_that_is_pushed_again_is_handled_again(rig: Rig, kind: str) -> None:
    """The queue leaves the call out (its number is ignored), but a push names it, and its details are there again."""
    call = await lose(rig)
    rig.stage.sandbox.faults.clear()
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body=NO_CALLS))
    if kind == "CallEnd":
        rig.stage.happen(call, Kind.END)
    await rig.push(call, kind)
    await rig.run(20)
    record = await rig.record(call)
    assert (record.life.phase, record.life.reason) == (
        (Phase.LIVE, None) if kind == "CallStart" else (Phase.SETTLED, Reason.UNDECIDED)
    )


async def test_lost_call_that_is_only_pushed_is_lost_again(rig: Rig) -> None:
    """A push is a hint: a call that the service still does not know is read for a minute, and settled as lost again."""
    call = await lose(rig)
    await rig.push(call)
    await rig.run(30)
    assert (await rig.record(call)).life.phase is Phase.LIVE
    await rig.run(90)
    assert (await rig.record(call)).life.reason is Reason.LOST
    assert await place(rig, call) == (False, True, True)


WISH = "a" * 32
SAID: dict[str, Statement] = {
    "verified": Verified(
        operator="ann", said_at=START, wish=WISH, person_id="p-1", validation_type="KnowledgeBasedAuth"
    ),
    "distrusted": Distrusted(operator="ann", said_at=START, wish=WISH),
    "assign": AssignWish(operator="ann", said_at=START, wish=WISH, person_id="p-1"),
    "check": CheckWish(operator="ann", said_at=START, wish=WISH),
}


@pytest.mark.parametrize("kind", SAID)
async def test_lost_call_is_reopened_by_a_persons_word(rig: Rig, kind: str) -> None:
    """The agent hears the caller, so the call exists: the word is accepted, and carried out once details are there."""
    call = await lose(rig)
    word = replace(SAID[kind], said_at=rig.clock.now)
    assert await rig.note(call, word)
    rig.stage.sandbox.faults.clear()
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body=NO_CALLS))
    before = rig.ledger(call)
    await rig.run(30)
    assert (await rig.record(call)).life.phase is Phase.LIVE
    sent = {"verified": "enroll", "distrusted": "reject_voice", "check": "check"}.get(kind)
    assert sent is None or rig.ledger(call).get(sent, 0) > before.get(sent, 0)


async def test_word_about_a_call_that_stays_lost_is_told_as_held(rig: Rig) -> None:
    """The service does not know the call for another minute: the action's state says so, not that the call has ended."""
    call = await lose(rig)
    await rig.note(call, replace(SAID["distrusted"], said_at=rig.clock.now))
    await rig.run(120)
    trail = await rig.trail(call)
    line = line_of(trail, WISH)
    assert line is not None
    assert status_of(await rig.record(call), trail, line).reasons == ("call_lost",)


@pytest.mark.parametrize("kind", ["verified", "distrusted", "check"])
async def test_word_just_before_a_call_is_given_up_as_lost_is_acted_on(rig: Rig, kind: str) -> None:
    """The last seconds of the minute are over, but a person has just spoken: the call is read before it is given up."""
    call = await rig.begin_call(Happening(Kind.END, 3000), run_s=5, is_pushed=False)
    forgets(rig)
    while (missing := (await rig.record(call)).life.not_found_since) is None or (rig.clock.now - missing).seconds < 57:
        await rig.run(1)
    assert (await rig.record(call)).life.phase is Phase.LIVE
    before = rig.ledger(call)
    assert await rig.note(call, replace(SAID[kind], said_at=rig.clock.now))
    await rig.run(5)
    assert (await rig.record(call)).life.phase is Phase.LIVE
    rig.stage.sandbox.faults.clear()
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body=NO_CALLS))
    await rig.run(40)
    assert (await rig.record(call)).life.phase is Phase.LIVE
    sent = {"distrusted": "reject_voice", "check": "check"}.get(kind)
    assert sent is None or rig.ledger(call).get(sent, 0) > before.get(sent, 0)


def lives_for(rig: Rig, seconds: int) -> None:
    """Let calls be given up at this age."""
    rig.tools = but(rig.tools, book=but(rig.book, maximum_age_s=seconds))
    rig.shift.tools = rig.tools


@pytest.mark.parametrize("said_after_s", [38, 80], ids=["just before", "afterwards"])
async def test_word_about_a_call_that_is_too_old_is_acted_on_if_it_can_be_read(rig: Rig, said_after_s: int) -> None:
    """A distrusted caller is rejected although the call is given up for its age a moment later, or was before.

    The queue lists it no more.
    """
    lives_for(rig, 40)
    call = await rig.begin_call(Happening(Kind.END, 3000), run_s=10, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body=NO_CALLS))
    await rig.run(said_after_s - 10)
    assert await rig.note(call, replace(SAID["distrusted"], said_at=rig.clock.now), even_settled=True)
    await rig.run(20)
    assert rig.ledger(call)["reject_voice"] == 1
    await rig.run(120)
    record = await rig.record(call)
    assert record.life.phase is Phase.SETTLED
    await rig.run(120)
    assert await rig.record(call) == record


async def test_checks_wait_while_details_are_not_found(rig: Rig) -> None:
    """The queue lists the call for minutes before its record is found: its checks are not spent on "not found"."""
    call = await rig.begin_call(Happening(Kind.GREEN, 200), Happening(Kind.END, 600), run_s=5)
    rig.stage.sandbox.faults.add(Fault(target="details", action=Action.REFUSED, body=NOT_FOUND))
    await rig.run(160)
    record = await rig.record(call)
    assert (record.life.phase, record.plan.checks_used) == (Phase.LIVE, 1)
    rig.stage.sandbox.faults.clear()
    await rig.run(450)
    assert (await rig.record(call)).life.reason is Reason.AUTHENTICATED


async def replaced(rig: Rig) -> None:
    """Let Redis lose everything. The worker knows the service's clock by then."""
    await rig.run(130)
    await rig.begin_call(Happening(Kind.END, 20), run_s=40, is_pushed=False)
    await rig.redis.flushall()


@pytest.mark.parametrize(
    ("variants", "later_s"),
    [([], 20), (["ended-listed"], 20), ([], 5 * 3600)],
    ids=["", "still listed", "hours later"],
)
async def test_late_word_about_an_ended_call_whose_record_is_lost_must_be_said_again(
    rig: Rig, variants: list[str], later_s: float
) -> None:
    """Bob's reject is in no record any more, and the end hides it at the service. Ann is told before she enrolls the voice.

    The feedback that speaks of a reject has to be named. Whoever says it once more after that has looked.
    """
    rig.stage.sandbox.choose(variants)
    await rig.run(100)
    call = await rig.begin_call(Happening(Kind.END, 220), run_s=20)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor"))
    await rig.run(30)
    assert call.feedback == ["FAILED"]
    await replaced(rig)
    await rig.run(later_s)
    await rig.push(call, "CallEnd")
    await rig.run(2)
    named = ("failed_feedback",)
    for wish, despite, reason in (("w1", (), "evidence_against"), ("w2", named, "record_lost"), ("w3", named, None)):
        word = Verified(
            person_id="p-1",
            validation_type="Other",
            operator="ann",
            said_at=rig.clock.now,
            wish=wish,
            despite=despite,
        )
        await rig.note(call, word, even_settled=True)
        await rig.run(60)
        assert rig.ledger(call).get("enroll", 0) == (reason is None)
        if reason is not None:
            trail = await rig.trail(call)
            line = line_of(trail, wish)
            assert line is not None
            assert status_of(await rig.record(call), trail, line).reasons == (reason,)
        if reason == "record_lost":
            assert [one.type for one in outcomes(trail) if one.type == "not_carried_out"]
            assert list((await rig.queries.attention()).values()) == [f"enroll not carried out: {RECORD_LOST}"]
    assert await rig.queries.attention() == {}


async def test_late_word_about_a_call_that_began_after_the_loss_enrolls(rig: Rig) -> None:
    """It had no record before. Its queue could not be listed while it lived."""
    await replaced(rig)
    await rig.run(30)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=500))
    call = await rig.begin_call(Happening(Kind.CLAIMED, 5, "agent-9", "p-1"), Happening(Kind.END, 30), run_s=40)
    await rig.push(call, "CallEnd")
    await rig.run(10)
    word = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now)
    await rig.note(call, word, even_settled=True)
    await rig.run(60)
    assert rig.ledger(call)["enroll"] == 1

"""People's words about calls that are old, ended, merged or given up, or that meet a pause or a wrong clock."""

from dataclasses import replace
from datetime import timedelta

import pytest

from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.record import Reason
from callkeeper.calls.store.pausing import Pausing
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institutions import InstitutionStatus
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.desk import OPERATOR, DeskRig, desk
from tests.harness.virtual_time import KEY

__all__ = ["desk"]
HOUR = 3600.0
AGE_S = 900.0


async def pause(rig: DeskRig) -> None:
    """Let a person pause effects."""
    await Pausing(rig.redis).pause(
        None, Pause(scope=PauseScope.EFFECTS, operator="jane", because="drill", at=rig.clock.now)
    )


async def resume(rig: DeskRig) -> None:
    """Let a person resume them."""
    assert await Pausing(rig.redis).resume(None, operator="jane", because="done", at=rig.clock.now)


@pytest.fixture
def short(desk: DeskRig) -> DeskRig:
    """Return a desk whose calls are given up after a quarter of an hour instead of four hours."""
    desk.tools = replace(desk.tools, book=replace(desk.book, maximum_age_s=AGE_S))
    desk.shift.tools = desk.tools
    return desk


def rejects(rig: DeskRig, call: Call) -> int:
    """Return how many rejects the service saw for a call."""
    return rig.ledger(call).get("reject_voice", 0)


async def test_distrust_outlasts_a_pause_that_is_longer_than_a_call(short: DeskRig) -> None:
    """Said before the end, held until the pause is over, then carried out; the call is not lost meanwhile."""
    call = await short.begin_call(Happening(Kind.END, 60), run_s=20)
    await pause(short)
    await short.say(call, "distrusted", reason="wrong voice")
    await short.run(AGE_S + 100)
    await resume(short)
    await short.run(120)
    assert rejects(short, call) == 1
    assert (await short.record(call)).life.reason is Reason.REJECTED


async def test_distrust_outlasts_a_review_of_the_institution(short: DeskRig) -> None:
    """Said while the service has the institution in Review, carried out once it is active, and not before."""
    short.stage.world.add_institution(KEY, status=InstitutionStatus.REVIEW)
    call = await short.begin_call(Happening(Kind.END, 60), run_s=20)
    await short.say(call, "distrusted", reason="wrong voice")
    await short.run(AGE_S + 100)
    assert rejects(short, call) == 0
    short.stage.world.add_institution(KEY)
    await short.run(240)
    assert rejects(short, call) == 1


async def test_distrust_of_a_call_that_is_almost_given_up_outlasts_a_pause(short: DeskRig) -> None:
    """The call is not given up while the word waits."""
    call = await short.begin_call(Happening(Kind.END, 2 * AGE_S), run_s=AGE_S - 100)
    await pause(short)
    await short.say(call, "distrusted", reason="wrong voice")
    await short.run(600)
    await resume(short)
    await short.run(120)
    assert rejects(short, call) == 1


@pytest.mark.parametrize("by_alternate", [False, True])
async def test_word_about_a_call_that_was_given_up_counts_under_either_id(short: DeskRig, by_alternate: bool) -> None:
    """The record under the alternate id is merged into the other one, which is then read and acted on."""
    call = await short.begin_call(Happening(Kind.END, 2 * AGE_S), run_s=20)
    faults = short.stage.sandbox.faults
    faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body='{"success": true, "phoneCalls": []}'))
    await short.run(AGE_S + 80)
    assert (await short.record(call)).life.reason is Reason.LOST
    voice_id = call.alternate_id if by_alternate else call.voice_id
    said = await short.http.post(
        f"/calls/{call.institution_key}/{voice_id}/distrusted", json={"operator": OPERATOR, "reason": "x"}
    )
    assert said.is_success
    await short.run(120)
    assert rejects(short, call) == 1


async def test_word_that_is_taken_back_enrolls_nobody_hours_later(desk: DeskRig) -> None:
    """A pause outlasted the ten minutes of the enroll. A distrust that is said by mistake must not bring it back."""
    call = await desk.begin_call(Happening(Kind.MFA_VALIDATED, 60), Happening(Kind.END, 120), run_s=100)
    await pause(desk)
    await desk.run(800)
    await resume(desk)
    await desk.run(HOUR)
    assert (await desk.record(call)).is_settled
    await desk.say(call, "distrusted", reason="wrong call")
    await desk.say(call, "withdraw", what="distrusted", reason="a mistake")
    await desk.run(60)
    assert (await desk.record(call)).is_settled
    assert "enroll" not in desk.ledger(call)


@pytest.mark.parametrize(("web_ahead_h", "after_s", "enrolls"), [(1, 60, 1), (-1, 2400, 0)])
async def test_clock_of_the_web_process_does_not_decide_whether_a_word_is_in_time(
    desk: DeskRig, web_ahead_h: int, after_s: float, enrolls: int
) -> None:
    """Redis's clock does, by which the end was noticed too."""
    call = await desk.begin_call(Happening(Kind.END, 60), run_s=100 + after_s)
    desk.desk.actions._now = lambda: desk.clock.now + timedelta(hours=web_ahead_h)
    await desk.say(call, "verified", person_id="p-1", validation_type="OneTimePasswordAuth")
    await desk.run(40)
    assert desk.ledger(call).get("enroll", 0) == enrolls


@pytest.mark.parametrize(("after_s", "enrolls"), [(300, 1), (1800, 0)])
async def test_ten_minutes_of_a_word_begin_at_the_end_though_no_worker_ran(
    desk: DeskRig, after_s: float, enrolls: int
) -> None:
    """The end was pushed, a person verified the caller afterwards, and an hour later a worker noticed both."""
    call = await desk.begin_call(Happening(Kind.END, 60), run_s=50)
    desk.clock.advance(20)
    await desk.push(call, "CallEnd")
    desk.clock.advance(after_s)
    await desk.say(call, "verified", person_id="p-1", validation_type="OneTimePasswordAuth")
    desk.clock.advance(HOUR)
    await desk.run(120)
    assert (await desk.record(call)).is_settled
    assert desk.ledger(call).get("enroll", 0) == enrolls


async def test_unconfirmed_call_hears_a_second_word(desk: DeskRig) -> None:
    """The queue leaves the call out, and its details were not found for minutes. Now they are, and the word counts."""
    faults = desk.stage.sandbox.faults
    faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body='{"success": true, "phoneCalls": []}'))
    missing = faults.add(
        Fault(target="details", action=Action.REFUSED, body='{"success": false, "error": "Phone call not found."}')
    )
    call = await desk.begin_call(Happening(Kind.END, 600), run_s=2)
    await desk.say(call, "distrusted", reason="x")
    await desk.run(150)
    assert (await desk.record(call)).life.reason is Reason.UNCONFIRMED
    faults.clear(missing.id)
    await desk.say(call, "distrusted", reason="again")
    await desk.run(60)
    assert rejects(desk, call) == 1

"""People's words about calls that are old, ended, merged or given up, or that meet a pause or a wrong clock."""

from datetime import timedelta

import pytest

from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.record import Reason
from callkeeper.calls.store.pausing import Pausing
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.desk import OPERATOR, DeskRig, desk

__all__ = ["desk"]
HOUR = 3600.0


async def pause(rig: DeskRig) -> None:
    """Let a person pause effects."""
    await Pausing(rig.redis).pause(
        None, Pause(scope=PauseScope.EFFECTS, operator="jane", because="drill", at=rig.clock.now)
    )


async def resume(rig: DeskRig) -> None:
    """Let a person resume them."""
    assert await Pausing(rig.redis).resume(None, operator="jane", because="done", at=rig.clock.now)


def rejects(rig: DeskRig, call: Call) -> int:
    """Return how many rejects the service saw for a call."""
    return rig.ledger(call).get("reject_voice", 0)


async def test_distrust_outlasts_a_pause_that_is_longer_than_a_call(desk: DeskRig) -> None:
    """Said before the end, held until the pause is over, then carried out; the call is not lost meanwhile."""
    call = desk.stage.call(Happening(Kind.END, 60))
    await desk.push(call)
    await desk.run(20)
    await pause(desk)
    await desk.say(call, "distrusted", reason="wrong voice")
    await desk.run(4.2 * HOUR)
    await resume(desk)
    await desk.run(120)
    assert rejects(desk, call) == 1
    assert (await desk.record(call)).life.reason is Reason.REJECTED


async def test_distrust_of_a_call_of_four_hours_outlasts_a_pause(desk: DeskRig) -> None:
    """The call is not given up while the word waits."""
    call = desk.stage.call(Happening(Kind.END, 6 * HOUR))
    await desk.push(call)
    await desk.run(3.95 * HOUR)
    await pause(desk)
    await desk.say(call, "distrusted", reason="wrong voice")
    await desk.run(600)
    await resume(desk)
    await desk.run(120)
    assert rejects(desk, call) == 1


@pytest.mark.parametrize("by_alternate", [False, True])
async def test_word_about_a_call_that_was_given_up_counts_under_either_id(desk: DeskRig, by_alternate: bool) -> None:
    """The record under the alternate id is merged into the other one, which is then read and acted on."""
    call = desk.stage.call(Happening(Kind.END, 6 * HOUR))
    await desk.push(call)
    await desk.run(4.1 * HOUR)
    assert (await desk.record(call)).life.reason is Reason.LOST
    voice_id = call.alternate_id if by_alternate else call.voice_id
    said = await desk.http.post(
        f"/calls/{call.institution_key}/{voice_id}/distrusted", json={"operator": OPERATOR, "reason": "x"}
    )
    assert said.is_success
    await desk.run(120)
    assert rejects(desk, call) == 1


async def test_word_that_is_taken_back_enrolls_nobody_hours_later(desk: DeskRig) -> None:
    """A pause outlasted the ten minutes of the enroll. A distrust that is said by mistake must not bring it back."""
    call = desk.stage.call(Happening(Kind.MFA_VALIDATED, 60), Happening(Kind.END, 120))
    await desk.push(call)
    await desk.run(100)
    await pause(desk)
    await desk.run(800)
    await resume(desk)
    await desk.run(3 * HOUR)
    assert (await desk.record(call)).is_settled
    await desk.say(call, "distrusted", reason="wrong call")
    await desk.say(call, "withdraw", what="distrusted")
    await desk.run(60)
    assert (await desk.record(call)).is_settled
    assert "enroll" not in desk.ledger(call)


@pytest.mark.parametrize(("web_ahead_h", "after_s", "enrolls"), [(1, 60, 1), (-1, 2400, 0)])
async def test_clock_of_the_web_process_does_not_decide_whether_a_word_is_in_time(
    desk: DeskRig, web_ahead_h: int, after_s: float, enrolls: int
) -> None:
    """Redis's clock does, by which the end was noticed too."""
    call = desk.stage.call(Happening(Kind.END, 60))
    await desk.push(call)
    await desk.run(100 + after_s)
    desk.desk.actions._now = lambda: desk.clock.now + timedelta(hours=web_ahead_h)
    await desk.say(call, "verified", person_id="p-1", validation_type="OneTimePasswordAuth")
    await desk.run(40)
    assert desk.ledger(call).get("enroll", 0) == enrolls


async def test_unconfirmed_call_hears_a_second_word(desk: DeskRig) -> None:
    """The queue leaves the call out, and its details were not found for minutes. Now they are, and the word counts."""
    faults = desk.stage.sandbox.faults
    faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body='{"success": true, "phoneCalls": []}'))
    missing = faults.add(
        Fault(target="details", action=Action.REFUSED, body='{"success": false, "error": "Phone call not found."}')
    )
    call = desk.stage.call(Happening(Kind.END, 600))
    await desk.push(call)
    await desk.run(2)
    await desk.say(call, "distrusted", reason="x")
    await desk.run(150)
    assert (await desk.record(call)).life.reason is Reason.UNCONFIRMED
    faults.clear(missing.id)
    await desk.say(call, "distrusted", reason="again")
    await desk.run(60)
    assert rejects(desk, call) == 1

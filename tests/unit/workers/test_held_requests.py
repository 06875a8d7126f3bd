"""How many requests a step needs, and what a call does while one is held up."""

from typing import Any

import pytest

from callkeeper.calls.decide import WATCH
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.rules.assignment import Assignment
from callkeeper.calls.settlement import BY_PUSH
from callkeeper.calls.steps import Check, Deed, Intend, LookBack, Read, Send, Wait
from callkeeper.calls.store.breakers import EndpointKind
from callkeeper.calls.store.request_budget import Permit
from tests.records import with_stored
from tests.unit.calls.specimens import NOW, call, seconds
from tests.unit.workers.claims import HeldClaim, as_claim
from workers.held_requests import TURN_AGAIN_S, pass_gate, permits_of
from workers.service_gate import Held, Why

CHOSEN = Assignment("p-1", "the only candidate")
ASSIGN = Intend(EffectKind.ASSIGN, "p-1", None, None, CHOSEN)
INTENDED, UNKNOWN = Effect(state=EffectState.INTENDED), Effect(state=EffectState.UNKNOWN)
NEEDED: dict[str, tuple[Any, dict[str, Any], tuple[Permit, int]]] = {
    "send": (Send(EffectKind.ENROLL), {}, (Permit.EFFECT, 1)),
    "assign of a free call": (ASSIGN, {"person_id": None}, (Permit.EFFECT, 1)),
    "assign of a call seen too long ago": (
        ASSIGN,
        {"person_id": None, "listed_at": None, "reading": None},
        (Permit.EFFECT, 2),
    ),
    "enroll": (Intend(EffectKind.ENROLL, "p-1", "Other", None, CHOSEN), {"person_id": None}, (Permit.EFFECT, 2)),
    "check": (Check(), {}, (Permit.CHECK, 1)),
    "look-back": (LookBack(), {}, (Permit.READ, 1)),
    "watching read": (WATCH, {}, (Permit.READ, 1)),
    "read by push": (BY_PUSH, {}, (Permit.READ, 1)),
    "confirming read": (Read("before"), {"enroll": INTENDED}, (Permit.EFFECT, 2)),
    "read of a doubt": (Read("doubt"), {"enroll": UNKNOWN}, (Permit.EFFECT, 1)),
    "other read": (Read("other"), {}, (Permit.CHECK, 1)),
}


@pytest.mark.parametrize(("step", "changes", "needed"), NEEDED.values(), ids=NEEDED)
def test_step_needs_its_permits(step: Any, changes: dict[str, Any], needed: tuple[Permit, int]) -> None:
    """An effect's are taken before its confirming read, because nothing may wait between the two."""
    assert permits_of(step, call(**changes), NOW) == needed


async def test_permits_that_were_taken_are_not_taken_again() -> None:
    """The intention takes two; the read and the request that follow spend one each."""
    held = HeldClaim(call(person_id=None, listed_at=None, reading=None))
    assert await pass_gate(as_claim(held), ASSIGN) == ASSIGN
    assert held.permits == 2
    held.call = with_stored(held.call, assign=INTENDED)
    await pass_gate(as_claim(held), Read("before assign"))
    assert held.permits == 1
    await pass_gate(as_claim(held), Send(EffectKind.ASSIGN))
    assert held.permits == 0
    assert [wanted.permits for wanted in held.wanted] == [2, 0, 0]


async def test_step_without_a_request_is_not_asked_for() -> None:
    """A wait passes."""
    held = HeldClaim()
    assert await pass_gate(as_claim(held), Wait(NOW)) == Wait(NOW)
    assert held.wanted == []


async def test_only_automatic_checks_take_turns() -> None:
    """One that a person asked for is a request like any other."""
    held = HeldClaim()
    await pass_gate(as_claim(held), Check())
    await pass_gate(as_claim(held), Check(by_desk=True))
    await pass_gate(as_claim(held), Read("x"))
    assert [wanted.kind for wanted in held.wanted] == [EndpointKind.CHECK, EndpointKind.CALLS, EndpointKind.CALLS]
    assert [wanted.is_free for wanted in held.wanted] == [False, False, True]


async def instead(step: Deed, why: Why, wait_s: float = 9.0, permits: int = 0) -> tuple[Deed | None, HeldClaim]:
    """Return what is done instead of a step that is held up."""
    held = HeldClaim(permits=1, held_up=[Held(why, wait_s, permits)])
    return await pass_gate(as_claim(held), step), held


async def test_call_waits_while_the_service_is_away_and_says_so() -> None:
    """Also if it refuses the institution."""
    for why in (Why.AWAY, Why.INSTITUTION_AWAY, Why.REFUSED):
        step, held = await instead(Check(), why)
        assert (step, held.entries) == (Wait(NOW + seconds(9)), [why])


async def test_held_permits_stay_with_the_claim_unless_the_budget_is_used_up() -> None:
    """The budget gives all of them again."""
    _, held = await instead(Check(), Why.AWAY, permits=1)
    assert held.permits == 2
    _, held = await instead(Check(), Why.RATE)
    assert held.permits == 0


async def test_check_without_a_turn_is_put_off_and_reads_go_on() -> None:
    """By three seconds at most."""
    step, held = await instead(Check(), Why.CHECKS_FAIL)
    assert (step, held.call.plan.next_check_at) == (None, NOW + seconds(TURN_AGAIN_S))
    _, held = await instead(Check(), Why.CHECKS_FAIL, 1.0)
    assert held.call.plan.next_check_at == NOW + seconds(1)
    assert TURN_AGAIN_S == 3.0


async def test_watching_read_without_a_permit_lets_checks_go_first() -> None:
    """Another read waits."""
    step, held = await instead(WATCH, Why.RATE)
    assert (step, held.call.plan.next_read_at) == (None, NOW + seconds(9))
    step, _ = await instead(Read("x"), Why.RATE)
    assert step == Wait(NOW + seconds(9))


async def test_look_back_waits_for_its_turn_unless_too_many_do() -> None:
    """Then it counts as made."""
    step, _ = await instead(LookBack(), Why.LOOK_BACKS)
    assert step == Wait(NOW + seconds(9))
    step, held = await instead(LookBack(), Why.TOO_MANY_UNLISTED)
    assert (step, held.call.life.looked_back_at, held.events) == (None, NOW, ["look_back_refused"])


async def test_free_read_tests_whether_the_service_still_refuses() -> None:
    """A check must not be the one that finds out."""
    step, held = await instead(Check(), Why.REFUSAL_TESTED)
    assert step == Read("probe")
    assert [wanted.is_free for wanted in held.wanted] == [False, True]


class Standing:
    """What is known of the institution; it may have to be asked for first."""

    def __init__(self, held: Held | None = None, obstacle: str | None = None) -> None:
        self.held, self.known, self.times = held, obstacle, 0

    async def confirm(self, *_: object) -> Held | None:
        """Count how often it is asked for."""
        self.times += 1
        return self.held

    def obstacle(self, _key: str) -> str | None:
        """Return what keeps us from acting."""
        return self.known

    def held_until(self, _key: str, _now: object) -> None:
        """Return that nothing waits."""


ENROLL = Intend(EffectKind.ENROLL, "p-1", "Other", None, CHOSEN)


async def passed(step: Deed, known: Standing, **changes: Any) -> tuple[Deed | None, list[Any]]:
    """Return what is done, and what the gate was asked for."""
    held = HeldClaim(call(**changes))
    held.institutions = known
    return await pass_gate(as_claim(held), step), held.wanted


async def test_enroll_waits_until_the_standing_is_known_and_unchanged() -> None:
    """Before anything is taken; a change of it is decided about first."""
    assert await passed(ENROLL, Standing(Held(Why.STANDING, 2.0))) == (Wait(NOW + seconds(2)), [])
    assert await passed(ENROLL, Standing(obstacle="not_active")) == (Wait(NOW), [])
    step, wanted = await passed(ENROLL, Standing())
    assert (step, len(wanted)) == (ENROLL, 1)


@pytest.mark.parametrize(
    ("step", "changes", "times"),
    [
        (ENROLL, {}, 1),
        (Send(EffectKind.REJECT), {}, 1),
        (Read("before enroll"), {"enroll": INTENDED}, 1),
        (Read("x"), {}, 0),
        (ASSIGN, {}, 0),
        (Check(), {}, 0),
        (ENROLL, {"standing": "not_active"}, 0),
    ],
)
async def test_standing_is_asked_for_by_enrolls_and_rejects_only(
    step: Deed, changes: dict[str, Any], times: int
) -> None:
    """And by the read directly before; not if the law forbids the effect already."""
    standing = Standing()
    await passed(step, standing, **changes)
    assert standing.times == times

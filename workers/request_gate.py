"""The gate: the one question before every request about a call, whether it may go now.

Five things can hold a request up, and are asked in this order: a breaker, a bar after a 401, the institution's standing
(before an enroll or reject), checks that bring no results, and the request budget. Nothing is booked before the answer is
yes. `workers.service_health` reports what became of the request.
"""

from datetime import datetime, timedelta
from typing import assert_never, get_args

from msgspec.structs import replace

from calls.decide import WATCH, is_confirmed_free
from calls.effect_ledger import IN_DOUBT, EffectKind, EffectState
from calls.end_and_settlement import BY_PUSH
from calls.record import Call
from calls.schedule.check_plan_and_budget import brought_no_result
from calls.steps import Check, Deed, Intend, LookBack, Read, Send, Wait
from calls.store.breakers import WHOLE, EndpointKind
from calls.store.request_budget import Permit
from workers.claimed_call import AWAY, INSTITUTION_AWAY, REFUSED, Claim

Gated = Read | LookBack | Check | Intend | Send
"""Steps that send a request, or book one."""

_GATED = get_args(Gated)  # several times as fast as the union

TURN_AGAIN_S = 3.0
"""How often a call asks whether it may make a check while checks bring no results, in seconds."""


async def pass_gate(claim: Claim, step: Deed) -> Deed | None:
    """Return the step if it may be taken now, else what to do instead.

    Returns:
        A wait; a free read that tests whether the service accepts requests again; or None if the step was postponed in
        the record: decide again, because something else may be due meanwhile.
    """
    if not isinstance(step, _GATED):
        return step
    now, key, breakers = claim.now, claim.call_id.institution_key, claim.tools.store.breakers
    if (breaker := breakers.over(key)) is not None:
        claim.hold_back(AWAY if breaker.scope == WHOLE else INSTITUTION_AWAY)
        return Wait(now)  # no worker claims the call until the breaker closes
    barred_s = claim.tools.service.reads_barred_s(key)
    if barred_s:
        claim.hold_back(REFUSED)
        return Wait(now + timedelta(seconds=barred_s))
    if barred_s is not None and isinstance(step, Check | Intend | Send):
        step = Read("probe")
    if _leads_to_enroll_or_reject(step, claim.call) and (wait := await _confirm_standing(claim)) is not None:
        return wait
    needs_turn = step == Check() and breakers.over(key, EndpointKind.CHECK) is not None
    if needs_turn and (wait_s := breakers.known_turn_wait_s(key, now, yields=brought_no_result(claim.call))):
        _postpone_check(claim, wait_s)
        return None
    if wait_s := await _wait_for_permits(claim, step, now):
        if step != WATCH:
            return Wait(claim.now + timedelta(seconds=wait_s))
        claim.call = replace(claim.call, next_read_at=claim.now + timedelta(seconds=wait_s))
        return None  # a check may become due before this read gets its permit
    if needs_turn and (wait_s := await breakers.turn_wait_s(key)):
        claim.permits += 1
        _postpone_check(claim, wait_s)
        return None
    return step


_NEED_STANDING = (EffectKind.ENROLL, EffectKind.REJECT)


def _leads_to_enroll_or_reject(step: Gated, call: Call) -> bool:
    """Tell whether a step begins or sends an enroll or reject, or is the read directly before."""
    if call.standing is not None:
        return False  # the law forbids it already
    match step:
        case Intend() | Send():
            return step.kind in _NEED_STANDING
        case Read():
            return any(call.effect(kind).state is EffectState.INTENDED for kind in _NEED_STANDING)
    return False


async def _confirm_standing(claim: Claim) -> Wait | None:
    """Return a wait if the institution's standing has to be asked for first, or has changed; None if it holds.

    Assumed: the service shows a change of the status at once.
    """
    institutions, key, now = claim.institutions, claim.call_id.institution_key, claim.now
    wait_s = await institutions.confirm(key, claim.item.member, now)
    if wait_s is not None:
        return Wait(now + timedelta(seconds=wait_s))
    known = institutions.obstacle(key), institutions.held_until(key, now)
    return None if known == (claim.call.standing, claim.call.standing_held_until) else Wait(now)


def _postpone_check(claim: Claim, wait_s: float) -> None:
    """Make the next check later. Reads go on meanwhile."""
    next_check_at = claim.now + timedelta(seconds=min(wait_s, TURN_AGAIN_S))
    claim.call = replace(claim.call, next_check_at=next_check_at)


async def _wait_for_permits(claim: Claim, step: Gated, now: datetime) -> float:
    """Take the permits that a step needs from the request budget. Return how many seconds to wait for them."""
    kind, requests = permits_of(step, claim.call, now)
    if requests > claim.permits:
        budget, institution_key = claim.tools.store.budget, claim.call_id.institution_key
        wait_s = await budget.wait_s(kind, claim.item.member, institution_key, requests - claim.permits)
        claim.permits = 0 if wait_s else requests
        if wait_s:
            return wait_s
    if not isinstance(step, Intend):
        claim.permits -= 1
    return 0.0


def permits_of(step: Gated, call: Call, now: datetime) -> tuple[Permit, int]:
    """Return the permit class of a step and how many requests it needs.

    An effect's permits are taken before its confirming read, because nothing may wait between the two.
    """
    match step:
        case Send():
            return Permit.EFFECT, 1
        case Intend():
            needs_no_read = step.kind is EffectKind.ASSIGN and is_confirmed_free(call, step.person_id, now)
            return Permit.EFFECT, 1 if needs_no_read else 2
        case Check():
            return Permit.CHECK, 1
        case LookBack():
            return Permit.READ, 1
        case Read() if step in (WATCH, BY_PUSH):
            return Permit.READ, 1
        case Read():
            states = {call.assign.state, call.enroll.state, call.reject.state}
            if EffectState.INTENDED in states:
                return Permit.EFFECT, 2
            return (Permit.EFFECT if states & IN_DOUBT else Permit.CHECK), 1
        case _:
            assert_never(step)

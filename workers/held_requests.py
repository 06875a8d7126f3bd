"""Takes the steps of calls to the gate (``workers.service_gate``), and says what a call does while a request is held up."""

from datetime import datetime, timedelta
from typing import assert_never, get_args

from msgspec.structs import replace

from callkeeper.calls.decide import WATCH, is_confirmed_free
from callkeeper.calls.effect_ledger import IN_DOUBT, EffectKind, EffectState
from callkeeper.calls.record import Call
from callkeeper.calls.schedule.plan import brought_no_result
from callkeeper.calls.settlement import BY_PUSH
from callkeeper.calls.steps import Check, Deed, Intend, LookBack, Read, Send, Wait
from callkeeper.calls.store.breakers import EndpointKind
from callkeeper.calls.store.request_budget import Permit
from workers.claimed_call import Claim
from workers.service_gate import Held, Wanted, Why

Gated = Read | LookBack | Check | Intend | Send
"""Steps that send a request, or book one."""

_GATED = get_args(Gated)  # several times as fast as the union

TURN_AGAIN_S = 3.0
"""How often a call asks whether it may make a check while checks bring no results, in seconds."""


async def pass_gate(claim: Claim, deed: Deed) -> Deed | None:
    """Return the step if it may be taken now, else what to do instead. Nothing is booked before the answer is yes.

    Returns:
        A wait; a free read that tests whether the service accepts requests again; or None if the step was postponed in
        the record: decide again, because something else may be due meanwhile.
    """
    if not isinstance(deed, _GATED):
        return deed
    step: Gated = deed
    if _leads_to_enroll_or_reject(step, claim) and (held := await _confirm_standing(claim)) is not None:
        return await _instead_of(step, claim, held)
    now = claim.now
    permit, requests = permits_of(step, claim.call, now)
    is_check = step == Check()  # one that a person asked for takes no turns
    wanted = Wanted(
        claim.call_id.institution_key,
        claim.item.member,
        permit,
        max(0, requests - claim.permits),
        kind=EndpointKind.CHECK if is_check else EndpointKind.CALLS,
        is_free=isinstance(step, Read | LookBack),
        yields=is_check and brought_no_result(claim.call),
        looks_back=isinstance(step, LookBack),
    )
    held = await claim.tools.gate.ask(wanted, now)
    if held is not None:
        return await _instead_of(step, claim, held)
    claim.permits = max(claim.permits, requests) - (0 if isinstance(step, Intend) else 1)
    return step


async def _instead_of(step: Gated, claim: Claim, held: Held) -> Deed | None:
    """Return what a call does instead of a step that is held up. As `pass_gate`."""
    until = claim.now + timedelta(seconds=held.wait_s)
    claim.permits = 0 if held.why is Why.RATE else claim.permits + held.permits
    match held.why:
        case Why.REFUSAL_TESTED:
            return await pass_gate(claim, Read("probe"))
        case Why.CHECKS_FAIL:
            until = min(until, claim.now + timedelta(seconds=TURN_AGAIN_S))
            claim.call = replace(
                claim.call, plan=replace(claim.call.plan, next_check_at=until)
            )  # reads go on meanwhile
            return None
        case Why.TOO_MANY_UNLISTED:
            claim.call = replace(claim.call, life=replace(claim.call.life, looked_back_at=claim.now))
            claim.tools.log.warning("look_back_refused")
            return None
        case Why.RATE if step == WATCH:
            claim.call = replace(claim.call, plan=replace(claim.call.plan, next_read_at=until))
            return None  # a check may become due before this read gets its permit
        case Why.AWAY | Why.INSTITUTION_AWAY | Why.REFUSED:
            claim.hold_back(held.why)
    return Wait(until)  # while a breaker is open, no worker claims the call


_NEED_STANDING = (EffectKind.ENROLL, EffectKind.REJECT)


def _leads_to_enroll_or_reject(step: Gated, claim: Claim) -> bool:
    """Tell whether a step begins or sends an enroll or reject, or is the read directly before."""
    if claim.call.last_claim.standing is not None:
        return False  # the law forbids it already
    match step:
        case Intend() | Send():
            return step.kind in _NEED_STANDING
        case Read():
            return any(claim.call.effect(kind).state is EffectState.INTENDED for kind in _NEED_STANDING)
    return False


async def _confirm_standing(claim: Claim) -> Held | None:
    """Return what holds an effect up if the institution's standing is not new enough or has changed; None otherwise.

    Assumed (`status-change-at-once`): the service shows a change of the status at once.
    """
    institutions, key, now = claim.institutions, claim.call_id.institution_key, claim.now
    held = await institutions.confirm(key, claim.item.member, now)
    if held is not None:
        return held
    known, claimed = (institutions.obstacle(key), institutions.held_until(key, now)), claim.call.last_claim
    return None if known == (claimed.standing, claimed.standing_held_until) else Held(Why.STANDING)


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
            states = {call.effect(kind).state for kind in EffectKind}
            if EffectState.INTENDED in states:
                return Permit.EFFECT, 2
            return (Permit.EFFECT if states & IN_DOUBT else Permit.CHECK), 1
        case _:
            assert_never(step)

"""Advances one claimed call: decide, take the step, repeat until the call has to wait. Settles it at its end.

The steps are in ``workers.checks`` (look, read, check) and ``workers.assign_enroll_reject`` (assign, enroll, reject).
"""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace
from redis.exceptions import RedisError

from calls.claimed_item import ListName, Placement
from calls.decide import WATCH, decide, is_confirmed_free
from calls.effect_ledger import IN_DOUBT, EffectKind, EffectState
from calls.end_and_settlement import BY_PUSH, CONFIRM_LOOKS_S, HINT_LIVES, is_not_found
from calls.institutions import FOREIGN
from calls.record import Call, Phase, Reason
from calls.statement_folding import may_return
from calls.steps import (
    Check,
    Decline,
    Drop,
    Establish,
    Intend,
    Look,
    LookBack,
    Read,
    Rest,
    Send,
    Settle,
    Step,
    Wait,
    Withdraw,
    WriteDecision,
    WriteFacts,
)
from calls.store.breakers import ACCOUNT, Breaker
from calls.store.request_budget import Permit
from calls.trail import Entry
from workers.assign_enroll_reject import establish, intend, send, withdraw, write_decision, write_facts
from workers.checks import check, decline, look, look_back, read
from workers.claimed_call import AWAY, INSTITUTION_AWAY, REFUSED, Claim, attention


async def settle(claim: Claim, reason: Reason) -> None:
    """Settle the call. Nothing is sent for it again, unless the service did not know it and shows it later.

    If a reject of the member is not followed up yet, the call is due again: its enroll may be taken back.
    """
    now = claim.now
    claim.call = replace(claim.call, phase=Phase.SETTLED, reason=reason, settled_at=now)
    digest = claim.tools.book.digest
    claim.entries.append(Entry(at=now, what="settled", because=reason, n=claim.call.checks_used, rules=digest))
    lost: ListName = "lost" if may_return(claim.call) else "settled"
    listed: ListName = "unconfirmed" if reason is Reason.UNCONFIRMED else lost
    due_in_ms = None if claim.call.recheck_from is None else 0
    await claim.save(Placement(due_in_ms, listed=listed, attention=attention(claim.call)))
    if claim.call.alternate_id is not None:
        with suppress(RedisError):
            await claim.tools.store.keep_alias(claim.call_id.institution_key, claim.call.alternate_id)
    claim.add("settled")
    claim.tools.log.info("call_settled", reason=reason, checks=claim.call.checks_used)


LISTED_WITHIN = timedelta(seconds=CONFIRM_LOOKS_S[-1])
"""A look at the queue proves that a call is missing only if it began this long after the hint: a push may be faster."""

LOOK_AGAIN = timedelta(seconds=5)

SILENT_LOOKS = 2
"""A queue that was asked for this many looks since a hint, and was not listed, is refused or broken."""


async def drop(claim: Claim, step: Drop) -> None:
    """Delete the record of a hint if a complete look at the queue did not list it, or the service does not know it.

    A failed look proves nothing.
    """
    now, hinted_at = claim.now, claim.call.hinted_at or claim.now
    if claim.call.standing != FOREIGN and not is_not_found(claim.call, now):
        looked_at = await claim.tools.listings.looked_at(claim.call_id.institution_key)
        if looked_at is None or looked_at < hinted_at + LISTED_WITHIN:
            # A listing that shows the call makes it due at once, so the wait may grow.
            await claim.let_go(now + max(LOOK_AGAIN, (now - hinted_at) / 8))
            return
    claim.entries.append(Entry(at=claim.now, what="dropped", because=step.because, rules=claim.tools.book.digest))
    await claim.forget()
    claim.add("dropped")
    claim.tools.log.info("hint_dropped")


MAX_STEPS = 16
"""Most steps in one claim. More mean that two steps undo each other."""

_BOOKS = (Check, Intend, Send)
"""Steps that book or send something."""

_REQUESTS = (Read, LookBack, Check, Send)
"""Steps that send a request."""

_ASKS = (Read, Check)
"""A claim may end before these. An effect's confirming read, its ``sent`` and its first byte must not be separated."""

TURN_AGAIN_S = 3.0
"""How often a call asks whether it may make a check while checks bring no results, in seconds."""

RELEASE_AFTER_S = 1.0
"""An older claim is released before the next request, so that other calls get a turn while the service is slow."""


async def move(claim: Claim) -> None:
    """Take steps until the call is released.

    Raises:
        LeaseLost: Another worker holds the call now.
        RuntimeError: The steps do not end: a bug in ``decide``.
    """
    for n in range(MAX_STEPS):
        await claim.look_up_earlier()
        now = claim.now
        step = decide(
            claim.call,
            claim.tools.book,
            now,
            late=claim.item.late,
            busy=claim.tools.cpu_share(),
            is_silent=await _is_silent(claim),
        )
        if n and isinstance(step, _ASKS) and claim.age_s > RELEASE_AFTER_S:
            step = Wait(now)
        institution_key = claim.call_id.institution_key
        breaker = claim.tools.store.breakers.over(institution_key)
        allowed, because = past_the_breaker(step, breaker, now), _because(breaker)
        if allowed is step:
            barred_s = claim.tools.service.reads_barred_s(institution_key)
            allowed, because = past_the_bar(step, barred_s, now), REFUSED
        if allowed is not step and isinstance(allowed, Wait):
            claim.hold_back(because)
        turn_s = 0.0 if allowed != Check() else claim.tools.store.breakers.known_turn_wait_s(institution_key, now)
        wait_s = 0.0 if turn_s else await _wait_for_permits(claim, allowed, now)
        if allowed == Check() and not wait_s and not turn_s:
            turn_s = await claim.tools.store.breakers.turn_wait_s(institution_key)
            claim.permits += 1 if turn_s else 0
        if turn_s:
            # Checks bring no results. Reads go on meanwhile.
            claim.call = replace(claim.call, next_check_at=claim.now + timedelta(seconds=min(turn_s, TURN_AGAIN_S)))
            continue
        if wait_s and allowed == WATCH:
            # A check may become due before this read gets its permit.
            claim.call = replace(claim.call, next_read_at=claim.now + timedelta(seconds=wait_s))
            continue
        if wait_s:
            allowed = Wait(claim.now + timedelta(seconds=wait_s))
        await _take(claim, allowed)
        if claim.is_over:
            return
    raise RuntimeError(f"the steps did not end after {MAX_STEPS}: a bug in decide")


async def _is_silent(claim: Claim) -> bool:
    """Tell whether a hint's queue could not be listed since, although it was asked for two looks."""
    hinted_at = claim.call.hinted_at
    if claim.call.phase is not Phase.HINTED or hinted_at is None or claim.call.confirm_looks < SILENT_LOOKS:
        return False
    looked_at = await claim.tools.listings.looked_at(claim.call_id.institution_key)
    # A listing that was late enough to show the call comes before the hint is dropped.
    since = hinted_at if claim.now - hinted_at < HINT_LIVES else hinted_at + LISTED_WITHIN
    return looked_at is None or looked_at < since


async def _wait_for_permits(claim: Claim, step: Step, now: datetime) -> float:
    """Take the permits that a step needs from the request budget. Return how many seconds to wait for them."""
    kind, requests = permits_of(step, claim.call, now)
    wait_s = 0.0
    if requests > claim.permits:
        budget, institution_key = claim.tools.store.budget, claim.call_id.institution_key
        wait_s = await budget.wait_s(kind, claim.item.member, institution_key, requests - claim.permits)
        claim.permits = 0 if wait_s else requests
    if not wait_s and isinstance(step, _REQUESTS):
        claim.permits -= 1
    return wait_s


def permits_of(step: Step, call: Call, now: datetime) -> tuple[Permit, int]:
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
            return Permit.READ, 0


def past_the_breaker(step: Step, breaker: Breaker | None, now: datetime) -> Step:
    """Return the step, or a wait while the breaker is open. No worker claims the call until it closes."""
    is_held = breaker is not None and isinstance(step, (Read, LookBack, *_BOOKS))
    return Wait(now) if is_held else step


def _because(breaker: Breaker | None) -> str:
    return AWAY if breaker is None or breaker.institution_key == ACCOUNT else INSTITUTION_AWAY


def past_the_bar(step: Step, barred_s: float | None, now: datetime) -> Step:
    """Return the step, or its replacement while the service answers 401 for the institution's calls.

    The replacement is a wait, or a free read that tests whether the service accepts requests again.
    """
    if barred_s is None:
        return step
    if barred_s > 0 and isinstance(step, (Read, LookBack, *_BOOKS)):
        return Wait(now + timedelta(seconds=barred_s))
    return Read("probe") if isinstance(step, _BOOKS) else step


async def _take(claim: Claim, step: Step) -> None:
    match step:
        case Read():
            await read(claim)
        case LookBack():
            await look_back(claim)
        case Check():
            await check(claim, by_desk=step.by_desk)
        case Wait():
            await claim.let_go(step.until)
        case Intend():
            await intend(claim, step)
        case Send():
            await send(claim, step.kind)
        case Look():
            await look(claim)
        case Withdraw():
            withdraw(claim, step)
        case Decline():
            decline(claim, step)
        case Establish():
            establish(claim, step)
        case WriteDecision():
            write_decision(claim, step)
        case WriteFacts():
            write_facts(claim, step)
        case Settle():
            await settle(claim, step.reason)
        case Drop():
            await drop(claim, step)
        case Rest():
            await claim.let_go(None)
        case _:
            assert_never(step)

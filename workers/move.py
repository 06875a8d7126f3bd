"""Moves one claimed call on: decide, take the step, until there is nothing to do but wait.

What the steps do: ``asking`` (look, read, check), ``ledger`` and ``sending`` (effects), ``explaining``, ``settling``.
"""

from datetime import datetime, timedelta
from typing import assert_never

from calls.decide import decide
from calls.steps import (
    Check,
    Decline,
    Drop,
    Establish,
    Intend,
    Look,
    LookBack,
    Note,
    NoteFacts,
    Read,
    Rest,
    Send,
    Settle,
    Step,
    Wait,
    Withdraw,
)
from calls.store.breakers import ACCOUNT, Breaker
from workers.asking import check, decline, look, look_back, read
from workers.claim import AWAY, INSTITUTION_AWAY, REFUSED, Claim
from workers.explaining import note, note_facts
from workers.ledger import establish, intend, withdraw
from workers.sending import send
from workers.settling import drop, settle

MAX_STEPS = 16
"""Steps in one claim; more means that two of them undo each other."""

_BOOKS = (Check, Intend, Send)
"""Steps that book or send something."""

_ASKS = (Read, Check)
"""Steps before which a claim may end. Nothing comes between an effect's confirming read, its ``sent`` and its first byte."""

RELEASE_AFTER_S = 1.0
"""A claim that is older lets go before it asks again: where the service is slow, others come between."""


async def move(claim: Claim) -> None:
    """Take steps until the call is let go.

    Raises:
        LeaseLost: Somebody else moves the call now.
        RuntimeError: The steps do not come to an end: a bug in ``decide``.
    """
    for n in range(MAX_STEPS):
        step = decide(claim.call, claim.tools.book, claim.now, late=claim.held.late)
        if n and isinstance(step, _ASKS) and claim.age_s > RELEASE_AFTER_S:
            step = Wait(claim.now)
        institution_key = claim.call_id.institution_key
        breaker = claim.tools.store.breakers.over(institution_key)
        allowed, because = past_the_breaker(step, breaker, claim.now), _because(breaker)
        if allowed is step:
            barred_s = claim.tools.service.reads_barred_s(institution_key)
            allowed, because = past_the_bar(step, barred_s, claim.now), REFUSED
        if allowed is not step and isinstance(allowed, Wait):
            claim.hold_back(because)
        await _take(claim, allowed)
        if claim.is_over:
            return
    raise RuntimeError(f"no end after {MAX_STEPS} steps")


def past_the_breaker(step: Step, breaker: Breaker | None, now: datetime) -> Step:
    """Return the step, or a wait while the service or the institution is left alone: nobody claims the call until then."""
    is_held = breaker is not None and isinstance(step, (Read, LookBack, *_BOOKS))
    return Wait(now) if is_held else step


def _because(breaker: Breaker | None) -> str:
    return AWAY if breaker is None or breaker.institution_key == ACCOUNT else INSTITUTION_AWAY


def past_the_bar(step: Step, barred_s: float | None, now: datetime) -> Step:
    """Return the step, or what takes its place while the service answers 401 for the institution's calls.

    A wait, or a free read to try it.
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
        case Note():
            note(claim, step.verdict)
        case NoteFacts():
            note_facts(claim)
        case Settle():
            await settle(claim, step.reason)
        case Drop():
            await drop(claim, step)
        case Rest():
            await claim.let_go(None)
        case _:
            assert_never(step)

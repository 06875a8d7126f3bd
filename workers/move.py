"""Moves one claimed call on: decide, take the step, until there is nothing to do but wait; and closes it at the end.

The steps are in ``workers.checks`` (look, read, check) and ``workers.effects`` (what is sent).
"""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace
from redis.exceptions import RedisError

from calls.closing import CONFIRM_LOOKS_S
from calls.decide import decide
from calls.institutions import FOREIGN
from calls.lease import Placement
from calls.record import Phase, Reason
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
from calls.trail import Entry
from workers.checks import check, decline, look, look_back, read
from workers.claim import AWAY, INSTITUTION_AWAY, REFUSED, Claim, attention
from workers.effects import establish, intend, note, note_facts, send, withdraw


async def settle(claim: Claim, reason: Reason) -> None:
    """Close the call: nothing is ever sent for it again, unless the queue lists one that was never confirmed."""
    now = claim.now
    claim.call = replace(claim.call, phase=Phase.SETTLED, reason=reason, settled_at=now)
    digest = claim.tools.book.digest
    claim.entries.append(Entry(at=now, what="settled", because=reason, n=claim.call.checks_used, rules=digest))
    listed = "unconfirmed" if reason is Reason.UNCONFIRMED else "settled"
    await claim.save(Placement(None, listed=listed, attention=attention(claim.call)))
    if claim.call.alternate_id is not None:
        with suppress(RedisError):
            await claim.tools.store.keep_alias(claim.call_id.institution_key, claim.call.alternate_id)
    claim.tally.add("settled")
    claim.tools.log.info("call_settled", **claim.names, reason=reason, checks=claim.call.checks_used)


LISTED_WITHIN = timedelta(seconds=CONFIRM_LOOKS_S[-1])
"""How long after a hint a look at the queue has to begin to show that there is no such call: an event may outrun it."""

LOOK_AGAIN = timedelta(seconds=5)


async def drop(claim: Claim, step: Drop) -> None:
    """Forget a hint that the queue does not list, after a complete look at it: one that failed says nothing."""
    now, hinted_at = claim.now, claim.call.hinted_at or claim.now
    if claim.call.standing != FOREIGN:
        looked_at = await claim.tools.store.looked_at(claim.call_id.institution_key)
        if looked_at is None or looked_at < hinted_at + LISTED_WITHIN:
            # A listing that shows the call makes it due at once: the wait may grow.
            await claim.let_go(now + max(LOOK_AGAIN, (now - hinted_at) / 8))
            return
    claim.entries.append(Entry(at=claim.now, what="dropped", because=step.because, rules=claim.tools.book.digest))
    await claim.forget()
    claim.tally.add("dropped")
    claim.tools.log.info("hint_dropped", **claim.names)


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
        step = decide(claim.call, claim.tools.book, claim.now, late=claim.item.late)
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

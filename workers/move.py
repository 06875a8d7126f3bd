"""Advances one claimed call: decide, take the step, repeat until the call has to wait. Settles it at its end.

Before each step that sends or books something, ``workers.held_requests`` is asked. The steps are in ``workers.checks``
(request a listing, read, check) and ``workers.effects`` (assign, enroll, reject).
"""

from contextlib import suppress
from datetime import timedelta
from typing import assert_never

from msgspec.structs import replace
from redis.exceptions import RedisError

from callkeeper.calls.claimed_item import ListName, Placement
from callkeeper.calls.decide import decide
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.effect_resolution import attention, last_doubt_read
from callkeeper.calls.institutions import FOREIGN
from callkeeper.calls.record import Phase, Reason
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.settlement import CONFIRM_LOOKS_S, HINT_LIVES, is_not_found
from callkeeper.calls.statement_folding import may_return
from callkeeper.calls.steps import (
    Check,
    Decline,
    Deed,
    Drop,
    Establish,
    Intend,
    LookBack,
    Read,
    RequestListing,
    Rest,
    Send,
    Settle,
    Step,
    Wait,
    Withdraw,
    WriteDecision,
    WriteFacts,
)
from callkeeper.calls.survey import judged
from callkeeper.calls.trail import Entry
from callkeeper.service.tracing import SpanAttributes, span
from workers.checks import check, decline, look_back, read, request_listing, unite_spellings
from workers.claimed_call import Claim
from workers.effects import establish, intend, send, withdraw, write_decision, write_facts
from workers.held_requests import pass_gate


async def settle(claim: Claim, reason: Reason) -> None:
    """Settle the call. Nothing is sent for it again, unless the service did not know it and shows it later.

    If a reject of the member is not followed up yet, the call is due again: its enroll may be taken back. So it is if an
    effect is unresolved: a later read may show it.
    """
    now = claim.now
    claim.call = replace(claim.call, life=replace(claim.call.life, phase=Phase.SETTLED, reason=reason, settled_at=now))
    digest = claim.tools.book.digest
    claim.entries.append(Entry(at=now, what="settled", because=reason, n=claim.call.plan.checks_used, rules=digest))
    listed: ListName = "lost" if may_return(claim.call) else "settled"
    if reason is Reason.UNCONFIRMED:
        listed = "unconfirmed"
    due_in_ms = 0 if claim.call.plan.recheck_from is not None or last_doubt_read(claim.call) is not None else None
    await claim.save(Placement(due_in_ms, listed=listed, attention=attention(claim.call)))
    if claim.call.names.alternate_id is not None:
        with suppress(RedisError):
            await claim.tools.store.keep_alias(claim.call_id.institution_key, claim.call.names.alternate_id)
    tools, call_id = claim.tools, claim.call_id
    for shown in judged(claim.call, tools.service.tap.end(*call_id)):
        key = tools.counting.label(call_id.institution_key)
        tools.counting.figures.see(shown.assumption, shown.answer, key, shown.shape)
    claim.summary.add("settled")
    claim.tools.log.info("call_settled", reason=reason, checks=claim.call.plan.checks_used)


LISTED_WITHIN = timedelta(seconds=CONFIRM_LOOKS_S[-1])
"""A look at the queue proves that a call is missing only if it began this long after the hint: a push may be faster."""

ASK_LATER = timedelta(seconds=5)

SILENT_LOOKS = 2
"""A queue that was asked for this many looks since a hint, and was not listed, is refused or broken."""


async def drop(claim: Claim) -> None:
    """Delete the record of a hint if a complete look at the queue did not list it, or the service does not know it.

    A failed look proves nothing.
    """
    now, hinted_at = claim.now, claim.call.life.hinted_at or claim.now
    if claim.call.last_claim.standing != FOREIGN and not is_not_found(claim.call, now):
        listed_at = await claim.tools.listings.last_listed_at(claim.call_id.institution_key, now)
        if listed_at is None or listed_at < hinted_at + LISTED_WITHIN:
            # A listing that shows the call makes it due at once, so the wait may grow.
            await claim.let_go(now + max(ASK_LATER, (now - hinted_at) / 8))
            return
    because = "the queue does not list it"
    claim.entries.append(Entry(at=claim.now, what="dropped", because=because, rules=claim.tools.book.digest))
    await claim.forget()
    claim.summary.add("dropped")
    claim.tools.log.info("hint_dropped")


MAX_STEPS = 16
"""Most steps in one claim. More mean that two steps undo each other."""

_ASKS = (Read, Check)
"""A claim may end before these. An effect's confirming read, its ``sent`` and its first byte must not be separated."""

RELEASE_AFTER = timedelta(seconds=1)
"""An older claim is released before the next request, so that other calls get a turn while the service is slow."""


async def move(claim: Claim) -> None:
    """Take steps until the call is released.

    Raises:
        WriteRefused: Another worker holds the call now.
        RuntimeError: The steps do not end: a bug in ``decide``.
    """
    if await unite_spellings(claim):
        return
    for n in range(MAX_STEPS):
        # A reject in another call of the member may have come between the intention of an enroll and its request.
        await claim.look_up_earlier(anew=claim.call.ledger.enroll.state is EffectState.INTENDED)
        now = claim.now
        is_silent = claim.call.life.phase is Phase.HINTED and await _is_silent(claim)
        with span("decide") as deciding:
            step = decide(claim.call, claim.context(is_silent=is_silent), claim.tools.book, now)
            if deciding.is_recorded:
                deciding.note(**_words_of(step))
        if isinstance(step, WriteFacts):
            write_facts(claim, step)
            step = step.then
        if n and isinstance(step, _ASKS) and claim.now - claim.item.now > RELEASE_AFTER:
            step = Wait(now)
        allowed = await pass_gate(claim, step)
        if allowed is None:
            continue
        await _take(claim, allowed)
        if claim.is_over:
            return
    raise RuntimeError(f"the steps did not end after {MAX_STEPS}: a bug in decide")


def _words_of(step: Step) -> SpanAttributes:
    """Return what a span says of a decision."""
    deed = step.then if isinstance(step, WriteFacts) else step
    words = SpanAttributes(step=type(deed).__name__)
    match deed:
        case Send() | Withdraw() | Establish():
            words["effect"] = deed.kind
        case Settle():
            words["reason"] = deed.reason
        case Intend() | WriteDecision():
            if isinstance(deed, Intend):
                words["effect"] = deed.kind
            if isinstance(deed.verdict, Verdict):
                words |= SpanAttributes(rule=deed.verdict.rule, outcome=deed.verdict.outcome)
    return words


async def _is_silent(claim: Claim) -> bool:
    """Tell whether a hint's queue could not be listed since, although it was asked for two looks."""
    hinted_at = claim.call.life.hinted_at
    if hinted_at is None or claim.call.life.confirm_looks < SILENT_LOOKS:
        return False
    listed_at = await claim.tools.listings.last_listed_at(claim.call_id.institution_key, claim.now)
    # A listing that was late enough to show the call comes before the hint is dropped.
    since = hinted_at if claim.now - hinted_at < HINT_LIVES else hinted_at + LISTED_WITHIN
    return listed_at is None or listed_at < since


async def _take(claim: Claim, step: Deed) -> None:
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
            with span(f"send {step.kind}", effect=step.kind) as sending:
                await send(claim, step.kind)
                effect = claim.call.effect(step.kind)
                sending.note(state=effect.state, attempt=effect.attempts)
        case RequestListing():
            await request_listing(claim)
        case Withdraw():
            withdraw(claim, step)
        case Decline():
            decline(claim, step)
        case Establish():
            establish(claim, step)
        case WriteDecision():
            write_decision(claim, step)
        case Settle():
            await settle(claim, step.reason)
        case Drop():
            await drop(claim)
        case Rest():
            await claim.let_go(None)
        case _:
            assert_never(step)

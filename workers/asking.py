"""What a move asks of the service without changing anything there: a look at the queue, stored details, a check.

A check costs one of the call's 20 and is booked before it is sent; reads are free, and whatever goes wrong with one is a
read to repeat later.
"""

from datetime import timedelta
from typing import Literal

from msgspec.structs import replace

from calls.closing import must_be_listed_again
from calls.decide import read_retry
from calls.record import Call, Phase
from calls.schedule.check_plan import check_answered, check_booked, check_failed
from calls.steps import Decline
from calls.store.inbox import Ask
from calls.trail import Entry
from reseller import AccessRefused, CallNotFound, PhoneCall, ResellerError, ServiceRefused, TokenLapsed
from workers.answer import take_in
from workers.claim import REFUSED, Claim
from workers.merging import AnswerMisnamed, hold_to_name


async def look(claim: Claim) -> None:
    """Have the institution's queue looked at: it has not listed the call yet."""
    await claim.tools.store.ask_to_look(claim.call_id.institution_key, Ask.WIDE)
    claim.call = replace(claim.call, confirm_looks=claim.call.confirm_looks + 1)


async def look_back(claim: Claim) -> None:
    """Read the stored details of a call that ended unlisted, once; nothing without an allowance."""
    claim.call = replace(claim.call, looked_back_at=claim.now)
    if await claim.tools.store.look_backs.take(claim.now):
        before = claim.call
        await read(claim)
        claim.tools.counting.found(before, claim.call)
    else:
        claim.tools.log.warning("look_back_refused", **claim.names)


async def read(claim: Claim) -> None:
    """Read stored details."""
    claim.tally.add("reads")
    try:
        phone_call = await _details(claim, "read", claim.bot)
    except ResellerError as error:
        _read_failed(claim, error)
        if must_be_listed_again(claim.call, claim.now):
            await claim.tools.store.ask_whether_listed(claim.call_id)
        return
    if not claim.is_over:
        take_in(claim, phone_call)


def _read_failed(claim: Claim, error: ResellerError) -> None:
    call, now = claim.call, claim.now
    # The service shows no call under the id of a hint either if it answers with another call.
    is_unknown = isinstance(error, CallNotFound) or (isinstance(error, AnswerMisnamed) and call.phase is Phase.HINTED)
    not_found_since = (call.not_found_since or now) if is_unknown else None
    call = replace(call, not_found_since=not_found_since)
    if isinstance(error, AccessRefused):
        retry_at = now + timedelta(seconds=error.retry_after_s)
        claim.call = replace(call, reads_failed=max(1, call.reads_failed), next_read_at=retry_at)
        claim.hold_back(REFUSED)
        return
    claim.call = replace(call, reads_failed=call.reads_failed + 1, next_read_at=read_retry(call, now))
    claim.tally.add("reads_failed")
    claim.tools.log.warning("read_failed", **claim.names, error=type(error).__name__, said=error.plain)


async def check(claim: Claim, *, by_desk: bool) -> None:
    """Book one of the 20 checks, then make it; never refunded, never repeated without another booking."""
    call, now, n = claim.call, claim.now, claim.call.checks_used + 1
    operator = call.check_wish.operator if by_desk and call.check_wish else None
    claim.call = check_booked(call, claim.tools.book.schedule, now, by_desk=by_desk)
    await claim.keep(book_check=n)
    claim.tally.add("checks")
    claim.tools.counting.booked(call, now)
    try:
        phone_call = await _details(claim, "check", operator or claim.bot)
    except ResellerError as error:
        claim.entries.append(
            Entry(at=claim.now, what="check_failed", n=n, because=type(error).__name__, trace=call.trace)
        )
        claim.tally.add("checks_failed")
        claim.tools.log.warning("check_failed", **claim.names, n=n, error=type(error).__name__, said=error.plain)
        await _after_lapse(claim, error, call, by_desk=by_desk)
        return
    if claim.is_over:
        return
    took_ms = int((claim.now - now).total_seconds() * 1000)
    claim.call = check_answered(claim.call, by_desk=by_desk)
    take_in(claim, phone_call, check=n, operator=operator, took_ms=took_ms)
    claim.tools.counting.answered(call, claim.call, claim.tools.book, claim.now)


def decline(claim: Claim, step: Decline) -> None:
    """Give up a check that a person asked for."""
    wish = claim.call.check_wish
    claim.call = replace(claim.call, check_wish=None)
    operator = wish.operator if wish else None
    claim.entries.append(Entry(at=claim.now, what="withdrawn", kind="check", because=step.because, operator=operator))


async def _details(claim: Claim, kind: Literal["read", "check"], operator: str) -> PhoneCall:
    """Read the service's record of the call; the claim is over if it became part of another."""
    institution_key, voice_id = claim.call_id
    phone_call = await claim.tools.service.details(
        institution_key, voice_id, check=kind == "check", requested_by=operator
    )
    await hold_to_name(claim, phone_call, kind)
    return phone_call


async def _after_lapse(claim: Claim, error: ResellerError, before: Call, *, by_desk: bool) -> None:
    """After a 401 log in, once a claim, and let the check be booked and made anew, for whoever wanted it.

    A check that was answered with 401 was not made: what was known of the last one stays. A refusal is an answer; after
    any other failure the next check is planned from the last answer.
    """
    if isinstance(error, TokenLapsed) and await claim.renew_token():
        next_check_at = claim.call.next_check_at if by_desk else claim.now
        claim.call = replace(
            claim.call,
            check_wish=before.check_wish,
            last_check_at=before.last_check_at,
            next_check_at=next_check_at,
        )
    elif not isinstance(error, ServiceRefused):
        claim.call = check_failed(claim.call, claim.tools.book.schedule, claim.now, by_desk=by_desk)

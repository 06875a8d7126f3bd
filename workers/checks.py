"""The steps that ask the service without changing anything: look at the queue, read stored details, make a check.

A check costs one of the call's 20 and is booked before it is sent. Reads are free; a failed read is repeated later.

An answer that names another voice id is not folded into the record. Our id is treated as an alternate id only if a
push, or the other call's own record, confirms it. Then this record becomes a tombstone, and its contents go to the
other record as a note. Without that confirmation the service may have mixed two calls up, and the answer counts as
unreadable.
"""

from contextlib import suppress
from datetime import timedelta
from typing import Literal

from msgspec.structs import replace

from callkeeper.calls.claimed_item import RefusedBy, WriteRefused
from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.calls.fact_derivation import is_named_in_answer, signs_of
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.notes import listed_of, why_unusable
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.reading_folding import fold_check, fold_reading, reading_of
from callkeeper.calls.record import Call, Phase, Reading
from callkeeper.calls.redis_restart import charge_earlier_record, spent_checks
from callkeeper.calls.schedule.plan import check_answered, check_booked, check_failed, must_read_first, take_turns
from callkeeper.calls.schedule.reads import next_read, read_retry
from callkeeper.calls.settlement import STARTS_APART, must_be_listed_again
from callkeeper.calls.steps import Decline
from callkeeper.calls.store.breakers import EndpointKind, RequestResult
from callkeeper.calls.store.earlier_calls import digits_compared
from callkeeper.calls.store.inbox import Ask
from callkeeper.calls.store.last_errors import ErrorArea
from callkeeper.calls.store.request_budget import Permit
from callkeeper.calls.trail import Entry
from callkeeper.service import (
    AccessRefused,
    AnswerUnreadable,
    CallNotFound,
    NeedsPerson,
    PhoneCall,
    ResellerError,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
)
from callkeeper.service.endpoints import canonical_id, is_same_id, is_voice_id, spelling_of
from workers.claimed_call import Claim
from workers.counting import unknown_names
from workers.other_calls import find_beside
from workers.service_clock import LISTED_ANEW
from workers.service_gate import Wanted, Why


class AnswerMisnamed(AnswerUnreadable):
    """The answer is about another call, and nothing confirms that the two ids are one call."""


async def hold_to_name(claim: Claim, phone_call: PhoneCall, kind: str) -> None:
    """Check that an answer is about the call that was asked about. The claim may be over afterwards.

    Args:
        claim: The call that was asked about.
        phone_call: The answer. Assumed (`answer-names-call`): one without a voice id is about the call that was asked about.
        kind: What was asked: ``read`` or ``check``.

    Raises:
        AnswerMisnamed: The answer names another call.
        WriteRefused: Another worker holds the call now, or the queue has just listed it.

    Spec: Rules per operation 2 (alternate ids are resolved).
    """
    named = phone_call.voice_id
    if not named or is_same_id(named, claim.call_id.voice_id):
        return
    real_id = await _real_id(claim, phone_call)
    if real_id is not None and await _merge_into(claim, CallId(claim.call_id.institution_key, real_id)):
        return
    claim.call = replace(claim.call, names=replace(claim.call.names, other_voice_id=named))
    note_misnamed(claim, named, kind)
    raise AnswerMisnamed(kind, "the answer names another call")


def note_misnamed(claim: Claim, named: str, kind: str) -> None:
    """Log and count an answer that names another call."""
    claim.tools.log.warning("answer_misnamed", kind=kind, other=named)
    counting = claim.tools.counting
    counting.figures.count(figure.ANSWERS_MISNAMED, counting.label(claim.call_id.institution_key), kind)


async def _real_id(claim: Claim, phone_call: PhoneCall) -> str | None:
    """Return the real id if it is certain that this record's id is an alternate id of it.

    If the service answers with another caller's call by mistake, the answer looks the same as one about an alternate
    id. Merging then would carry out people's statements for the wrong caller. So a second source must confirm it: a
    push, or the call's own record. Repeated answers confirm nothing. An id that the queue lists, or that an answer gave as
    the call's own, is never an alternate id. The queue may go on under the real id once somebody has assigned the call;
    then number and start must be the same, too.
    """
    voice_id, life = claim.call_id.voice_id, claim.call.life
    may_have_moved = life.is_unlisted and _is_continued(claim.call, phone_call)
    if is_named_in_answer(claim.call) or (life.listed_at is not None and not may_have_moved):
        return None
    named = canonical_id(phone_call.voice_id or "")
    if not is_voice_id(named):
        return None
    pushed = await claim.tools.store.alias(claim.call_id)
    if pushed is not None and is_same_id(pushed, named):
        return named
    return named if voice_id in map(canonical_id, phone_call.alternate_ids) else None


def _is_continued(call: Call, phone_call: PhoneCall) -> bool:
    """Tell whether a record under another id has the number and the start of the call.

    Assumed (`start-and-creation`): the service creates the record of a call within a minute of its start in the queue.
    """
    ours, theirs = digits_compared(call.names.phone_number), digits_compared(phone_call.phone_number)
    if ours is None or ours != theirs or call.life.started_at is None or phone_call.created_at is None:
        return False
    return abs(phone_call.created_at - call.life.started_at) <= STARTS_APART


async def unite_spellings(claim: Claim) -> bool:
    """Merge a record that has another spelling of the id or of the institution: a statement or a push came under it.

    Returns:
        Whether the claim is over.

    Raises:
        WriteRefused: Another worker holds the call now.
    """
    ours = claim.call_id
    key = claim.institutions.managed_keys.spelling_kept(ours.institution_key)
    other = CallId(key, canonical_id(ours.voice_id))
    return other != ours and await _merge_into(claim, other)


async def _merge_into(claim: Claim, other: CallId) -> bool:
    """Merge this record into the one under the ids that the service uses for this call.

    Returns:
        Whether the claim is over. If the other id was merged into this one before, this record stays.

    Raises:
        WriteRefused: Another worker holds the call now, or the queue has just listed it.
    """
    # If the queue has listed this call after all, this record stays: stored details must then be read first.
    claim.call = replace(claim.call, plan=replace(claim.call.plan, needs_verifying=True))
    await claim.keep()
    claim.is_over = await claim.tools.store.merge(claim.item, claim.stored, other)
    if claim.is_over:
        claim.tools.log.info("calls_merged", into=other.voice_id)
    return claim.is_over


def take_in(
    claim: Claim,
    phone_call: PhoneCall,
    *,
    check: int | None = None,
    operator: str | None = None,
    took_ms: int | None = None,
) -> None:
    """Fold in an answer about this call.

    ``check`` is the number of the check that brought it; None for stored details.
    """
    now = claim.now
    reading = reading_of(phone_call, now)
    before, book = claim.call, claim.tools.book
    if phone_call.voice_id:
        claim.call = replace(claim.call, names=replace(claim.call.names, spelled=spelling_of(phone_call.voice_id)))
    if claim.call.names.phone_number is None and phone_call.phone_number:
        claim.call = replace(claim.call, names=replace(claim.call.names, phone_number=phone_call.phone_number))
    claim.call = fold_reading(_charged(claim, reading), reading, book, now)
    if check is not None:
        claim.call = fold_check(claim.call, check, reading)
    periods = {"undecided_s": book.reads_undecided_s, "decided_s": book.reads_decided_s}
    read_at = next_read(claim.call, claim.context(), book.policies, now, **periods)
    claim.call = replace(claim.call, plan=replace(claim.call.plan, next_read_at=read_at))
    changed = _notable(before) != _notable(claim.call)
    if changed:
        _report_unknown(claim, before.seen.reading, reading)
        claim.tools.counting.shown(before, claim.call, book.policies)
    if check is not None or changed:
        claim.entries.append(
            Entry(
                at=now,
                what="read" if check is None else "checked",
                status=reading.status,
                policies=reading.policies,
                signs=() if check is None else signs_of(reading),
                person_id=reading.person_id,
                n=check,
                took_ms=took_ms,
                operator=operator,
                trace=before.trace,
            )
        )
    _note_news(claim, before)


def _note_news(claim: Claim, before: Call) -> None:
    """Write into the trail if the service shows for the first time that an enroll was taken back, or that the call ended."""
    now = claim.now
    if claim.call.seen.unenrolled and not before.seen.unenrolled:
        claim.entries.append(Entry(at=now, what="established", kind=EffectKind.ENROLL, state=EffectState.TAKEN_BACK))
        claim.tools.log.warning("enroll_taken_back")
    if claim.call.life.ended_at is not None and before.life.ended_at is None:
        claim.entries.append(Entry(at=now, what="ended"))


def _charged(claim: Claim, reading: Reading) -> Call:
    """Count checks that a lost record may have spent, if an answer shows the call before the queue does."""
    call, book = claim.call, claim.tools.book
    if call.life.phase is not Phase.HINTED or claim.item.lost is not None:
        return call
    age: timedelta | None = timedelta(seconds=book.maximum_age_s)
    if reading.created_at is not None:
        epoch = claim.item.epoch
        is_hinted_live = call.life.hinted_at is not None and call.life.end_hinted_at is None
        is_new = is_hinted_live and claim.now - epoch.since >= LISTED_ANEW
        age = claim.tools.clock.age(reading.created_at, claim.now, epoch, may_be_old=not is_new)
    # The lost record may have been checked for the member whom this reading names. It is folded in only afterwards.
    begun = replace(call, seen=replace(call.seen, person_id=reading.person_id or call.seen.person_id))
    charged = charge_earlier_record(begun, book, claim.item.epoch, claim.now, age=age)
    claim.entries += spent_checks(begun, charged, claim.now)
    return replace(charged, seen=replace(charged.seen, person_id=call.seen.person_id))


def _notable(call: Call) -> tuple[object, ...]:
    """Return the parts of a reading whose change is worth a trail entry."""
    reading = call.seen.reading
    if reading is None:
        return ()
    return (
        reading.status,
        reading.policies,
        reading.person_id,
        reading.has_ended,
        reading.research_status,
        reading.research_voice_id,
        reading.provider_error,
    )


def _report_unknown(claim: Claim, before: Reading | None, reading: Reading) -> None:
    """Log policies and statuses that have no defined meaning. They are never guessed; a person should look at them."""
    policies, status = unknown_names(reading, claim.tools.book.policies)
    for policy in policies:
        if before is None or policy not in before.policies:
            claim.tools.log.warning("policy_unclassified", policy=policy)
    if status is not None and (before is None or status != before.status):
        claim.tools.log.warning("status_unknown", status=status)


async def request_listing(claim: Claim) -> None:
    """Ask for a listing of the institution's queue, because it has not listed the call yet."""
    await claim.tools.store.request_listing(claim.call_id.institution_key, Ask.WIDE)
    claim.call = replace(claim.call, life=replace(claim.call.life, confirm_looks=claim.call.life.confirm_looks + 1))


async def look_back(claim: Claim) -> None:
    """Read the stored details of a call that ended unlisted, once if the service answers."""
    before = claim.call = replace(claim.call, life=replace(claim.call.life, looked_back_at=claim.now))
    await read(claim)
    claim.tools.counting.found(before, claim.call)


async def read(claim: Claim) -> None:
    """Read stored details."""
    claim.summary.add("reads")
    await _search(claim)
    try:
        if await _follow_assign(claim):
            return
        phone_call = await _details(claim, "read", claim.bot)
    except ResellerError as error:
        _read_failed(claim, error)
        is_intended = claim.call.ledger.assign.state is EffectState.INTENDED
        # Under the alternate id that the queue lists, only the queue can show that the call is still free.
        if must_be_listed_again(claim.call, claim.now) or (is_intended and isinstance(error, AnswerMisnamed)):
            await claim.tools.store.ask_whether_listed(claim.call_id)
        return
    if not claim.is_over:
        unanswered = must_read_first(claim.call) and claim.now - (claim.call.plan.last_check_at or claim.now) < JUST_NOW
        take_in(claim, phone_call)
        await find_beside(claim)
        if unanswered:  # stored details can be read, so it is not the service that is away
            await _without_result(claim, "unanswered")


MOST_SEARCHED = 20
"""How many entries of the queue a search by number asks for: callers may share one."""


async def _search(claim: Claim) -> None:
    """Search the queue for a pushed call while listings of the whole queue fail or hang: only the queue has its candidates.

    Spec: Queue query (``searchString``).
    """
    (key, voice_id), life, number = claim.call_id, claim.call.life, claim.call.names.phone_number
    if not number or life.listed_at is not None or life.end_hinted_at is not None or life.ended_at is not None:
        return
    if not await claim.tools.listings.may_miss(key, life.hinted_at, claim.now):
        return
    if await claim.tools.gate.ask(Wanted(key, claim.item.member, Permit.CHECK), claim.now) is not None:
        return
    with suppress(ResellerError):  # the gate is told, and the next read searches again
        found = await claim.tools.service.queue(
            key,
            continue_from=0,
            page_size=MOST_SEARCHED,
            search_string=number,
            requested_by=claim.bot,
            keep=claim.renew_lease,
        )
        for entry in found:
            if why_unusable(entry) is None and is_same_id(entry.id, voice_id):
                await claim.tools.store.note(claim.call_id, listed_of(entry, claim.now))


_MOVED_WITHIN = timedelta(seconds=2)
"""A look at the queue that began this long after an assign was sent shows under which id the service goes on."""

_LOOKED_WITHIN = timedelta(seconds=15)
"""How long to wait for such a look."""


async def _follow_assign(claim: Claim) -> bool:
    """Continue under the id that assign returned if the queue has stopped listing this one and details show the same call.

    If not, the outcome of the assign stays in doubt, and is looked up under this record's id. Details alone do not prove
    that it is the same call: they look alike if the caller rang twice within a minute and the service mixed up the calls.

    Returns:
        Whether the claim is over: this record was merged into the one under the other id, or waits for the queue.

    Raises:
        ResellerError: The details could not be read for now.

    Spec: Rules per operation 1 ("the voiceId to use afterwards").
    """
    assigned_id, sent_at = claim.call.names.assigned_id, claim.call.ledger.assign.sent_at
    if assigned_id is None or sent_at is None:
        return False
    life, since = claim.call.life, claim.now - sent_at
    listed_at = None if life.is_unlisted else life.listed_at
    if listed_at is not None and listed_at - sent_at < _MOVED_WITHIN and since < _LOOKED_WITHIN:
        if since >= _MOVED_WITHIN:
            await claim.tools.store.ask_whether_listed(claim.call_id)
        await claim.let_go(claim.now + _MOVED_WITHIN)
        return True
    is_same = listed_at is None and await _is_same_call(claim, assigned_id)
    other = CallId(claim.call_id.institution_key, canonical_id(assigned_id))
    if is_same and await _merge_into(claim, other):
        return True
    claim.call = replace(claim.call, names=replace(claim.call.names, assigned_id=None))
    return False


async def _is_same_call(claim: Claim, assigned_id: str) -> bool:
    """Tell whether details under the id that assign returned show this call."""
    try:
        phone_call = await claim.tools.service.details(
            claim.call_id.institution_key, assigned_id, check=False, requested_by=claim.bot
        )
    except CallNotFound:
        return False
    return is_same_id(phone_call.voice_id or "", assigned_id) and _is_continued(claim.call, phone_call)


JUST_NOW = timedelta(seconds=10)
"""A read that follows a failed check within this time shows that only checks fail."""


async def _without_result(claim: Claim, outcome: str) -> None:
    """Report a check that brought no result. After three from three calls, further checks of the institution wait.

    Assumed (`check-refused-is-provider`): a refused check, or one that is answered with a voice authentication error,
    may be the voice provider's trouble and not the call's.
    """
    key, kind = claim.call_id.institution_key, EndpointKind.CHECK
    await claim.tools.gate.publish(RequestResult.FAILURE, key, kind, outcome=outcome, member=claim.item.member)
    if claim.tools.store.breakers.over(key, kind) is not None:
        claim.call = take_turns(claim.call, claim.tools.book.schedule, claim.now)


_MAY_PASS = (ServiceUnavailable, AccessRefused, TokenLapsed, NeedsPerson)
"""A look-back that fails with one of these is repeated. A refusal of this one call would only be given again."""


def _read_failed(claim: Claim, error: ResellerError) -> None:
    call, now, plan, is_hint = claim.call, claim.now, claim.call.plan, claim.call.life.phase is Phase.HINTED
    # For a hint, an answer that names another call also means that the service has no call with this id.
    is_unknown = isinstance(error, CallNotFound) or (is_hint and isinstance(error, AnswerMisnamed))
    not_found_since = (call.life.not_found_since or now) if is_unknown else None
    call = replace(call, life=replace(call.life, not_found_since=not_found_since))
    if is_hint and isinstance(error, _MAY_PASS):
        call = replace(call, life=replace(call.life, looked_back_at=None))
    if isinstance(error, AccessRefused):
        retry_at = now + timedelta(seconds=error.retry_after_s)
        claim.call = replace(call, plan=replace(plan, reads_failed=max(1, plan.reads_failed), next_read_at=retry_at))
        claim.hold_back(Why.REFUSED)
        return
    retry_at = read_retry(call, now)
    claim.call = replace(call, plan=replace(plan, reads_failed=plan.reads_failed + 1, next_read_at=retry_at))
    claim.summary.add("reads_failed")
    claim.tools.log.warning("read_failed", error=type(error).__name__, said=error.plain)


async def check(claim: Claim, *, by_desk: bool) -> None:
    """Book one of the 20 checks, then make it. A check is never refunded, and repeating it needs another booking.

    The write that books an automatic check is refused if a person has paused everything since the claim.
    """
    call, now, n = claim.call, claim.now, claim.call.plan.checks_used + 1
    operator = call.statements.check_wish.operator if by_desk and call.statements.check_wish else None
    if not await _book(claim, n, by_desk=by_desk):
        return
    try:
        phone_call = await _details(claim, "check", operator or claim.bot)
    except ResellerError as error:
        await _check_failed(claim, error, call, n, operator, by_desk=by_desk)
        return
    if claim.is_over:
        return
    took_ms = int((claim.now - now).total_seconds() * 1000)
    claim.call = check_answered(claim.call, by_desk=by_desk)
    take_in(claim, phone_call, check=n, operator=operator, took_ms=took_ms)
    await find_beside(claim)
    claim.tools.counting.answered(call, claim.call, claim.tools.book, claim.now)
    await _tell_whether_checks_work(claim)


async def _book(claim: Claim, n: int, *, by_desk: bool) -> bool:
    """Book check ``n``. Return whether it may be made; if not, the call was released, because everything is paused."""
    call, now = claim.call, claim.now
    claim.call = check_booked(call, claim.tools.book.schedule, now, by_desk=by_desk)
    try:
        await claim.keep(book_check=n, unless_paused=None if by_desk else PauseScope.ALL)
    except WriteRefused as refused:
        if refused.why is not RefusedBy.PAUSED:
            raise
        claim.call = call
        await claim.let_go(now)
        return False
    claim.summary.add("checks")
    claim.tools.counting.booked(call, now)
    return True


async def _check_failed(
    claim: Claim, error: ResellerError, before: Call, n: int, operator: str | None, *, by_desk: bool
) -> None:
    """Record that check ``n`` got no answer. ``before`` is the call before it was booked."""
    claim.summary.add("checks_failed")
    why = type(error).__name__
    claim.tools.log.warning("check_failed", n=n, error=why, said=error.plain)
    if not isinstance(error, CallNotFound):
        await claim.tools.store.errors.note_error(ErrorArea.CHECK, claim.call_id.institution_key, error)
    is_repeated = await _after_lapse(claim, error, before, by_desk=by_desk)
    by = None if is_repeated else operator  # no operator: it is made again for the same person (`action_status`)
    claim.entries.append(Entry(at=claim.now, what="check_failed", n=n, because=why, operator=by, trace=before.trace))
    if isinstance(error, ServiceRefused) and not isinstance(error, CallNotFound):
        await _without_result(claim, why)


async def _tell_whether_checks_work(claim: Claim) -> None:
    """Report that a check was answered, or that the voice provider's error came instead of a result."""
    key, reading = claim.call_id.institution_key, claim.call.seen.reading
    if reading is not None and reading.provider_error is not None:
        said = f"voice authentication error: {reading.provider_error}"
        await claim.tools.store.errors.note(ErrorArea.CHECK, key, said)
        await _without_result(claim, "provider_error")
    else:
        await claim.tools.gate.publish(RequestResult.ANSWER, key, EndpointKind.CHECK)


def decline(claim: Claim, step: Decline) -> None:
    """Drop a check that a person asked for.

    If it were kept, it might be made minutes later, when nobody waits for the answer any more.
    """
    wish = claim.call.statements.check_wish
    claim.call = replace(claim.call, statements=replace(claim.call.statements, check_wish=None))
    operator = wish.operator if wish else None
    claim.entries.append(Entry(at=claim.now, what="withdrawn", kind="check", because=step.because, operator=operator))


async def _details(claim: Claim, kind: Literal["read", "check"], operator: str) -> PhoneCall:
    """Read the service's record of the call. The claim is over if our record was merged into another one."""
    phone_call = await claim.tools.service.details(
        claim.call_id.institution_key,
        claim.spelled_id,
        check=kind == "check",
        requested_by=operator,
        keep=claim.renew_lease,
    )
    await hold_to_name(claim, phone_call, kind)
    return phone_call


async def _after_lapse(claim: Claim, error: ResellerError, before: Call, *, by_desk: bool) -> bool:
    """After a 401, log in (once per claim) and plan the check again, for the person who asked, if one did.

    A check that was answered with 401 was not made, so the data of the last check is restored. After any other failure
    the next check is planned from the last answer, and waits until stored details can be read.

    Returns:
        Whether the check will be made again.
    """
    if isinstance(error, TokenLapsed) and await claim.renew_token():
        next_check_at = claim.call.plan.next_check_at if by_desk else claim.now
        claim.call = replace(
            claim.call,
            statements=replace(claim.call.statements, check_wish=before.statements.check_wish),
            plan=replace(claim.call.plan, last_check_at=before.plan.last_check_at, next_check_at=next_check_at),
        )
        return True
    claim.call = check_failed(claim.call, claim.tools.book.schedule, claim.now, by_desk=by_desk)
    return False

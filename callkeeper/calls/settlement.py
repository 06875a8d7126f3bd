"""How a call ends: hints that are not confirmed, calls that have ended, and calls that are lost. Pure functions.

A hint is a call that was pushed, or that a person named, and that the service has not confirmed yet. It waits for the
queue to list it, and is dropped if that does not happen. While the queue cannot be listed, its stored details are read
by the id of its push; it is dropped if the service does not know it for a minute. If a CallEnd was pushed, or the queue
could not be listed for long, the stored details are read once before the hint is dropped: a call that ended before it
was listed, or that came and went during an outage, gets a record, too. Anyone who may push can invent such calls. So
these reads have the lowest priority, and those before a drop take turns
(``callkeeper.calls.store.last_listing.LookBackAllowance``).

A hint that a person made a statement about is never dropped. Its stored details are read too, because its id may be an
alternate id and the queue may be late. If the service knows no such call, it is settled as unconfirmed.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from callkeeper.calls.context import Context
from callkeeper.calls.effect_ledger import IN_DOUBT, EffectKind, EffectState
from callkeeper.calls.effect_resolution import HELD_BACK, may_begin, unresolved
from callkeeper.calls.fact_derivation import begun_at, facts_of, has_real_voice_id
from callkeeper.calls.facts import FINAL_APART, VERIFIED_AFTER_END, Facts
from callkeeper.calls.institutions import FOREIGN, NOT_ACTIVE, UNKNOWN
from callkeeper.calls.member_evidence import is_rejection_standing
from callkeeper.calls.record import Call, Reading, Reason
from callkeeper.calls.rules.book import EFFECTS, Outcome, RuleBook
from callkeeper.calls.rules.matching import judge, next_turn
from callkeeper.calls.schedule.reads import read_or_wait
from callkeeper.calls.statement_folding import HEARD_AFTER_END
from callkeeper.calls.steps import Deed, Drop, Establish, LookBack, Read, RequestListing, Settle, Wait, Withdraw
from callkeeper.service.enumerations import CallStatus

MAY_HAVE_ENDED = timedelta(seconds=30)
"""If the queue could not be listed for this long after a hint, the call may have ended, pushed or not."""

LOOK_BACK_WITHIN = timedelta(days=1)
"""How long after a hint its details are worth a look-back. After a long outage many calls wait for theirs."""


def look_back(call: Call, context: Context, hinted_at: datetime, now: datetime) -> Deed:
    """Return the next step of a hint that was not listed in time. A failed read is repeated.

    Assumed (`ended-found`): details of a call can be read after its end.
    """
    may_have_ended = call.life.end_hinted_at is not None or now - hinted_at > MAY_HAVE_ENDED
    if (
        not may_have_ended
        or context.obstacles.standing is not None
        or call.life.looked_back_at is not None
        or now - hinted_at > LOOK_BACK_WITHIN
    ):
        return Drop()
    read_at = call.plan.retry_at(now)
    return Wait(read_at) if read_at > now else LookBack()


CONFIRM_LOOKS_S = (0.5, 1.5, 3.5, 7.5)
"""When the queue is looked at again after a hint, in seconds, because an event may be faster. The hint asks for one too."""

STARTS_APART = timedelta(seconds=60)
"""How far the creation of a record may be from the call's start in the queue (`start-and-creation`)."""

HINT_LIVES = timedelta(seconds=10)
"""A hint that was not listed within this time is dropped.

Assumed (`queue-within-10-s`): the queue shows a call within this time of its event. Numbers on an ignore list never
appear."""

ASK_AGAIN = timedelta(seconds=1)
"""Until the service has said whether an institution is active, no requests are sent for its hints."""


BY_PUSH = Read("its queue is not listed")
"""The read of a hint by the id of its push.

Assumed (`details-before-queue`): details are found by the id of a push before the queue has shown the call."""


def confirm(call: Call, context: Context, now: datetime, *, is_lost: bool) -> Deed:
    """Return the next step of a hint.

    ``is_lost``: the service has not known the call for long, or it is too old to be watched.
    """
    hinted_at = call.life.hinted_at or call.life.first_seen_at or now
    asked, standing = call.life.confirm_looks, context.obstacles.standing
    asks_again = asked < len(CONFIRM_LOOKS_S)
    due_at = hinted_at + (timedelta(seconds=CONFIRM_LOOKS_S[asked]) if asks_again else HINT_LIVES)
    if asks_again and due_at <= now:
        return RequestListing()
    if not call.statements.were_made and context.is_silent and standing is None:
        read_at = call.plan.retry_at(now)
        if is_lost:
            return Drop()
        return BY_PUSH if read_at <= now else Wait(min(read_at, due_at) if asks_again else read_at)
    if not call.statements.were_made:
        return Wait(due_at) if now < due_at else look_back(call, context, hinted_at, now)
    if standing == FOREIGN or is_lost:
        return Wait(due_at) if now < due_at else Settle(Reason.UNCONFIRMED)
    read_at = call.plan.retry_at(now)
    if standing == UNKNOWN:
        read_at = max(read_at, now + ASK_AGAIN)
    if read_at <= now:
        return Read("a person made a statement about it")
    return Wait(min(read_at, due_at) if asks_again else read_at)


SETTLE_AFTER = timedelta(seconds=3)
"""Between the end and the last read. Assumed (`record-complete-after-3-s`): the service settles its record
within this time."""

RESUME_LOOK = timedelta(seconds=5)
"""How often an ended call is looked at while it waits for the end of a pause."""

IDLE_LOOK = timedelta(seconds=60)
"""How often one is looked at while its institution is not active. A worker reads the institutions every 90 s."""

_PASSING = frozenset({NOT_ACTIVE, UNKNOWN})
"""Obstacles that an ended call waits for. The others are the institution's own choice: test mode, no voice
authentication."""

LAST_TURN = timedelta(minutes=10)
"""For how long an ended call is kept for rules that ask for the seconds since the end or the verification."""

NOT_FOUND_FOR = timedelta(seconds=60)
"""Assumed (`not-found-is-delay`): "not found" of a live call is only a delay, for this long."""

WORD_FOR = timedelta(seconds=60)
"""For this long after a person's statement a call is not given up: the statement comes first if it can still be read."""

LISTED_FOR = timedelta(seconds=180)
"""For this long after a listing a call exists, whatever its stored details say. Full listings come once a minute."""

LIST_AGAIN = timedelta(seconds=20)
"""If the details of a call are "not found" and its last listing is older than this, the queue is asked."""


def is_not_found(call: Call, now: datetime) -> bool:
    """Tell whether the service has not known the call for so long that this is no delay."""
    return call.life.not_found_since is not None and now - call.life.not_found_since > NOT_FOUND_FOR


def age_out(call: Call, book: RuleBook, facts: Facts) -> Deed:
    """Settle a call that never ends, or that the service does not know any more, so that it is not watched for ever."""
    withdrawn = _withdraw_all(call, "call lost")
    return withdrawn or _give_up_distrust(call, book, facts) or Settle(_reason(call, facts))


def _give_up_distrust(call: Call, book: RuleBook, facts: Facts) -> Deed | None:
    """Give up the reject of an ended call that a person's distrust asks for and the law still forbids: somebody is told.

    One of a call that was lost may be carried out when the call returns; one under an alternate id, under the other one.
    """
    said, verdict = call.statements.distrusted, judge(facts, book, call.institution_key)
    is_held = verdict.asked is Outcome.REJECT and bool(verdict.forbidden)
    if said is None or said.in_shadow or not is_held or call.life.ended_at is None or not facts.real_voice_id:
        return None
    if is_rejection_standing(call) or not may_begin(EffectKind.REJECT, call.ledger.reject, call):
        return None
    return Establish(EffectKind.REJECT, EffectState.REFUSED, HELD_BACK)


def is_endless(call: Call, book: RuleBook, now: datetime) -> bool:
    """Tell whether a call has gone on for longer than calls are watched. It gets no checks, and is read now and then."""
    born = _born(call)
    return call.life.ended_at is None and born is not None and (now - born).total_seconds() > book.maximum_age_s


def _born(call: Call) -> datetime | None:
    return call.life.first_seen_at or call.life.listed_at or call.life.started_at


def is_lost(call: Call, context: Context, book: RuleBook, now: datetime) -> bool:
    """Tell whether a call is too old, or not known to the service any more.

    One that the queue lists is never too old, whatever a clock says, and no call is before a read that is due. A person's
    statement gives it another minute. A reopened call is kept for a day, and so is one that a person distrusted, until that
    was carried out: a pause may hold it up.
    """
    if call.statements.heard_at is not None and now - call.statements.heard_at <= WORD_FOR:
        return False
    born, life = _born(call), call.life
    most = timedelta(seconds=book.maximum_age_s)
    if is_endless(call, book, now) and context.obstacles.standing != FOREIGN:
        is_read = context.obstacles.standing in {None, UNKNOWN}
        is_unread = is_read and (call.plan.next_read_at is None or call.plan.next_read_at <= now)
        most = timedelta.max if is_unread or (life.listed_at is not None and not life.is_unlisted) else most
    if call.life.is_reopened:
        born, most = call.life.ended_at, HEARD_AFTER_END
    elif _waits_for_reject(call):
        born, most = call.life.ended_at or born, max(most, HEARD_AFTER_END)
    too_old = born is not None and now - born > most
    is_unknown = is_not_found(call, now)
    return too_old or (is_unknown and not _is_listed(call, now, LISTED_FOR))


def _waits_for_reject(call: Call) -> bool:
    """Tell whether a person's distrust was not carried out yet, and may be."""
    distrusted, reject = call.statements.distrusted, call.ledger.reject
    is_begun = reject.state is EffectState.INTENDED or reject.state in IN_DOUBT
    is_open = distrusted is not None and not distrusted.in_shadow and has_real_voice_id(call)
    return is_open and not is_rejection_standing(call) and (is_begun or may_begin(EffectKind.REJECT, reject, call))


def must_be_listed_again(call: Call, now: datetime) -> bool:
    """Tell whether the queue must say if a call still exists whose details are "not found"."""
    return call.life.not_found_since is not None and not call.life.is_unlisted and not _is_listed(call, now, LIST_AGAIN)


def _is_listed(call: Call, now: datetime, within: timedelta) -> bool:
    return not call.life.is_unlisted and call.life.listed_at is not None and now - call.life.listed_at <= within


def believed_end(call: Call, reading: Reading, now: datetime) -> datetime | None:
    """Return when a call ended, if the service's record says so. A pushed end is only a reason to read the record.

    The push came when the call ended, unless a read between the two showed the call going on. Workers may have been down.
    """
    if not reading.has_ended and reading.status != CallStatus.CALL_ENDED:
        return None
    hinted_at, last = call.life.end_hinted_at, call.seen.reading
    went_on = hinted_at is not None and last is not None and last.read_at > hinted_at
    return call.life.ended_at or (None if went_on else hinted_at) or now


def close(call: Call, context: Context, book: RuleBook, facts: Facts, now: datetime) -> Deed | None:
    """Close an ended call: withdraw intentions, read once more after the service has settled it, then settle."""
    if call.life.ended_at is None:
        return None
    withdrawn = _withdraw_all(call, "call ended")
    if withdrawn is not None:
        return withdrawn
    last_read_at = call.life.ended_at + SETTLE_AFTER
    if now < last_read_at:
        return Wait(last_read_at)
    if call.seen.reading is None or call.seen.reading.read_at < last_read_at:
        return read_or_wait(call, "last read", now)
    if (step := _await_decision(call, context, book, facts, now)) is not None:
        return step
    turn_at = next_turn(book, {**begun_at(call), "assigned_s": None}, now, None)
    if turn_at is not None and turn_at <= call.life.ended_at + LAST_TURN:
        return Wait(turn_at)
    return _give_up_distrust(call, book, facts) or Settle(_reason(call, facts))


def _await_decision(call: Call, context: Context, book: RuleBook, facts: Facts, now: datetime) -> Deed | None:
    """Wait for the provider's final analysis, or for what holds effects up, if the rules would then do something."""
    is_open, is_idle = facts.voice_pending or facts.provider_error, context.obstacles.standing in _PASSING
    best = replace(
        facts,
        final_analysis=True,
        voice_checked=facts.voice_checked or not is_open,
        paused=False,
        redis_changed=False,
        standing_unconfirmed=False,
        allowed=facts.allowed or is_idle,
    )
    verdict, present = judge(best, book, call.institution_key), judge(facts, book, call.institution_key)
    known = {one.rule for one in (present, *present.shadows)}
    asked = {one.asked for one in (verdict, *verdict.shadows) if one.asked is not Outcome.ASK or one.rule not in known}
    if asked <= {Outcome.HOLD, *_begun(call)}:
        return None
    if not facts.final_analysis:
        due = now if call.seen.final_since is None else call.seen.final_since + FINAL_APART
        return Wait(due) if now < due else read_or_wait(call, "final analysis", now)
    holds = facts.paused or facts.redis_changed or facts.standing_unconfirmed or is_idle
    is_held = holds and verdict.outcome in EFFECTS.keys() - _begun(call)
    is_in_time = verdict.outcome is Outcome.REJECT or (facts.ended_s or 0) < VERIFIED_AFTER_END.total_seconds()
    return Wait(now + (IDLE_LOOK if is_idle else RESUME_LOOK)) if is_held and is_in_time else None


def _begun(call: Call) -> set[Outcome]:
    """Return what cannot be begun any more."""
    return {outcome for outcome, kind in EFFECTS.items() if not may_begin(kind, call.effect(kind), call)}


def _withdraw_all(call: Call, because: str) -> Deed | None:
    intended = (kind for kind in EffectKind if call.effect(kind).state is EffectState.INTENDED)
    return next((Withdraw(kind, because) for kind in intended), None)


def settled_anew(call: Call, book: RuleBook, now: datetime) -> Call:
    """Return a settled call with the reason that holds now that a person has resolved an effect."""
    facts = facts_of(call, call.last_claim, book.policies, now)
    return replace(call, life=replace(call.life, reason=_reason(call, facts)))


def _reason(call: Call, facts: Facts) -> Reason:
    """Return why a call is settled: what a person must handle, else the most important thing that is true of it."""
    reasons = (
        (bool(unresolved(call)), Reason.UNRESOLVED),
        (call.life.ended_at is None, Reason.LOST),
        (facts.rejected, Reason.REJECTED),
        (facts.red, Reason.RED),
        (facts.unenrolled, Reason.UNENROLLED),
        (facts.enrolled, Reason.ENROLLED),
        (facts.green and facts.assigned, Reason.AUTHENTICATED),
        (not facts.assigned, Reason.UNASSIGNED),
        (facts.provider_error, Reason.PROVIDER_ERROR),
    )
    return next((reason for holds, reason in reasons if holds), Reason.UNDECIDED)

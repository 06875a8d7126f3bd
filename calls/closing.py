"""The end of a call: when it is over, what is still to be done by then, and as what it is settled. Pure."""

from datetime import datetime, timedelta

from calls.effects import may_begin
from calls.facts import Facts
from calls.record import Call, EffectKind, EffectState, Reason
from calls.rules.book import Outcome, RuleBook
from calls.rules.verdict import judge
from calls.statements import HEARD_AFTER_END
from calls.steps import Read, Settle, Step, Wait, Withdraw

SETTLE_AFTER = timedelta(seconds=3)
"""Between the first sight of the end and the last read. Assumed: the service settles its record within this time."""

RESUME_LOOK = timedelta(seconds=5)
"""How often an ended call that waits for the end of a pause is looked at."""

_PASSING = frozenset({"paused", "redis_changed"})
"""Articles of the law that forbid only for a while."""

NOT_FOUND_FOR = timedelta(seconds=60)
"""Assumed: "not found" of a live call is only a delay, for this long."""

LISTED_FOR = timedelta(seconds=180)
"""For how long a call that a queue listed is there, whatever its stored details say. Full listings come once a minute."""

LIST_AGAIN = timedelta(seconds=20)
"""A listing that is older than this does not bear out a call whose details are "not found": the queue is asked."""


def age_out(call: Call, book: RuleBook, facts: Facts, now: datetime) -> Step | None:
    """A call that never ends, or that the service does not know any more, is not watched for ever."""
    if not is_lost(call, book, now):
        return None
    reason = _reason(facts) if call.is_reopened else Reason.LOST
    return _withdraw_all(call, "call lost") or Settle(_unresolved(call) or reason)


def is_lost(call: Call, book: RuleBook, now: datetime) -> bool:
    """Tell whether a call is not waited for any longer; one that was opened again after its end for a day."""
    born, most = call.first_seen_at or call.listed_at or call.started_at, timedelta(seconds=book.maximum_age_s)
    if call.is_reopened:
        born, most = call.end_seen_at, HEARD_AFTER_END
    too_old = born is not None and now - born > most
    is_unknown = call.not_found_since is not None and now - call.not_found_since > NOT_FOUND_FOR
    return too_old or (is_unknown and not _is_listed(call, now, LISTED_FOR))


def must_be_listed_again(call: Call, now: datetime) -> bool:
    """Tell whether only the queue can say if a call whose details are "not found" is still there."""
    return call.not_found_since is not None and not call.is_unlisted and not _is_listed(call, now, LIST_AGAIN)


def _is_listed(call: Call, now: datetime, within: timedelta) -> bool:
    return not call.is_unlisted and call.listed_at is not None and now - call.listed_at <= within


def close(call: Call, book: RuleBook, facts: Facts, now: datetime) -> Step | None:
    """Ended: give intentions up, read once more when the service has settled its record, then close."""
    if call.end_seen_at is None:
        return None
    withdrawn = _withdraw_all(call, "call ended")
    if withdrawn is not None:
        return withdrawn
    last_read_at = call.end_seen_at + SETTLE_AFTER
    if now < last_read_at:
        return Wait(last_read_at)
    if call.reading is None or call.reading.read_at < last_read_at:
        return Read("last read")
    if _awaits_release(call, book, facts):
        return Wait(now + RESUME_LOOK)
    return Settle(_unresolved(call) or _reason(facts))


def _awaits_release(call: Call, book: RuleBook, facts: Facts) -> bool:
    """Tell whether only what passes stands before a reject, the one effect that an ended call still allows."""
    if not (facts.paused or facts.redis_changed) or not may_begin(EffectKind.REJECT, call):
        return False
    verdict = judge(facts, book, call.institution_key)
    return verdict.asked is Outcome.REJECT and set(verdict.forbidden) <= _PASSING


def _withdraw_all(call: Call, because: str) -> Step | None:
    for kind in EffectKind:
        if call.effect(kind).state is EffectState.INTENDED:
            return Withdraw(kind, because)
    return None


def _unresolved(call: Call) -> Reason | None:
    doubts = (call.effect(kind).state for kind in (EffectKind.ENROLL, EffectKind.REJECT))
    return Reason.UNRESOLVED if EffectState.UNRESOLVED in doubts else None


def _reason(facts: Facts) -> Reason:
    """Name the strongest thing that is true of an ended call."""
    reasons = (
        (facts.rejected, Reason.REJECTED),
        (facts.red, Reason.RED),
        (facts.unenrolled, Reason.UNENROLLED),
        (facts.enrolled, Reason.ENROLLED),
        (facts.green, Reason.AUTHENTICATED),
        (not facts.assigned, Reason.UNASSIGNED),
        (facts.provider_error, Reason.PROVIDER_ERROR),
    )
    return next((reason for holds, reason in reasons if holds), Reason.UNDECIDED)

"""Folds into a call's record who is assigned, and begins the watch of a call that has a person. Pure functions."""

from datetime import datetime

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import DONE, EffectKind
from callkeeper.calls.law import MEMBER_CHANGED
from callkeeper.calls.record import Call, with_effect
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.schedule.plan import begin_watch
from callkeeper.calls.seen_folding import of_member


def assigned(call: Call, book: RuleBook, now: datetime) -> Call:
    """Start watching a call that was just assigned, and remember whom we assigned, unless it is an operator's person."""
    assign = call.ledger.assign
    call = assigned_to(call, assign.person_id)
    if not assign.is_operators:
        ledger = replace(call.ledger, assigned_person_id=assign.person_id, assigned_as=assign.requested_by)
        call = replace(call, ledger=ledger)
    return begin_watch(call, book.schedule, now, now)


def unassigned(call: Call) -> Call:
    """Return a call whose assign the service ignored, without the member whom that assign gave it.

    No account was correlated, so what checks have shown since is about nobody's voice.
    """
    shown = call.seen.reading.person_id if call.seen.reading is not None else None
    seen, answered = call.seen, call.seen.history.answered
    seen = seen if shown is not None else replace(seen, person_id=None, unusable_answers=answered)
    return replace(call, seen=seen, ledger=replace(call.ledger, assigned_person_id=None, assigned_as=None))


def assigned_to(call: Call, person_id: str | None) -> Call:
    """Return a call with the person who is assigned now.

    If another one was assigned before, details are read again: the last reading is not about this person.
    """
    is_another = person_id is not None and call.seen.person_id not in {None, person_id}
    plan = replace(call.plan, needs_verifying=True) if is_another else call.plan
    seen = of_member(call.seen, person_id, call.plan.checks_used)
    return asked_anew(call, replace(call, seen=seen, plan=plan))


def asked_anew(before: Call, call: Call) -> Call:
    """Return a call without what another member ends who came after the first check.

    These are words that identified the member before, and the question whether an earlier change was right.
    """
    left, said = before.seen.person_id, call.statements
    if not call.seen.member_changed or left in {None, call.seen.person_id}:
        return call
    identity, shown = (
        replace(one, is_past=True) if one is not None and one.person_id == left else one
        for one in (said.identity, said.shown_identity)
    )
    asked = None if said.asked is not None and said.asked.rule == MEMBER_CHANGED else said.asked
    said = replace(said, identity=identity, shown_identity=shown, asked=asked)
    return replace(call, statements=said, written=replace(call.written, verdict=None))


def with_assign_shown(call: Call, person_id: str | None) -> Call:
    """Return a call whose queue entry or details name a person. If our assign named the same one, it was shown."""
    assign = call.ledger.assign
    if person_id is None or person_id != assign.person_id or assign.state not in DONE or assign.was_shown:
        return call
    return with_effect(call, EffectKind.ASSIGN, replace(assign, was_shown=True))

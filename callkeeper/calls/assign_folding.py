"""Folds into a call's record who is assigned, and begins the watch of a call that has a person. Pure functions."""

from datetime import datetime

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import DONE, EffectKind
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
    seen = call.seen if shown is not None else replace(call.seen, person_id=None, answered_for="")
    return replace(call, seen=seen, ledger=replace(call.ledger, assigned_person_id=None, assigned_as=None))


def assigned_to(call: Call, person_id: str | None) -> Call:
    """Return a call with the person who is assigned now.

    If another one was assigned before, details are read again: the last reading is not about this person.
    """
    is_another = person_id is not None and call.seen.person_id not in {None, person_id}
    plan = replace(call.plan, needs_verifying=True) if is_another else call.plan
    return replace(call, seen=of_member(call.seen, person_id), plan=plan)


def with_assign_shown(call: Call, person_id: str | None) -> Call:
    """Return a call whose queue entry or details name a person. If our assign named the same one, it was shown."""
    assign = call.ledger.assign
    if person_id is None or person_id != assign.person_id or assign.state not in DONE or assign.was_shown:
        return call
    return with_effect(call, EffectKind.ASSIGN, replace(assign, was_shown=True))

"""The state of an action: a person's statement at the desk, from when it is received to its outcome. Pure functions.

The state is not stored. The statement is in the trail under the action's id (the field ``wish``). The rest follows from
the record, the rules and the law. So all processes give the same answer, however often they are asked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from calls.effect_ledger import DONE, Effect, EffectKind, EffectState
from calls.effect_resolution import (
    ASSIGN_FAILED,
    MAX_ASSIGNS,
    may_assign,
    may_begin,
    needs_person,
    refusals,
    unresolved,
)
from calls.facts_and_colours import Facts, facts_of
from calls.fold import fold_note
from calls.law import BRIEF, LAW, forbidden
from calls.notes import Statement
from calls.record import Call, Reason
from calls.rules.book import RuleBook
from calls.rules.matching_and_assignment import judge, judge_assignment
from calls.schedule.check_plan_and_budget import desk_check_obstacle
from calls.statement_folding import may_return
from calls.trail import Entry


class ActionState(StrEnum):
    """The state of an action. Only ``pending`` can still change."""

    PENDING = "pending"
    DONE = "done"
    HELD = "held"  # the law or the rules forbid it; the reasons say why
    SUPERSEDED = "superseded"  # a later statement replaced it
    REFUSED = "refused"  # it was sent, and the service refused it
    FAILED = "failed"  # a check was used and got no answer
    ABSENT = "absent"  # it was sent, and provably not applied; it is not sent again
    UNRESOLVED = "unresolved"  # it was sent, and a person has to find out whether it was applied


_MEANINGS = {
    "call_settled": (
        "the call has ended and is settled; a verification is still accepted for ten minutes after the end, "
        "a distrust for a day"
    ),
    "call_lost": (
        "the service does not know the call any more; if its queue or a push shows it again, or a person speaks about it "
        "once more, it is handled again"
    ),
    "call_unconfirmed": "the service never showed the call: neither in its queue nor when asked for it",
    "other_call_named": (
        "the service answers requests for this id with another call, and nothing confirms that both are the same: "
        "use that call's own voice id"
    ),
    "enrolled_before": (
        "it is recorded, but the voice was enrolled before: only the service's operator can take that back"
    ),
    "already_sent": "it was already sent for this call; the story shows the outcome",
    "caller_distrusted": "a person at the desk said that the caller cannot be trusted",
    "rules_ask_otherwise": "the rules in force decide otherwise for this call",
    "assigned_too_often": f"the call was assigned {MAX_ASSIGNS} times",
    "nothing_unresolved": (
        "nothing here waits for a person: no effect in doubt or refused, no enroll taken back, no open question"
    ),
    "effect_not_named": "the enroll and the reject are both unresolved: say which one the answer is about",
    "no_checks_left": "the call's 20 authentication checks are used up",
    "reserve_spent": "the checks reserved for people are used up",
    "already_decided": "the service makes no more checks: the voice is authenticated, enrolled or red",
}
MEANINGS = {**{article.name: article.meaning for article in LAW}, **_MEANINGS}
"""Every reason and its meaning."""

_STATES = {
    EffectState.APPLIED: ActionState.DONE,
    EffectState.CONFIRMED: ActionState.DONE,
    EffectState.REFUSED: ActionState.REFUSED,
    EffectState.ABSENT: ActionState.ABSENT,
    EffectState.UNRESOLVED: ActionState.UNRESOLVED,
    EffectState.TAKEN_BACK: ActionState.DONE,
}


@dataclass(frozen=True, slots=True)
class Told:
    """The state of an action. ``operator`` is the person who caused it. ``reasons`` are keys of ``MEANINGS``."""

    state: ActionState
    reasons: tuple[str, ...] = ()
    operator: str | None = None


PENDING = Told(ActionState.PENDING)

_NO_PROOF = {value: article.name for article in LAW for name, value in article.when if name == "validation_type"}
"""Validation types that establish no identity, with the article that says so."""

_LAST = 2**53


def foresee(call: Call, statement: Statement, book: RuleBook, now: datetime) -> Told:
    """Return the state that a statement would have by all that is known now. Nothing is written.

    It has no number yet, and its own clock may be hours behind Redis's, so it counts as later than all received ones.
    """
    heard, lines = fold_note(call, replace(statement, number=_LAST), now)
    return told(heard, lines, lines[0], book)


def line_of(trail: Iterable[Entry], wish: str) -> Entry | None:
    """Return the trail entry of an action's statement; None if it is not folded yet."""
    return next((line for line in trail if line.what == "said" and line.wish == wish), None)


def told(call: Call, trail: Sequence[Entry], line: Entry, book: RuleBook) -> Told:
    """Return the state of an action whose statement is in the trail.

    Args:
        call: The record, written with the entry or later.
        trail: The call's trail.
        line: The entry of the statement.
        book: The rules in force.
    """
    if call.reason is Reason.UNCONFIRMED:
        return Told(ActionState.HELD, ("other_call_named" if call.other_voice_id else "call_unconfirmed",))
    facts = facts_of(call, book.policies, lists=book.lists)
    match line.kind:
        case "assign":
            answer = _assigned(call, line, book, facts)
        case "verified":
            answer = _verified(call, line, book, facts)
        case "distrusted":
            answer = _effect_or_reasons(call, EffectKind.REJECT, book, facts)
        case "opted_out":
            answer = _opted_out(call)
        case "check":
            answer = _checked(call, trail, line, book)
        case _:
            answer = _resolved(call, trail, line)
    if answer.state is ActionState.PENDING and call.is_settled:
        return Told(ActionState.HELD, ("call_lost" if may_return(call) else "call_settled",))
    return answer


def _assigned(call: Call, line: Entry, book: RuleBook, facts: Facts) -> Told:
    effect, assignment = call.assign, judge_assignment(call, book, facts)
    if call.person_id == line.person_id and effect.state in ASSIGN_FAILED and not effect.person_stood:
        return Told(ActionState.DONE)  # somebody else has assigned the person since
    if effect.person_id == line.person_id and effect.state in _STATES and _is_answer_to(effect, line):
        return Told(_STATES[effect.state], operator=effect.operator)
    if assignment.person_id != line.person_id:
        return Told(ActionState.SUPERSEDED, operator=assignment.operator)
    if effect.state in {EffectState.SENT, EffectState.UNKNOWN}:
        return PENDING
    if not may_assign(call) and effect.state is not EffectState.INTENDED:
        return _held("assigned_too_often")
    return _held(*assignment.forbidden)


def _is_answer_to(effect: Effect, line: Entry) -> bool:
    """Tell whether a finished assign answers an action. One that failed before the action does not; it is retried."""
    if effect.state in DONE:
        return True
    return effect.state is not EffectState.ABSENT and effect.sent_at is not None and effect.sent_at >= line.at


def _verified(call: Call, line: Entry, book: RuleBook, facts: Facts) -> Told:
    if line.validation_type in _NO_PROOF:  # also after an enroll, which it cannot have caused
        return _held(_NO_PROOF[line.validation_type])
    effect, identity = call.enroll, call.identity
    is_about_us = effect.person_id == line.person_id
    if not is_about_us and (identity is None or identity.person_id != line.person_id):
        return Told(ActionState.SUPERSEDED, operator=identity.operator if identity else None)
    if not is_about_us and effect.state in DONE:
        return Told(ActionState.HELD, ("already_enrolled",), effect.operator)
    return _effect_or_reasons(call, EffectKind.ENROLL, book, facts)


def _effect_or_reasons(call: Call, kind: EffectKind, book: RuleBook, facts: Facts) -> Told:
    """Return the state of an effect that was begun. Otherwise return what prevents it."""
    effect = call.effect(kind)
    if effect.state in _STATES and not may_begin(kind, effect, call):
        return Told(_STATES[effect.state], operator=effect.operator)
    if _was_sent(effect):
        return PENDING
    reasons = forbidden(kind, facts, opt_in_required=book.require_opt_in)
    if "nobody_assigned" in reasons:  # then nobody can be the wrong person
        reasons = tuple(name for name in reasons if name != "verified_person_is_not_the_assigned")
    if not reasons and judge(facts, book, call.institution_key).asked.value != kind.value:
        contradicted = kind is EffectKind.ENROLL and facts.distrusted
        reasons = ("caller_distrusted" if contradicted else "rules_ask_otherwise",)
    return _held(*reasons)


def _was_sent(effect: Effect) -> bool:
    return effect.state in {EffectState.SENT, EffectState.UNKNOWN}


def _opted_out(call: Call) -> Told:
    """Return the state of an opt-out: it counts as soon as it is recorded, but takes no enroll back."""
    was_enrolled = call.enrolled_seen or call.enroll.state in DONE or _was_sent(call.enroll)
    return Told(ActionState.DONE, ("enrolled_before",) if was_enrolled else ())


def _checked(call: Call, trail: Sequence[Entry], line: Entry, book: RuleBook) -> Told:
    later = trail[trail.index(line) :]
    for entry in later:
        if entry.what in {"checked", "check_failed"}:
            return Told(ActionState.DONE if entry.what == "checked" else ActionState.FAILED, operator=entry.operator)
        if entry.what == "withdrawn" and entry.kind == "check":
            return _held(entry.because or "already_decided")
    obstacle = desk_check_obstacle(call, book.schedule, book.policies)
    return PENDING if obstacle is None else _held(obstacle)


def _resolved(call: Call, trail: Sequence[Entry], line: Entry) -> Told:
    """Return the state of a resolution. It applies when folded, or finds nothing to resolve; a later one may win."""
    later = trail[trail.index(line) :]
    closed = [entry for entry in later if entry.what == "established" and entry.operator is not None]
    ours = [entry for entry in closed if entry.operator == line.operator and entry.wish in {None, line.wish}]
    if ours:
        last = [entry for entry in closed if entry.kind == ours[-1].kind][-1]
        state = ActionState.DONE if last is ours[-1] else ActionState.SUPERSEDED
        return Told(state, operator=last.operator)
    doubts = unresolved(call)
    if doubts and line.asked is None:
        return PENDING if len(doubts) == 1 else _held("effect_not_named")
    closed_by = call.unenroll_closed_by or (call.asked.closed_by if call.asked is not None else None)
    if closed_by is not None and line.asked is None:
        return Told(ActionState.DONE, operator=closed_by)
    is_open = line.asked in doubts if line.asked else needs_person(call) or call.asked or refusals(call)
    return PENDING if is_open else _held("nothing_unresolved")


def _held(*reasons: str) -> Told:
    lasting = tuple(reason for reason in reasons if reason not in BRIEF)
    return Told(ActionState.HELD, lasting) if lasting else PENDING

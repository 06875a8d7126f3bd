"""Decides what a call needs next: one pure function of the record, the rules and the time, defined for every call.

The steps are tried in a fixed order. A settled call rests. Doubts about effects are cleared before anything new is
begun. Statements of people and the rules come before another check. Then the end is handled, then checks and reads;
else wait.
"""

from datetime import datetime, timedelta

from callkeeper.calls.context import Context
from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, EffectKind, EffectState
from callkeeper.calls.effect_resolution import (
    ASSIGN_FAILED,
    evidence,
    given_up,
    ignored,
    is_later,
    may_assign,
    may_begin,
    next_doubt_read,
    recheck,
    unresolved,
)
from callkeeper.calls.fact_derivation import begun_at, earlier_calls_of, facts_of
from callkeeper.calls.facts import Facts
from callkeeper.calls.informed_words import evidence_in, speaking
from callkeeper.calls.institutions import FOREIGN, UNKNOWN
from callkeeper.calls.record import Call, Phase
from callkeeper.calls.rules.assignment import Assignment, judge_assignment
from callkeeper.calls.rules.book import EFFECTS, Outcome, RuleBook
from callkeeper.calls.rules.matching import Verdict, asks_meanwhile, judge, next_turn, table
from callkeeper.calls.schedule.plan import automatic_left, must_read_first
from callkeeper.calls.schedule.reads import put_off, read_or_wait
from callkeeper.calls.settlement import age_out, close, confirm, is_endless, is_lost
from callkeeper.calls.steps import (
    Check,
    Decline,
    Deed,
    Establish,
    Intend,
    Read,
    Send,
    Step,
    Wait,
    Withdraw,
    WriteDecision,
    WriteFacts,
)
from callkeeper.calls.stop_rule import check_obstacle, desk_check_obstacle
from callkeeper.calls.trail import Entry

FRESH = timedelta(seconds=2)
"""Maximum age of the read directly before an effect."""

_MOST_HARMFUL_FIRST = (EffectKind.REJECT, EffectKind.ENROLL, EffectKind.ASSIGN)
_BY_RULES = _MOST_HARMFUL_FIRST[:2]

_ASSIGN_OPEN = frozenset({EffectState.NONE, EffectState.INTENDED, EffectState.ABSENT})
"""States of an assign from which we may assign without a new statement."""

FOREIGN_WAIT = timedelta(seconds=60)

UNKNOWN_WAIT = timedelta(seconds=2)
"""How often a call is looked at until the service has said whether its institution is active. It sends nothing."""

ENDLESS_READ_S = 600.0
"""How often a call is read that is listed for longer than calls are watched, in seconds."""

WATCH = Read("watch")
"""The read that looks for changes. Other reads are needed for the next step."""


def decide(call: Call, context: Context, book: RuleBook, now: datetime) -> Step:
    """Return the next step of a call."""
    if call.is_settled:
        return _rest(call, now)
    lost = is_lost(call, context, book, now)
    if call.life.phase is Phase.HINTED:
        return confirm(call, context, now, is_lost=lost)
    facts = facts_of(call, context.obstacles, book.policies, now, lists=book.lists)
    if context.obstacles.standing == FOREIGN:
        return _give_up_doubt(call, now) or (age_out(call, book, facts) if lost else Wait(now + FOREIGN_WAIT))
    if call.plan.needs_verifying and not lost:
        return read_or_wait(call, "verify", now)
    acted = (
        _clear_doubt(call, now)
        or (age_out(call, book, facts) if lost else None)
        or _assign(call, book, facts, now)
        or _apply_rules(call, book, facts, now)
    )
    if acted is not None:
        return acted
    step = (
        _check_as_asked(call, context, book)
        or close(call, context, book, facts, now)
        or _check_or_read(call, context, book, facts, now)
    )
    if call.seen.reading is None or (signature := facts.signature) == call.written.facts:
        return step
    changed = Entry(
        at=now,
        what="facts",
        facts=facts.as_dict(),
        earlier_calls=earlier_calls_of(call),
        policies=call.seen.reading.policies,
    )
    return WriteFacts(changed, signature, step)


def _rest(call: Call, now: datetime) -> Deed:
    """Handle a settled call, which is only claimed because of a note. A doubt merged into it needs a person."""
    for kind in (EffectKind.ENROLL, EffectKind.REJECT):
        if call.effect(kind).state in IN_DOUBT:
            return Establish(kind, EffectState.UNRESOLVED)
    return _shown_late(call, now) or recheck(call, now)


def _shown_late(call: Call, now: datetime) -> Deed | None:
    """Return that an unresolved enroll or reject was carried out after all, if stored details show it."""
    shown = (kind for kind in unresolved(call) if evidence(kind, call, now) is EffectState.CONFIRMED)
    return next((Establish(kind, EffectState.CONFIRMED) for kind in shown), None)


def _clear_doubt(call: Call, now: datetime) -> Deed | None:
    """Resolve an effect with an unknown outcome, or an assign that was ignored, before anything else is tried."""
    for kind in _MOST_HARMFUL_FIRST:
        effect = call.effect(kind)
        if effect.state not in IN_DOUBT:
            continue
        state = evidence(kind, call, now)
        if state is not None:
            return Establish(kind, state)
        due = next_doubt_read(effect, call, now)
        return Wait(due) if due > now else Read(f"{kind} in doubt")
    state = ignored(call)
    return Establish(EffectKind.ASSIGN, state) if state is not None else _shown_late(call, now)


def _give_up_doubt(call: Call, now: datetime) -> Deed | None:
    """Leave the doubts of a call that may not be read any more to a person, unless its institution comes back soon."""
    for kind in _MOST_HARMFUL_FIRST:
        effect = call.effect(kind)
        state = given_up(effect, now) if effect.state in IN_DOUBT else None
        if state is not None:
            return Establish(kind, state)
    return None


def _assign(call: Call, book: RuleBook, facts: Facts, now: datetime) -> Deed | None:
    """Assign if the rules or a person ask for it and the law allows it."""
    effect = call.ledger.assign
    if effect.state not in _ASSIGN_OPEN and call.statements.assign_wish is None:
        return None
    assignment = judge_assignment(call, book, facts)
    if effect.state is EffectState.INTENDED:
        return _assign_as_intended(call, assignment, now)
    return _begin_assign(call, assignment, facts, now)


def _assign_as_intended(call: Call, assignment: Assignment, now: datetime) -> Deed:
    """Send an intended assign once the call has just been seen free, or withdraw it if it is not wanted any more."""
    person = assignment.allowed_person
    if person is None or person != call.ledger.assign.person_id:
        return Withdraw(EffectKind.ASSIGN, ", ".join(assignment.forbidden) or "another person")
    is_free = is_confirmed_free(call, person, now)
    return Send(EffectKind.ASSIGN) if is_free else read_or_wait(call, "before assign", now)


def _begin_assign(call: Call, assignment: Assignment, facts: Facts, now: datetime) -> Deed | None:
    """Intend an assign, or write why nobody is assigned, if that is news."""
    effect, person = call.ledger.assign, assignment.allowed_person
    is_open = call.life.listed_at is not None and not facts.ended
    is_news = is_open and assignment.fingerprint != call.written.assignment
    # What the law holds back of a person's wish is told, whoever is assigned.
    is_held = assignment.operator is not None and person is None and assignment.person_id != effect.person_id
    if is_news and is_held:
        return _written_assignment(call, assignment, now)
    is_open_to_us = effect.state in {EffectState.NONE, EffectState.ABSENT} or _asks_anew(call, person)
    if not is_open_to_us or not may_assign(call) or (effect.retry_at is not None and now < effect.retry_at):
        return None
    if person is not None:
        return Intend(EffectKind.ASSIGN, person, None, assignment.operator, assignment)
    return _written_assignment(call, assignment, now) if is_news and not facts.assigned else None


def _asks_anew(call: Call, person_id: str | None) -> bool:
    """Tell whether a person asks for another assign than the finished one. The law is checked separately.

    It must be for another person, or for the same one if the assign failed.
    """
    wish, effect = call.statements.assign_wish, call.ledger.assign
    if wish is None or person_id is None or wish.person_id != person_id:
        return False
    if effect.state in ASSIGN_FAILED:
        return person_id != effect.person_id or is_later(wish, effect)
    return effect.state in DONE and person_id != effect.person_id


def is_confirmed_free(call: Call, person_id: str | None, now: datetime) -> bool:
    """Tell whether the queue or the details showed a moment ago that the call can be assigned to a person.

    Either nobody has claimed it and the record names nobody else, or the details were read since the assign was intended.
    """
    is_free = call.seen.person_id is None or (call.seen.person_id == person_id and not call.seen.core_username)
    if not is_free and not call.ledger.assign.was_read_since:
        return False
    seen = [
        at for at in (call.life.listed_at, call.seen.reading.read_at if call.seen.reading else None) if at is not None
    ]
    return bool(seen) and now - max(seen) <= FRESH


def _apply_rules(call: Call, book: RuleBook, facts: Facts, now: datetime) -> Deed | None:
    """Reject or enroll if a rule asks for it and the law allows it."""
    if call.seen.reading is None:
        return None
    verdict = judge(facts, book, call.institution_key)
    asked = EFFECTS.get(verdict.outcome)
    for kind in _BY_RULES:
        effect, wanted = call.effect(kind), asked is kind
        if effect.state is EffectState.INTENDED:
            if not wanted or not _same_effect(call, kind, verdict):
                return Withdraw(kind, ", ".join(verdict.forbidden) or f"now {verdict.outcome}: {verdict.rule}")
            if effect.was_read_since and now - call.seen.reading.read_at <= FRESH:
                return Send(kind)
            return read_or_wait(call, f"before {kind}", now)
        if wanted and may_begin(kind, effect, call):
            decision = _written_verdict(call, book, facts, verdict, now)
            despite = evidence_in(facts) if kind is EffectKind.ENROLL else ()
            return Intend(
                kind, call.seen.person_id, verdict.validation_type, _operator(call, kind), verdict, decision, despite
            )
    return _written_verdict(call, book, facts, verdict, now) if _is_news(call, book, facts, verdict) else None


def _is_news(call: Call, book: RuleBook, facts: Facts, verdict: Verdict) -> bool:
    """Tell whether a verdict that asks for no effect now is written: it is another one, or a question is answered by it."""
    is_asking, was_asked = verdict.outcome is Outcome.ASK, call.statements.asked is not None
    is_answered = was_asked and not is_asking and not _keeps_question(call, book, facts, verdict)
    is_about_more = not is_answered and _is_about_more(call, facts)
    is_new = is_answered or is_about_more or verdict.fingerprint != call.written.verdict
    # A person's statement clears the last verdict: what was decided after it is written in any case.
    return is_new and (
        call.written.verdict is None or bool(verdict.shadows) or is_asking or was_asked or not is_done(call)
    )


def _written_verdict(call: Call, book: RuleBook, facts: Facts, verdict: Verdict, now: datetime) -> WriteDecision:
    """Return the step that writes a verdict: its trail entry has the facts, the rule and what the law forbade."""
    entry = Entry(
        at=now,
        what="decided",
        kind=verdict.outcome,
        asked=verdict.asked,
        rule=verdict.rule,
        rules=book.digest,
        because=verdict.because,
        validation_type=verdict.validation_type,
        forbidden=verdict.forbidden,
        facts=facts.as_dict(),
        earlier_calls=earlier_calls_of(call),
        policies=call.seen.reading.policies if call.seen.reading else (),
        tried=table(facts, book, call.institution_key),
    )
    keeps_question = _keeps_question(call, book, facts, verdict)
    return WriteDecision(verdict, entry, facts.signature, keeps_question=keeps_question, evidence=speaking(facts))


def _keeps_question(call: Call, book: RuleBook, facts: Facts, verdict: Verdict) -> bool:
    """Tell whether an open question stays, because the law holds what would answer it, and a rule would still ask."""
    is_held = call.statements.asked is not None and bool(verdict.forbidden)
    return is_held and asks_meanwhile(facts, book, call.institution_key)


def _is_about_more(call: Call, facts: Facts) -> bool:
    """Tell whether a question has been asked, and something speaks against the caller that did not when it was."""
    asked = call.statements.asked
    return asked is not None and not set(speaking(facts)) <= set(asked.evidence)


def _written_assignment(call: Call, assignment: Assignment, now: datetime) -> WriteDecision:
    entry = Entry(
        at=now,
        what="decided",
        kind="hold",
        asked="assign",
        rules=assignment.rules,
        because=assignment.because,
        operator=assignment.operator,
        forbidden=assignment.forbidden,
        candidates=len(call.seen.candidates),
    )
    return WriteDecision(assignment, entry)


def _same_effect(call: Call, kind: EffectKind, verdict: Verdict) -> bool:
    """Tell whether the intention is still what is wanted, by the same rule and for the same reason, which is told."""
    effect = call.effect(kind)
    wanted = (call.seen.person_id, verdict.validation_type, _operator(call, kind), verdict.rule, verdict.because)
    return (effect.person_id, effect.validation_type, effect.operator, effect.rule, effect.because) == wanted


def is_done(call: Call) -> bool:
    """Tell whether an enroll or a reject is in force. Further verdicts about the same facts are then not written."""
    return call.ledger.enroll.state in DONE or call.ledger.reject.state in DONE or call.seen.unenrolled


def _operator(call: Call, kind: EffectKind) -> str | None:
    """Return the person whose statement an effect follows; None if only a rule asks for it."""
    if kind is EffectKind.REJECT:
        return call.statements.distrusted.operator if call.statements.distrusted else None
    return call.statements.identity.operator if call.statements.identity else None


def _check_or_read(call: Call, context: Context, book: RuleBook, facts: Facts, now: datetime) -> Deed:
    """Check if a check is due and useful; else read if a read is due; else wait for whichever comes first.

    While workers are late or busy, a due read waits. That helps at once; ``next_read`` helps only from the next read on.
    A call that does not end gets no checks, and a read every ten minutes.
    """
    obstacles, limit = context.obstacles, book.schedule.automatic_limit if facts.assigned else book.checks_unassigned
    does_not_end = is_endless(call, book, now)
    is_held = does_not_end or facts.paused_entirely or check_obstacle(call, obstacles, book.policies) is not None
    check_at = call.plan.next_check_at if not is_held and automatic_left(call, limit) > 0 else None
    if check_at is not None and check_at <= now:
        return read_or_wait(call, "before another check", now) if must_read_first(call) else Check()
    seldom_s = ENDLESS_READ_S if does_not_end else book.reads_decided_s
    read_at = put_off(call, context, call.plan.next_read_at or now, now, decided_s=seldom_s, is_endless=does_not_end)
    if read_at <= now:
        return WATCH
    turn_at = next_turn(book, begun_at(call), now, call.institution_key)
    told_at = now + UNKNOWN_WAIT if obstacles.standing == UNKNOWN else None
    held_until = (obstacles.effects_held_until, obstacles.standing_held_until, _assign_retry_at(call, now))
    return Wait(min([at for at in (read_at, check_at, turn_at, told_at, *held_until) if at is not None]))


def _assign_retry_at(call: Call, now: datetime) -> datetime | None:
    """Return when an assign that got 401 or 429 may be sent again, if that is in the future."""
    assign = call.ledger.assign
    is_ahead = assign.state is EffectState.ABSENT and assign.retry_at is not None and assign.retry_at > now
    return assign.retry_at if is_ahead else None


def _check_as_asked(call: Call, context: Context, book: RuleBook) -> Deed | None:
    """Make a check that a person asked for, or drop it if it must not be made now. It does not wait for other facts."""
    if call.statements.check_wish is None:
        return None
    obstacle = desk_check_obstacle(call, context.obstacles, book.schedule, book.policies)
    return Check(by_desk=True) if obstacle is None else Decline(obstacle)

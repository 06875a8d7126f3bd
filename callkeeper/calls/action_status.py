"""The state of an action: a person's statement at the desk, from when it is received to its outcome. Pure functions.

The state is not stored. The statement is in the trail under the action's id (the field ``wish``). The rest follows from
the record and from what a worker has decided since, which is in the trail too. So all processes give the same answer,
whatever rules they have and however often they are asked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, PERHAPS_DONE, EffectKind, EffectState
from callkeeper.calls.effect_resolution import (
    ASSIGN_FAILED,
    GIVEN_UP_BECAUSE,
    HELD_BACK,
    MAX_ASSIGNS,
    attention_reasons,
    may_assign,
    may_begin,
    unresolved,
)
from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.facts import Facts
from callkeeper.calls.institutions import FOREIGN
from callkeeper.calls.law import BRIEF, LAW, forbidden
from callkeeper.calls.member_evidence import is_rejected
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call, Mark, Reason
from callkeeper.calls.statement_folding import UNSEEN, may_return
from callkeeper.calls.trail import Entry
from callkeeper.service.errors import TokenLapsed


class ActionState(StrEnum):
    """The state of an action. Only ``pending`` and ``held`` can still change, until the call is settled."""

    PENDING = "pending"
    DONE = "done"
    HELD = "held"  # the law or the rules forbid it; the reasons say why
    SUPERSEDED = "superseded"  # a later statement replaced it
    REFUSED = "refused"  # it was sent, and the service refused it
    FAILED = "failed"  # a check was used and got no answer
    ABSENT = "absent"  # it was sent and not applied, as the service or a person says; it is not sent again
    UNRESOLVED = "unresolved"  # it was sent, and a person has to find out whether it was applied


_MEANINGS = {
    "call_settled": (
        "the call has ended and is settled; a verification is still accepted for ten minutes after the end, "
        "a distrust for a day"
    ),
    "call_lost": (
        "the service does not know the call any more, or did not list it for hours; if its queue or a push shows it again, "
        "or a person speaks about it once more, it is handled again"
    ),
    "call_unconfirmed": "the service never showed the call: neither in its queue nor when asked for it",
    "other_call_named": (
        "the service answers requests for this id with another call, and nothing confirms that both are the same: "
        "use that call's own voice id"
    ),
    "enrolled_before": (
        "it is recorded, but the voice was enrolled before: only the service's operator can take that back"
    ),
    "enrolled_since": (
        "the member was enrolled in another call since (a reject would take that back): to send it all the same, say it "
        "once more"
    ),
    "record_lost": (
        "Redis lost the record of the call, which has ended: somebody may have rejected the voice. Look at the service's "
        "record; to send it all the same, say it once more"
    ),
    "already_sent": "it was already sent for this call; the story shows the outcome",
    "caller_distrusted": "a person at the desk said that the caller cannot be trusted",
    "rules_ask_otherwise": "the rules in force decide otherwise for this call",
    "rule_in_shadow": (
        "the rule that would act on it only watches (it is in shadow): what it would have done is recorded, nothing is sent"
    ),
    "held_too_long": (
        "a pause, or the wait for the service to say that the institution is active, lasted until it could not be sent any "
        "more: an enroll counts for ten minutes after the end, a reject for a day. Nothing was sent"
    ),
    "voice_rejected": "a rejected voice is not enrolled, not rejected again, and not checked",
    "call_ended": "the call has ended: nobody is assigned, and no check is made",
    "nothing_to_withdraw": "nobody has said that of this call",
    "assigned_too_often": f"the call was assigned {MAX_ASSIGNS} times",
    "nothing_unresolved": (
        "nothing here waits for a person: no effect in doubt or refused, no enroll taken back, no open question"
    ),
    UNSEEN: "something that the page did not show needs a person here: look at it, then say it again",
    "effect_not_named": "the enroll and the reject are both unresolved: say which one the answer is about",
    "forbidden": "what is known of the caller forbids an enroll on any word: it is recorded, and nothing follows from it",
    "identity_unknown": (
        "the opt-in is recorded; it counts once the caller is established as the member, and nothing speaks against that"
    ),
    "no_checks_left": "the call's 20 authentication checks are used up",
    "reserve_spent": "the checks reserved for people are used up",
    "already_decided": "the service makes no more checks: the voice is authenticated, enrolled or red",
}
MEANINGS = {**{article.name: article.meaning for article in LAW}, **_MEANINGS}
"""Every reason and its meaning."""

_EFFECT_OF = {"assign": EffectKind.ASSIGN, "verified": EffectKind.ENROLL, "distrusted": EffectKind.REJECT}
"""What each statement that can be withdrawn may lead to."""

_UNSENT = frozenset({EffectState.NONE, EffectState.INTENDED, EffectState.ABSENT, EffectState.REFUSED})

_STATES = {
    EffectState.APPLIED: ActionState.DONE,
    EffectState.CONFIRMED: ActionState.DONE,
    EffectState.REFUSED: ActionState.REFUSED,
    EffectState.ABSENT: ActionState.ABSENT,
    EffectState.UNRESOLVED: ActionState.UNRESOLVED,
    EffectState.TAKEN_BACK: ActionState.DONE,
}


@dataclass(frozen=True, slots=True)
class ActionStatus:
    """The state of an action. ``operator`` caused it, ``because`` says why. ``reasons`` are keys of ``MEANINGS``.

    ``may_change`` tells whether a later answer may be another one: it is pending, or an effect is held and the call is not
    settled.
    """

    state: ActionState
    reasons: tuple[str, ...] = ()
    operator: str | None = None
    because: str | None = None
    may_change: bool = field(default=False, compare=False)

    @property
    def shortfall(self) -> str:
        """Return what kept the statement from doing what was meant; empty if it did, or if that is not known yet."""
        if self.state is not ActionState.HELD:
            why = f": {self.operator!r} took it back, because {self.because}" if self.because else ""
            return f"{_SHORTFALLS.get(self.state, '')}{why}"
        reasons = "; ".join(MEANINGS.get(reason, reason) for reason in self.reasons)
        return f"nothing has come of it: {reasons}"


_SHORTFALLS: Final = {
    ActionState.SUPERSEDED: "a later statement replaced it",
    ActionState.REFUSED: "the service refused it",
    ActionState.FAILED: "a check was used, but it got no answer",
    ActionState.ABSENT: "it was sent, and not applied: the service refused it, or a person has looked",
    ActionState.UNRESOLVED: "it was sent, but it is not known whether it was applied",
}


PENDING = ActionStatus(ActionState.PENDING, may_change=True)

_NO_PROOF = {value: article.name for article in LAW for name, value in article.when if name == "validation_type"}
"""Validation types that establish no identity, with the article that says so."""

_NOT_ALLOWED, _NOBODY = "institution_not_allowed", "identity_unknown"
_WAITING: Final = frozenset({_NOT_ALLOWED, _NOBODY})
"""Reasons of what is held until something else is known."""

_PASSING = frozenset({"paused", "paused_entirely", "standing_unconfirmed"})
"""Articles that forbid while something lasts, and the word waits for its end."""


def line_of(trail: Iterable[Entry], action_id: str) -> Entry | None:
    """Return the trail entry of an action's statement; None if it is not folded yet."""
    return next((line for line in trail if line.what == "said" and line.wish == action_id), None)


def statuses_of(call: Call, trail: Sequence[Entry]) -> dict[str, ActionStatus]:
    """Return the state of every action whose statement is in the trail, by its id."""
    return {line.wish: status_of(call, trail, line) for line in trail if line.what == "said" and line.wish}


def status_of(call: Call, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    """Return the state of an action whose statement is in the trail.

    The rules' part of the answer is what a worker has decided since, and recorded: the process that asks may have
    others. ``call`` was written with the entry or later.
    """
    if line.forbidden:  # it was refused when it was said
        return ActionStatus(ActionState.HELD, (line.because or "forbidden",))
    answer = _by_kind(call, trail, line)
    if answer.state not in {ActionState.PENDING, ActionState.HELD}:
        return answer
    withdrawal = _withdrawal_of(line, trail)
    if withdrawal is not None:
        return ActionStatus(ActionState.SUPERSEDED, operator=withdrawal.operator, because=withdrawal.because)
    if not call.is_settled:
        is_lasting = answer.state is ActionState.HELD and not _WAITING.issuperset(answer.reasons)
        return replace(answer, may_change=line.kind in _EFFECT_OF or not is_lasting)
    if answer.state is ActionState.PENDING:
        return _held(_why_over(call, line))
    lasting = tuple(reason for reason in answer.reasons if reason not in _PASSING)
    return replace(answer, reasons=lasting or ("held_too_long",)) if answer.reasons else answer


def _why_over(call: Call, line: Entry) -> str:
    """Return why nothing more is done for a settled call."""
    if may_return(call):
        return "call_lost"
    return "voice_rejected" if line.kind in {"verified", "distrusted"} and is_rejected(call) else "call_settled"


def _by_kind(call: Call, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    if call.life.reason is Reason.UNCONFIRMED:
        return _held("other_call_named" if call.names.other_voice_id else "call_unconfirmed")
    answer = _answer(call, trail, line)
    is_foreign = call.last_claim.standing == FOREIGN and line.kind != "resolved"
    kind = _EFFECT_OF.get(line.kind or "")
    is_in_doubt = answer == PENDING and kind is not None and call.effect(kind).state in IN_DOUBT
    is_open = answer.state in {ActionState.PENDING, ActionState.HELD} and not is_in_doubt
    if is_foreign and is_open:
        return _held(_NOT_ALLOWED)
    is_elsewhere = call.life.is_unlisted and call.names.other_voice_id is not None
    return _held("other_call_named") if is_elsewhere and is_open and answer == PENDING else answer


def _answer(call: Call, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    match line.kind:
        case "assign":
            return _assigned(call, trail, line)
        case "verified":
            return _verified(call, trail, line)
        case "distrusted":
            return _effect_or_reasons(call, EffectKind.REJECT, trail, line)
        case "opted_out":
            return _opted_out(call)
        case "opted_in":
            return _opted_in(call)
        case "check":
            return _checked(trail, line)
        case "withdrawn":
            return _withdrawn(call, trail, line)
        case _:
            return _resolved(call, trail, line)


def _withdrawal_of(line: Entry, trail: Sequence[Entry]) -> Entry | None:
    """Return the entry of a later statement that took this one back."""
    later = trail[trail.index(line) + 1 :]
    return next((one for one in later if one.kind == "withdrawn" and one.asked == line.kind), None)


def _assigned(call: Call, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    effect, wish = call.ledger.assign, call.statements.assign_wish
    if call.seen.person_id == line.person_id and effect.state in ASSIGN_FAILED and not effect.person_stood:
        return ActionStatus(ActionState.DONE)  # somebody else has assigned the person since
    if effect.person_id == line.person_id and effect.state in _STATES and _is_answer_to(call, trail, line):
        return ActionStatus(_STATES[effect.state], operator=effect.operator)
    if wish is not None and wish.person_id != line.person_id:
        return ActionStatus(ActionState.SUPERSEDED, operator=wish.operator)
    if effect.state in IN_DOUBT:
        return PENDING
    if not may_assign(call) and effect.state is not EffectState.INTENDED:
        return _held("assigned_too_often")
    written = next((one.facts for one in reversed(trail) if one.facts is not None), None)
    facts = facts_of(call, call.last_claim, Policies()) if written is None else Facts.from_dict(written)
    return _held(*forbidden(EffectKind.ASSIGN, facts, person_stays=line.person_id == call.seen.person_id))


def _is_answer_to(call: Call, trail: Sequence[Entry], line: Entry) -> bool:
    """Tell whether a finished assign answers an action.

    One that was sent before the action does only if it succeeded and its person still stood there then, or does now.
    """
    effect = call.ledger.assign
    shown = (
        one.person_id for one in reversed(trail[: trail.index(line)]) if one.what in _SHOWS_MEMBER and one.person_id
    )
    if effect.state in DONE and line.person_id in {call.seen.person_id, next(shown, None)}:
        return True
    return effect.state is not EffectState.ABSENT and effect.sent_at is not None and effect.sent_at >= line.at


_SHOWS_MEMBER: Final = frozenset({"read", "checked"})
"""Entries that show who stands on the call."""


def _verified(call: Call, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    if line.validation_type in _NO_PROOF:  # also after an enroll, which it cannot have caused
        return _held(_NO_PROOF[line.validation_type])
    effect, identity = call.ledger.enroll, call.statements.identity
    is_about_us = effect.person_id == line.person_id
    if not is_about_us and identity is not None and identity.person_id != line.person_id:
        return ActionStatus(ActionState.SUPERSEDED, operator=identity.operator)
    if not is_about_us and effect.state in DONE:
        return ActionStatus(ActionState.HELD, ("already_enrolled",), effect.operator)
    if not is_about_us:
        return _prevented(EffectKind.ENROLL, trail, line)
    return _effect_or_reasons(call, EffectKind.ENROLL, trail, line)


def _effect_or_reasons(call: Call, kind: EffectKind, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    """Return the state of an effect that was begun. Otherwise return what prevents it, by the last decision since."""
    effect = call.effect(kind)
    was_asked_since = effect.sent_at is None or effect.sent_at < line.at
    is_undone = effect.state is EffectState.TAKEN_BACK and was_asked_since
    may_follow = may_begin(kind, effect, call) and (was_asked_since or effect.state not in DONE)
    is_unsent = was_asked_since and effect.state in _UNSENT and _withdrawal_of(line, trail) is not None
    if effect.state in _STATES and not (is_undone or may_follow or is_unsent):
        if effect.refusal == HELD_BACK:
            return _prevented(kind, trail, line)
        if effect.refusal in GIVEN_UP_BECAUSE:
            return _held(GIVEN_UP_BECAUSE[effect.refusal])
        return ActionStatus(_STATES[effect.state], operator=effect.operator)
    return PENDING if effect.state in IN_DOUBT else _prevented(kind, trail, line)


def _prevented(kind: EffectKind, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    """Return what prevents an effect, by the last decision since a statement."""
    decided = [one for one in trail[trail.index(line) :] if one.what == "decided" and one.asked != EffectKind.ASSIGN]
    return _held(*_against(kind, decided[-1])) if decided else PENDING


def _against(kind: EffectKind, decision: Entry) -> tuple[str, ...]:
    """Return what a decision has against an effect: the law, or else that the rules ask for something else."""
    facts = Facts.from_dict(decision.facts or {})
    reasons = decision.forbidden if decision.asked == kind else forbidden(kind, facts)
    if "nobody_assigned" in reasons:  # then nobody can be the wrong person
        reasons = tuple(name for name in reasons if name != "verified_person_is_not_the_assigned")
    if decision.asked == kind:
        return reasons
    if reasons := tuple(name for name in reasons if name not in _PASSING):  # nothing waits for the end of these
        return reasons
    if kind is EffectKind.ENROLL and facts.distrusted:
        return ("caller_distrusted",)
    is_shadowed = any(rule.result == "shadowed" and rule.then == kind for rule in decision.tried)
    return ("rule_in_shadow" if is_shadowed else "rules_ask_otherwise",)


def _opted_out(call: Call) -> ActionStatus:
    """Return the state of an opt-out: it counts as soon as it is recorded, but takes no enroll back."""
    enroll = call.ledger.enroll
    may_be_enrolled = enroll.state in PERHAPS_DONE or enroll.state is EffectState.UNRESOLVED
    was_enrolled = call.seen.enrolled or may_be_enrolled
    return ActionStatus(ActionState.DONE, ("enrolled_before",) if was_enrolled else ())


def _opted_in(call: Call) -> ActionStatus:
    """Return the state of an opt-in: it takes an opt-out back once its mark is stored, which is the member's."""
    seen, kept, earlier = call.seen, call.ledger.kept_marks, call.seen.earlier_marks
    if seen.opted_out and not seen.opted_in_last:
        return _held("opted_out")
    is_out = seen.opted_out or (earlier is not None and Mark.OPTED_OUT in earlier.kinds)
    counts = not is_out or (kept is not None and Mark.OPTED_IN in kept.kinds)
    return ActionStatus(ActionState.DONE) if counts else _held(_NOBODY)


def _checked(trail: Sequence[Entry], line: Entry) -> ActionStatus:
    for entry in trail[trail.index(line) :]:
        if entry.what == "checked":
            return ActionStatus(ActionState.DONE, operator=entry.operator)
        if entry.what == "check_failed" and not _is_repeated(entry):
            return ActionStatus(ActionState.FAILED, operator=entry.operator)
        if entry.what == "withdrawn" and entry.kind == "check":
            return _held(entry.because or "already_decided")
    return PENDING


def _is_repeated(failed: Entry) -> bool:
    """Tell whether a check that failed is made again for the person who asked for it, after a new login."""
    return failed.because == TokenLapsed.__name__ and failed.operator is None


def _withdrawn(call: Call, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    """Return the state of a withdrawal. It counts as soon as it is recorded, but takes back nothing that was sent."""
    before = trail[: trail.index(line)]
    if not any(one.what == "said" and one.kind == line.asked and not one.forbidden for one in before):
        return _held("nothing_to_withdraw")
    effect = call.effect(_EFFECT_OF[line.asked or ""])
    was_sent = effect.sent_at is not None and effect.sent_at <= line.at and effect.state not in _UNSENT
    return _held("already_sent") if was_sent else ActionStatus(ActionState.DONE)


def _resolved(call: Call, trail: Sequence[Entry], line: Entry) -> ActionStatus:
    """Return the state of a resolution. It applies when folded, or finds nothing to resolve; a later one may win."""
    if line.because == UNSEEN:
        return _held(UNSEEN)
    later = trail[trail.index(line) :]
    closed = [entry for entry in later if entry.what == "established" and entry.operator is not None]
    ours = [entry for entry in closed if entry.operator == line.operator and entry.wish in {None, line.wish}]
    if ours:
        last = [entry for entry in closed if entry.kind == ours[-1].kind][-1]
        state = ActionState.DONE if last is ours[-1] else ActionState.SUPERSEDED
        return ActionStatus(state, operator=last.operator)
    doubts = unresolved(call)
    if doubts and line.asked is None:
        return PENDING if len(doubts) == 1 else _held("effect_not_named")
    said = call.statements
    asked_closed_by = said.asked.closed_by if said.asked is not None else None
    seen_by = (said.unenroll_closed_by, said.opt_out_closed_by, asked_closed_by)
    closed_by = next(filter(None, seen_by), None)
    if closed_by is not None and line.asked is None:
        return ActionStatus(ActionState.DONE, operator=closed_by)
    is_open = line.asked in doubts if line.asked else attention_reasons(call)
    return PENDING if is_open else _held("nothing_unresolved")


def _held(*reasons: str) -> ActionStatus:
    lasting = tuple(reason for reason in reasons if reason not in BRIEF)
    return ActionStatus(ActionState.HELD, lasting) if lasting else PENDING

"""Folds people's statements into a call's record. Pure: a record and a statement in, a record and trail entries out.

Of two statements about the same, the one that Redis received later counts, in whatever order they are folded.
"""

from datetime import datetime, timedelta
from typing import Any, assert_never

from msgspec.structs import replace

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import (
    DOUBTFUL,
    attention_reasons,
    enroll_trouble,
    failures,
    fold_rejected,
    is_enrolled_despite_opt_out,
    may_begin,
    needs_of,
    other_callers,
    unresolved,
)
from callkeeper.calls.fact_derivation import facts_of, has_real_voice_id
from callkeeper.calls.facts import VERIFIED_AFTER_END
from callkeeper.calls.informed_words import EVIDENCE, evidence_in
from callkeeper.calls.member_evidence import is_enrolled, named_by_desk
from callkeeper.calls.notes import (
    AssignWish,
    CheckWish,
    Distrusted,
    OptedIn,
    OptedOut,
    Resolved,
    Statement,
    Verified,
    Withdrawn,
    statement_order,
)
from callkeeper.calls.record import Call, CallStatement, Identity, Phase, Reason, with_effect
from callkeeper.calls.rules.book import Outcome, RuleBook
from callkeeper.calls.rules.matching import may_act
from callkeeper.calls.trail import Entry
from callkeeper.service.enumerations import CallStatus

HEARD_AFTER_END = timedelta(days=1)
"""How long after the end of a call a person's distrust leads to a reject. Assumed (`effects-after-end`): the service
accepts one then."""


def fold_statement(call: Call, note: Statement, now: datetime) -> tuple[Call, list[Entry]]:
    """Fold a statement into the record. The record keeps that there was one, so that such a hint is not dropped."""
    call = _with(call, were_made=True)
    if not isinstance(note, Resolved):
        call = _read_soon(call, now)
    said, said_at = call.statements, received_at(note, now)
    match note:
        case Verified(refused=refused) if refused:
            entry = _entry(note, now, "verified", person_id=note.person_id, validation_type=note.validation_type)
            code = "evidence_against" if refused[0] in EVIDENCE else "forbidden"
            return call, [replace(entry, because=code, forbidden=refused)]
        case Verified():
            identity = Identity(
                person_id=note.person_id,
                validation_type=note.validation_type,
                by_desk=True,
                established_at=said_at,
                operator=note.operator,
                remark=note.remark,
                number=note.number,
                despite=note.despite,
            )
            entry = _entry(note, now, "verified", person_id=note.person_id, validation_type=note.validation_type)
            entry = replace(entry, despite=note.despite)
            call = _to_be_judged(with_identity(call, stronger(said.identity, identity)))
            return reopened(call) if may_reopen(call, EffectKind.ENROLL, said_at) else call, [entry]
        case Distrusted():
            absent = "" if call.seen.reading is not None else None
            word = _word(note, reason=note.reason, member=named_by_desk(call) or call.seen.person_id or absent)
            entry = _entry(note, now, "distrusted", because=note.reason or None, member=word.member or None)
            call = _to_be_judged(_with(call, distrusted=later(said.distrusted, word)))
            return reopened_by_distrust(call) if may_reopen(call, EffectKind.REJECT, said_at) else call, [entry]
        case AssignWish():
            word = _word(note, person_id=note.person_id)
            entry = _entry(note, now, "assign", person_id=note.person_id)
            return _with(call, assign_wish=later(said.assign_wish, word)), [entry]
        case Withdrawn():
            last = max(said.withdrawn.get(note.what, 0), statement_order(note.number, note.said_at))
            call = _to_be_judged(_with(call, withdrawn={**said.withdrawn, note.what: last}))
            return without_withdrawn(call), [_entry(note, now, "withdrawn", asked=note.what, because=note.reason)]
        case OptedOut():
            call = _to_be_judged(replace(call, seen=replace(call.seen, opted_out=True, opted_in_last=False)))
            return call, [_entry(note, now, "opted_out")]
        case OptedIn():
            reading = call.seen.reading
            # An opt-out that a read has shown since may be the later one.
            is_last = reading is None or reading.status != CallStatus.VOICE_OPT_OUT or reading.read_at < said_at
            call = _to_be_judged(replace(call, seen=replace(call.seen, opted_in=True, opted_in_last=is_last)))
            entry = _entry(note, now, "opted_in", because=note.remark)
            return reopened(call) if may_reopen(call, EffectKind.ENROLL, said_at) else call, [entry]
        case CheckWish():
            return _with(call, check_wish=later(said.check_wish, _word(note))), [_entry(note, now, "check")]
        case Resolved():
            return _resolved(call, note, now)
        case _:
            assert_never(note)


def received_at(note: Statement | CallStatement, now: datetime) -> datetime:
    """Return when Redis received a statement. It is compared with the end; the clock of a web process may be wrong."""
    return min(instant(note.number), now) if note.number else note.said_at


def _with(call: Call, **said: Any) -> Call:
    """Return a call with statements changed."""
    return replace(call, statements=replace(call.statements, **said))


def with_identity(call: Call, identity: Identity | None) -> Call:
    """Return a call with another identity. What the service established is kept, to count again."""
    shown = _shown_identity(call)
    return _with(call, identity=identity, shown_identity=None if identity is shown else shown)


def _shown_identity(call: Call) -> Identity | None:
    """Return the identity that the service established, whether it counts or not."""
    known = call.statements.identity
    return known if known is not None and not known.by_desk else call.statements.shown_identity


def _to_be_judged(call: Call) -> Call:
    """Return a call whose next verdict is written in any case."""
    return replace(call, written=replace(call.written, verdict=None))


def may_reopen(call: Call, kind: EffectKind, said_at: datetime) -> bool:
    """Tell whether a person's word, said at ``said_at``, still leads to an enroll or a reject of a settled call.

    It needs the voice id that the service itself uses, because reject-voice resolves no other.
    """
    if not call.is_settled or call.life.ended_at is None or not has_real_voice_id(call):
        return False
    is_rejected = call.seen.rejected and not call.seen.rejected_by_rule_only
    is_over = is_rejected and not (kind is EffectKind.REJECT and is_enrolled(call))
    if is_over or not may_begin(kind, call.effect(kind), call):
        return False
    if kind is EffectKind.REJECT:
        return said_at - call.life.ended_at <= HEARD_AFTER_END
    return said_at - call.life.ended_at <= VERIFIED_AFTER_END and call.ledger.reject.state is not EffectState.UNRESOLVED


def may_return(call: Call) -> bool:
    """Tell whether a call was settled without an end: the service did not know it any more, or did not list it for long.

    Its queue, a push, or a person's statement reopens it: it is read once. An expired hint was never known, so a push does
    not.
    """
    return call.is_settled and call.life.ended_at is None and call.life.reason is not Reason.UNCONFIRMED


def _read_soon(call: Call, now: datetime) -> Call:
    """Return a call that a person has just spoken about: it is read at once, also if it was lost or is about to be."""
    if may_return(call):
        call = returned(call)
    elif call.life.reason is Reason.UNCONFIRMED:
        call = hinted_anew(call)
    elif call.life.not_found_since is not None and not call.is_settled:
        call = replace(call, plan=replace(call.plan, reads_failed=0))
    return replace(call, statements=replace(call.statements, heard_at=now))


def returned(call: Call) -> Call:
    """Return a lost call as a live one. Stored details are read before anything else is done for it."""
    return replace(
        call,
        life=replace(call.life, phase=Phase.LIVE, reason=None, settled_at=None, not_found_since=None),
        plan=replace(call.plan, needs_verifying=True, reads_failed=0),
    )


def hinted_anew(call: Call) -> Call:
    """Return an unconfirmed call as a hint. It is confirmed by the next listing or read that shows it."""
    return replace(
        call, life=replace(call.life, phase=Phase.HINTED, reason=None, settled_at=None, not_found_since=None)
    )


def reopened(call: Call) -> Call:
    """Return a settled call as one that has ended and must be settled again."""
    return replace(
        call,
        life=replace(
            call.life, phase=Phase.ENDED, reason=None, settled_at=None, is_reopened=True, not_found_since=None
        ),
        plan=replace(call.plan, reads_failed=0),
    )


def reopened_by_distrust(call: Call) -> Call:
    """Return a settled call that a distrust reopens.

    If it was settled without an enroll, a person's earlier verification does not enroll the voice when this is taken back.
    """
    return reopened(call if is_enrolled(call) else with_identity(call, _shown_identity(call)))


def _word(
    note: Distrusted | AssignWish | CheckWish,
    *,
    person_id: str | None = None,
    reason: str = "",
    member: str | None = None,
) -> CallStatement:
    return CallStatement(
        operator=note.operator,
        said_at=note.said_at,
        person_id=person_id,
        reason=reason,
        number=note.number,
        member=member,
    )


def without_withdrawn(call: Call) -> Call:
    """Return a call without the statements that were taken back. What was already sent stays."""
    identity = call.statements.identity
    is_taken = (
        identity is not None and identity.by_desk and _is_taken(call, identity, identity.established_at, "verified")
    )
    distrusted, wish = call.statements.distrusted, call.statements.assign_wish
    return replace(
        call,
        statements=replace(
            call.statements,
            identity=call.statements.shown_identity if is_taken else identity,
            shown_identity=None if is_taken else call.statements.shown_identity,
            distrusted=None
            if distrusted and _is_taken(call, distrusted, distrusted.said_at, "distrusted")
            else distrusted,
            assign_wish=None if wish and _is_taken(call, wish, wish.said_at, "assign") else wish,
        ),
    )


def _is_taken(call: Call, word: CallStatement | Identity, said_at: datetime, kind: str) -> bool:
    return statement_order(word.number, said_at) <= call.statements.withdrawn.get(kind, 0)


def as_heard(before: Call, call: Call, book: RuleBook) -> Call:
    """Return a call with the statements that were folded into ``before`` as they count under the rules in force.

    Those on which no live rule can act are marked. A word overrules no evidence that nobody had when it was said.
    """
    key, identity, distrusted = call.institution_key, call.statements.identity, call.statements.distrusted
    if identity is not None and identity is not before.statements.identity:
        known = evidence_in(facts_of(before, before.last_claim, book.policies)) if identity.despite else ()
        named = tuple([name for name in identity.despite if name in known])
        is_shadow = not may_act(book, Outcome.ENROLL, key)
        identity = replace(identity, in_shadow=identity.in_shadow or is_shadow, despite=named)
    if (
        distrusted is not None
        and distrusted is not before.statements.distrusted
        and not may_act(book, Outcome.REJECT, key)
    ):
        distrusted = replace(distrusted, in_shadow=True)
    return replace(call, statements=replace(call.statements, identity=identity, distrusted=distrusted))


def later(one: CallStatement | None, other: CallStatement | None) -> CallStatement | None:
    """Return the statement that Redis received later; the first of two equal ones."""
    if one is None or other is None:
        return one or other
    before = statement_order(one.number, one.said_at)
    return one if before >= statement_order(other.number, other.said_at) else other


def stronger(one: Identity | None, other: Identity | None) -> Identity | None:
    """Return the identity that counts: the desk's before the service's, else the one that was stated later."""
    if one is None or other is None:
        return one or other
    if one.by_desk is not other.by_desk:
        return one if one.by_desk else other
    before = statement_order(one.number, one.established_at)
    return one if before >= statement_order(other.number, other.established_at) else other


def _entry(
    note: Statement,
    now: datetime,
    kind: str,
    *,
    person_id: str | None = None,
    validation_type: str | None = None,
    because: str | None = None,
    asked: str | None = None,
    member: str | None = None,
) -> Entry:
    return Entry(
        at=now,
        what="said",
        kind=kind,
        operator=note.operator,
        token=note.token,
        wish=note.wish,
        person_id=person_id,
        validation_type=validation_type,
        because=because,
        asked=asked,
        member=member,
    )


def _resolved(call: Call, note: Resolved, now: datetime) -> tuple[Call, list[Entry]]:
    """Fold a person's answer. It closes one effect in doubt; if there is none, it marks as seen what needs a person."""
    if note.effect is None and note.seen is not None and needs_of(call) not in {"", note.seen}:
        return call, [_entry(note, now, "resolved", because=UNSEEN)]
    state = EffectState.CONFIRMED if note.applied else EffectState.ABSENT
    order = statement_order(note.number, note.said_at)
    is_repeated = any(call.effect(kind).resolved == order for kind in EffectKind)
    kind = _answered(call, note.effect, order)
    is_only_seen = kind is None and note.effect is None and not unresolved(call)
    answer = "seen" if is_only_seen else "applied" if note.applied else "absent"
    entries = [_entry(note, now, "resolved", because=answer, asked=note.effect)]
    if kind is not None and call.effect(kind).state is not state:
        call = with_effect(call, kind, replace(call.effect(kind), state=state, retry_at=None, resolved=order))
        if kind is EffectKind.REJECT and note.applied:
            call = fold_rejected(call, now)
        line = _seen(note, now, kind, state)
        entries.append(line if note.applied else replace(line, because=NOT_APPLIED))
    if kind is not None or note.effect is not None or unresolved(call) or is_repeated:
        return call, entries
    for kind in failures(call):
        call = with_effect(call, kind, replace(call.effect(kind), resolved=order))
        entries.append(_seen(note, now, kind, call.effect(kind).state))
    if enroll_trouble(call):
        others = other_callers(call)
        seen = replace(call.statements, unenroll_closed_by=note.operator, unenroll_closed_members=others)
        call = replace(call, statements=seen)
    if is_enrolled_despite_opt_out(call):
        call = _with(call, opt_out_closed_by=note.operator)
    if (question := call.statements.open_question) is not None:
        closed = replace(question, closed_by=note.operator)
        call = replace(call, statements=replace(call.statements, asked=closed))
    return call, entries


UNSEEN = "unseen"
"""The reason in the trail of a person's "I have seen it" that closed nothing: the page did not show all that it would."""
NOT_APPLIED = "a person looked at the service, and it was not applied"


def _answered(call: Call, named: str | None, order: int) -> EffectKind | None:
    """Return the effect that an answer is about: the only unresolved one, or the only one that it can correct.

    A later answer corrects an earlier one, but one that may mean what else needs a person corrects nothing.
    """
    doubts = unresolved(call)
    may_correct = named is not None or not attention_reasons(call)
    corrects = [kind for kind in DOUBTFUL if _is_corrected(call.effect(kind), order)] if may_correct else []
    kinds = [kind for kind in (*doubts, *corrects) if named in {None, kind.value}]
    return kinds[0] if len(kinds) == 1 else None


def _is_corrected(effect: Effect, order: int) -> bool:
    is_answered = effect.state in {EffectState.CONFIRMED, EffectState.ABSENT}  # not a refusal that was seen
    return is_answered and 0 < effect.resolved < order


def _seen(note: Resolved, now: datetime, kind: EffectKind, state: EffectState) -> Entry:
    return Entry(at=now, what="established", kind=kind, state=state, operator=note.operator, wish=note.wish)

"""Merges two records of one call, part by part. Pure functions.

One call can have two records: under its voice id and its alternate id, or under another spelling that the desk used.
Nothing that either record knows is lost: what was seen stays seen, the later of two statements counts, the more advanced
ledger wins, and doubts stay doubts.
"""

from datetime import datetime

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.fact_derivation import is_about
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call, CallStatements, Ledger, Life, Names, Phase, Plan
from callkeeper.calls.seen_folding import joined
from callkeeper.calls.statement_folding import (
    later,
    may_reopen,
    may_return,
    received_at,
    reopened,
    reopened_by_distrust,
    returned,
    stronger,
    without_withdrawn,
)
from callkeeper.service.endpoints import is_same_id, spelling_of

_RANK = (
    EffectState.NONE,
    EffectState.INTENDED,
    EffectState.REFUSED,
    EffectState.ABSENT,
    EffectState.APPLIED,
    EffectState.SENT,
    EffectState.UNKNOWN,
    EffectState.CONFIRMED,
    EffectState.UNRESOLVED,
    EffectState.TAKEN_BACK,
)
"""What is known of an effect, from the least harmful to ignore to the most: a request that failed under one id says
nothing of one that succeeded under the other. What was sent and then withdrawn counts as an intention."""


def continued(call_id: CallId, other: Call) -> Call:
    """Return the first record under an id, with the contents of the same call's record under another id."""
    return replace(
        other,
        institution_key=call_id.institution_key,
        voice_id=call_id.voice_id,
        names=Names(
            spelled=other.names.spelled or spelling_of(other.voice_id),
            alternate_id=_other_id(call_id.voice_id, other),
            phone_number=other.names.phone_number,
        ),
        life=replace(other.life, listed_at=None),
        seen=replace(other.seen, reading=None),
        plan=replace(other.plan, checks_moved=0),
    )


def merged(call: Call, other: Call, now: datetime) -> Call:
    """Return a record with the contents of another record of the same call, which is then removed.

    A person's newer statement reopens a settled call.
    """
    call = returned(call) if may_return(call) else call
    before = call.statements
    names = replace(
        call.names,
        alternate_id=call.names.alternate_id or _other_id(call.voice_id, other),
        spelled=call.names.spelled or spelling_of(other.voice_id),
        phone_number=call.names.phone_number or other.names.phone_number,
    )
    plan = _plan(call.plan, other.plan)
    call = replace(
        call,
        revision=max(call.revision, other.revision),
        names=names,
        life=_life(call.life, other.life),
        seen=joined(call, other),
        plan=plan if call.is_settled else replace(plan, next_read_at=now),
        ledger=_ledger(call.ledger, other.ledger),
        statements=_statements(before, other.statements),
    )
    call = without_withdrawn(call)
    beside = tuple(
        [one for one in call.ledger.beside if not is_about(call, one)]
    )  # each record may have found the other
    call = replace(call, ledger=replace(call.ledger, beside=beside))
    identity, distrusted = call.statements.identity, call.statements.distrusted
    word = distrusted if distrusted != before.distrusted else None
    is_distrusted = word is not None and may_reopen(call, EffectKind.REJECT, received_at(word, now))
    if is_distrusted and identity == before.identity:
        return reopened_by_distrust(call)
    verified_at = identity.established_at if identity is not None and identity != before.identity else None
    if is_distrusted or (verified_at is not None and may_reopen(call, EffectKind.ENROLL, verified_at)):
        return reopened(call)
    return call


def _other_id(voice_id: str, other: Call) -> str | None:
    """Return the alternate id that the removed record gives: its own id, unless that is only another spelling."""
    return other.names.alternate_id if is_same_id(voice_id, other.voice_id) else other.voice_id


def _life(ours: Life, theirs: Life) -> Life:
    return replace(
        ours,
        phase=Phase.LIVE if ours.phase is Phase.HINTED else ours.phase,
        absent_at=min(ours.absent_at, theirs.absent_at) if ours.absent_at and theirs.absent_at else None,
        started_at=ours.started_at or theirs.started_at,
        was_live=ours.was_live or theirs.was_live,
        end_hinted_at=ours.end_hinted_at or theirs.end_hinted_at,
    )


def _plan(ours: Plan, theirs: Plan) -> Plan:
    """Join two plans. The checks used are added up by the store, which knows what was counted before."""
    return replace(
        ours,
        watch_from=ours.watch_from or theirs.watch_from,
        next_check_at=ours.next_check_at or theirs.next_check_at,
        checks_by_desk=max(ours.checks_by_desk, theirs.checks_by_desk),
        is_age_unknown=ours.is_age_unknown or theirs.is_age_unknown,
        recheck_from=ours.recheck_from or theirs.recheck_from,
    )


def _ledger(ours: Ledger, theirs: Ledger) -> Ledger:
    advanced = {kind: max(ours.of(kind), theirs.of(kind), key=_weight) for kind in EffectKind}
    marks = [one for one in (ours.kept_marks, theirs.kept_marks) if one is not None]
    kinds = tuple(dict.fromkeys(kind for one in marks for kind in one.kinds))
    return replace(
        ours,
        kept_marks=replace(marks[0], kinds=kinds) if marks else None,
        marks_before=(*ours.marks_before, *theirs.marks_before, *marks[1:]),
        marked_numbers=tuple(dict.fromkeys((*ours.marked_numbers, *theirs.marked_numbers))),
        assigned_person_id=ours.assigned_person_id or theirs.assigned_person_id,
        assigned_as=ours.assigned_as or theirs.assigned_as,
        enrolled_for=ours.enrolled_for or theirs.enrolled_for,
        established_for=ours.established_for or theirs.established_for,
        beside=tuple(dict.fromkeys((*ours.beside, *theirs.beside))),
        rejected_for=ours.rejected_for or theirs.rejected_for,
        **advanced,
    )


def _weight(effect: Effect) -> tuple[int, int]:
    is_withdrawn = effect.state is EffectState.NONE and effect.arrived > 0
    return _RANK.index(EffectState.INTENDED if is_withdrawn else effect.state), effect.arrived


def _statements(ours: CallStatements, theirs: CallStatements) -> CallStatements:
    kinds = {**ours.withdrawn, **theirs.withdrawn}
    asked = ours.open_question or theirs.open_question or ours.asked or theirs.asked
    return replace(
        ours,
        were_made=ours.were_made or theirs.were_made,
        heard_at=max((at for at in (ours.heard_at, theirs.heard_at) if at is not None), default=None),
        identity=stronger(ours.identity, theirs.identity),
        shown_identity=ours.shown_identity or theirs.shown_identity,
        distrusted=later(ours.distrusted, theirs.distrusted),
        assign_wish=later(ours.assign_wish, theirs.assign_wish),
        check_wish=later(ours.check_wish, theirs.check_wish),
        withdrawn={kind: max(ours.withdrawn.get(kind, 0), theirs.withdrawn.get(kind, 0)) for kind in kinds},
        asked=asked,
        opt_out_closed_by=ours.opt_out_closed_by or theirs.opt_out_closed_by,
        unenroll_closed_by=ours.unenroll_closed_by or theirs.unenroll_closed_by,
        unenroll_closed_members=(ours if ours.unenroll_closed_by else theirs).unenroll_closed_members,
    )

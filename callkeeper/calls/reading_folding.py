"""Keeps what decisions need of the service's record of a call, and folds it into ours. Pure functions."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from callkeeper.calls.assign_folding import asked_anew, with_assign_shown
from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.calls.effect_resolution import fold_unenrolled
from callkeeper.calls.fact_derivation import signs_of
from callkeeper.calls.member_evidence import is_assigned, named_by_desk
from callkeeper.calls.policies import canonical_policy
from callkeeper.calls.record import Call, CallStatements, Identity, Phase, Reading, with_effect
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.schedule.plan import begin_watch
from callkeeper.calls.seen_folding import with_answered_check, with_reading
from callkeeper.calls.settlement import believed_end
from callkeeper.calls.statuses import ESTABLISHES
from callkeeper.service import PhoneCall
from callkeeper.service.endpoints import canonical_id, is_same_id
from callkeeper.service.enumerations import CallStatus
from callkeeper.service.phone_calls import ResearchCase
from callkeeper.service.secret import plain_words

FOUND_LATE = timedelta(seconds=15)
"""If the first read comes later than this after a call was not there yet, it may have had another member before."""

MOST_TEXT = 200
"""How many characters are kept of a name that the institution has given."""


def reading_of(phone_call: PhoneCall, now: datetime) -> Reading:
    """Return what decisions may need of a call's record. Spec: Phone call record."""
    case, error = phone_call.research_case, phone_call.voice_authentication_error
    return Reading(
        read_at=now,
        voice_id=canonical_id(phone_call.voice_id) if phone_call.voice_id else None,
        person_id=phone_call.person_id or None,
        core_username=phone_call.core_username or None,
        status=phone_call.status,
        policies=policies_of(phone_call),
        has_ended=phone_call.call_ended,
        is_voice_verified=phone_call.is_voice_verified,
        is_voice_mismatch=phone_call.is_voice_mismatch,
        is_high_risk_device=phone_call.is_high_risk_device,
        is_voice_enrolled=phone_call.is_voice_enrolled,
        was_voice_enrolled_now=phone_call.successful_voice_enrollment,
        is_verified=phone_call.is_verified,
        is_enrolled=phone_call.is_enrolled,
        is_account_enrolled=phone_call.is_account_enrolled,
        is_behavior_enrolled=phone_call.is_behavior_enrolled,
        is_device_enrolled=phone_call.is_device_enrolled,
        research_status=(case.research_status or None) if case else None,
        research_voice_id=_call_of(case, phone_call),
        has_failed_feedback=phone_call.has_failed_feedback,
        validation_rule=(phone_call.validation_rule_name or "")[:MOST_TEXT] or None,
        has_voice_match_rule=phone_call.has_voice_match_validation_rule,
        provider_error=plain_words(error) or None if error else None,
        verification_questions=len(phone_call.verification_questions),
        updated_at=phone_call.updated_at,
        created_at=phone_call.created_at,
    )


def _call_of(case: ResearchCase | None, phone_call: PhoneCall) -> str | None:
    """Return the id of the call that a case is about: this call's own, if the case gives its alternate id."""
    if case is None or not case.voice_id:
        return None
    is_this = any(is_same_id(case.voice_id, one) for one in phone_call.alternate_ids)
    return canonical_id(phone_call.voice_id if is_this and phone_call.voice_id else case.voice_id)


def policies_of(phone_call: PhoneCall) -> tuple[str, ...]:
    """Return the names of the policies applied to the call, in the service's order."""
    return () if phone_call.meta_data is None else tuple(map(canonical_policy, phone_call.meta_data.vendor_policies))


def fold_reading(call: Call, reading: Reading, book: RuleBook, now: datetime) -> Call:
    """Fold what the service's record says into ours. Facts that were seen once are remembered for the whole call.

    ``reading`` must be about this call: it names this id, or none.
    """
    before, life, ended_at = call, call.life, believed_end(call, reading, now)
    call = replace(
        call,
        names=replace(
            call.names,
            is_confirmed=call.names.is_confirmed or reading.voice_id == call.voice_id,
            other_voice_id=None,
        ),
        life=replace(
            life,
            phase=Phase.LIVE if life.phase is Phase.HINTED else life.phase,
            not_found_since=None,
            was_live=life.was_live or ended_at is None,
        ),
        seen=with_reading(call, reading, book.policies, ended_at=life.ended_at or ended_at),
        plan=replace(call.plan, reads_failed=0, needs_verifying=False),
        statements=_established(call, reading, now),
        written=replace(call.written, held_back=None),
    )
    if call.seen.opted_in_last:  # whoever opts out after that is another reason to look
        call = replace(call, statements=replace(call.statements, opt_out_closed_by=None))
    call = _distrusted_as_whom(asked_anew(before, call))
    call = with_assign_shown(fold_unenrolled(before, call, reading), reading.person_id)
    for kind in EffectKind:
        effect = call.effect(kind)
        if effect.state is EffectState.INTENDED:
            call = with_effect(call, kind, replace(effect, was_read_since=True))
    if ended_at is not None:
        phase = call.life.phase if call.is_settled else Phase.ENDED
        changed_at = life.changed_at_end if life.ended_at is not None else _ended_by(before.seen.reading, reading)
        call = replace(call, life=replace(call.life, phase=phase, ended_at=ended_at, changed_at_end=changed_at))
    elif call.is_settled:
        return call
    elif _is_end_taken_back(call):
        life = replace(call.life, phase=Phase.LIVE, ended_at=None, changed_at_end=None)
        call = replace(call, life=life, seen=replace(call.seen, final_since=None))
    elif call.seen.person_id is not None:
        call = begin_watch(call, book.schedule, now, now)
    elif book.checks_unassigned and call.plan.next_check_at is None:
        check_at = book.schedule.next_slot(life.first_seen_at or now, now)
        call = replace(call, plan=replace(call.plan, next_check_at=check_at))
    return call


def fold_check(call: Call, check: int, reading: Reading) -> Call:
    """Record what the answer of one check showed, for whom it was made, and whether the voice can have been compared.

    The voice is not compared after the end, nor before somebody has assigned the member: only an assign correlates the
    account, and the service may have filled in the only match (`callkeeper.calls.rules.assignment`).
    """
    can_tell = call.life.ended_at is None and call.seen.person_id is not None and is_assigned(call)
    return replace(call, seen=with_answered_check(call.seen, check, reading, signs_of(reading), can_tell=can_tell))


def _ended_by(last: Reading | None, reading: Reading) -> datetime | None:
    """Return when a call had ended at the latest, by the service's clock; None if the record does not tell.

    Its last change tells, if that is the end and not an earlier activity: ``callEnded`` may move nothing by itself. Assumed
    (`activity-moves-updated`): the activity that is the end changes ``updatedDateUtc``.
    """
    is_newest = reading.status == CallStatus.CALL_ENDED and (last is None or last.updated_at != reading.updated_at)
    return reading.updated_at if is_newest else None


def _is_end_taken_back(call: Call) -> bool:
    """Tell whether details take back an end that they have shown.

    Then one answer was wrong, or only one leg of the call had ended. But a status that came after the end may hide it. So
    an end that was pushed too, or of a call that the queue does not list any more, stays.
    """
    life = call.life
    return life.ended_at is not None and life.end_hinted_at is None and not (life.is_unlisted or life.is_reopened)


def _established(call: Call, reading: Reading, now: datetime) -> CallStatements:
    """Return the statements with the identity that the service establishes.

    If a person at the desk has established one, the service's is kept apart from it, as ``shown_identity``.
    """
    said = call.statements
    place = "shown_identity" if said.identity is not None and said.identity.by_desk else "identity"
    known: Identity | None = getattr(said, place)
    identity = _identity(call, known, reading, now)
    return said if identity is known else replace(said, **{place: identity})


def _identity(call: Call, known: Identity | None, reading: Reading, now: datetime) -> Identity | None:
    """Return the identity that the service has established: ``known``, or what a new status establishes.

    One that comes after the end does not replace what was established in time.

    Assumed (`verified-before-end`): a status that the first read after the end shows was written before the end.
    """
    validation_type = ESTABLISHES.get(CallStatus(reading.status)) if reading.status in ESTABLISHES else None
    shown = call.seen.reading
    is_old = shown is not None and shown.status == reading.status
    if validation_type is None or is_old or (known is not None and call.life.ended_at is not None):
        return known
    ended_at = believed_end(call, reading, now)
    return Identity(
        person_id=_member_verified(call, reading),
        validation_type=validation_type,
        by_desk=False,
        established_at=min(reading.read_at, ended_at) if ended_at and call.life.ended_at is None else reading.read_at,
    )


def _member_verified(call: Call, reading: Reading) -> str:
    """Return the member whom a new status is about; "" if that is not certain.

    If the member has changed since the read before, the passcode can be either member's. What the first read shows beside a
    member of our own assign may be older than that assign. If details have never named anybody, the queue's member counts.
    """
    shown, member, known = call.seen.reading, reading.person_id, call.seen.person_id
    named = shown.person_id if shown is not None else None
    is_ours = member is not None and call.ledger.assigned_person_id == member
    if shown is None:
        may_be_older = is_ours or _may_have_changed(call, reading.read_at)
    elif member is None:
        may_be_older = call.seen.was_named or named is not None
    else:
        may_be_older = member != named and not (named is None and is_ours)
    stands_there = member or known
    return stands_there or "" if known in {None, stands_there} and not may_be_older else ""


def _may_have_changed(call: Call, first_read_at: datetime) -> bool:
    """Tell whether somebody else may have stood on the call before its first read."""
    absent_at = call.life.was_absent_at
    return absent_at is None or first_read_at - absent_at > FOUND_LATE


def _distrusted_as_whom(call: Call) -> Call:
    """Return a call whose distrust names its member. One that was said before the first read is of whom that read shows."""
    word = call.statements.distrusted
    if word is None or word.member is not None:
        return call
    member = named_by_desk(call) or call.seen.person_id or ""
    return replace(call, statements=replace(call.statements, distrusted=replace(word, member=member)))

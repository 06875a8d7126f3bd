"""Folds notes and readings into a call's record. Pure functions: record and fact in, record and trail entries out.

``reading_of`` keeps what decisions need of the service's record of a call, and drops the rest of the personal data.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import first_doubt, fold_member_rejected, fold_unenrolled
from callkeeper.calls.facts import MANUAL_GREEN, Colour, is_named_by_service, signs_of
from callkeeper.calls.notes import Listed, MemberRejected, Merged, Note, Pushed, Unlisted
from callkeeper.calls.record import Call, Identity, Phase, Reading, Reason, with_effect
from callkeeper.calls.redis_restart import charge_if_assigned
from callkeeper.calls.rules.assignment import is_free
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.schedule.plan import begin_watch
from callkeeper.calls.settlement import SETTLE_AFTER, believed_end
from callkeeper.calls.statement_folding import (
    fold_statement,
    later,
    may_reopen,
    may_return,
    reopened,
    returned,
    stronger,
    without_withdrawn,
)
from callkeeper.calls.statuses import ESTABLISHES, REJECTED, Status
from callkeeper.calls.store.keys import CallId
from callkeeper.calls.trail import Entry
from callkeeper.service import PhoneCall
from callkeeper.service.endpoints import canonical_id, is_same_id, spelling_of
from callkeeper.service.secret import plain_words

PUSH_READ_GAP = timedelta(seconds=1)
"""Stored details are read at most this often because of pushed ends."""

_RANK = list(EffectState)


def new_call(call_id: CallId, notes: Iterable[Note], now: datetime) -> Call:
    """Start a record: from another record that was merged into it, else empty."""
    for note in notes:
        if isinstance(note, Merged):
            return replace(
                note.call,
                voice_id=call_id.voice_id,
                alternate_id=_other_id(call_id.voice_id, note.call),
                spelled=note.call.spelled or spelling_of(note.call.voice_id),
                checks_moved=0,
                assigned_id=None,
                reading=None,
                listed_at=None,
                is_confirmed=False,
                other_voice_id=None,
            )
    return Call(institution_key=call_id.institution_key, voice_id=call_id.voice_id, first_seen_at=now)


def _other_id(voice_id: str, merged: Call) -> str | None:
    """Return the alternate id that a merged record gives: its own id, unless that is only another spelling."""
    return merged.alternate_id if is_same_id(voice_id, merged.voice_id) else merged.voice_id


def fold_note(call: Call, note: Note, now: datetime) -> tuple[Call, list[Entry]]:
    """Fold one note into the record. Folding it twice changes nothing more."""
    match note:
        case Pushed():
            return _pushed(call, note, now)
        case Listed():
            return _listed(call, note, now)
        case Unlisted():
            if call.is_settled or call.is_unlisted or _is_old(note, call):
                return call, []
            return replace(call, is_unlisted=True, next_read_at=now), [Entry(at=now, what="unlisted")]
        case Merged():
            return _merged(call, note, now)
        case MemberRejected():
            return fold_member_rejected(call, now), []
        case _:
            call, lines = fold_statement(call, note, now)
            return (without_withdrawn(call) if call.withdrawn else call), lines


def _pushed(call: Call, note: Pushed, now: datetime) -> tuple[Call, list[Entry]]:
    call = returned(call) if may_return(call) else call
    recorded_at = min(instant(note.recorded_ms), now) if note.recorded_ms else now
    entry = Entry(
        at=recorded_at,
        what="pushed",
        kind="end" if note.has_ended else "start",
        event_id=note.event_id,
    )
    call = replace(
        call,
        alternate_id=call.alternate_id or note.alternate_id,
        phone_number=call.phone_number or note.phone_number,
        hinted_at=call.hinted_at or recorded_at,
        spelled=call.spelled if is_named_by_service(call) else note.spelled,
    )
    if note.has_ended and not call.is_settled:
        last = call.reading.read_at if call.reading else now - PUSH_READ_GAP
        call = replace(call, end_hinted_at=now, next_read_at=max(now, last + PUSH_READ_GAP))
    return call, [entry]


def _listed(call: Call, note: Listed, now: datetime) -> tuple[Call, list[Entry]]:
    if call.reason is Reason.UNCONFIRMED:
        call = replace(call, phase=Phase.HINTED, reason=None, settled_at=None)
    if _is_old(note, call):
        return call, []
    call = returned(call) if may_return(call) else call
    if call.is_settled:
        return call, []
    call = replace(
        call,
        phase=Phase.LIVE if call.phase is Phase.HINTED else call.phase,
        listed_at=min(note.listed_at, now),
        started_at=note.started_at or call.started_at,
        phone_number=note.phone_number or call.phone_number,
        person_id=note.person_id or call.person_id,
        core_username=note.core_username or call.core_username,
        candidates=note.candidates,
        is_unlisted=False,
        spelled=note.spelled,
        not_found_since=None if call.phase is Phase.HINTED else call.not_found_since,
    )
    entry = Entry(
        at=now,
        what="listed",
        person_id=note.person_id,
        candidates=len(note.candidates),
        operator=note.core_username,
    )
    return call, [entry]


def _is_old(note: Listed | Unlisted, call: Call) -> bool:
    """Tell whether a later look at the queue was already folded: the note came late, or twice."""
    return call.listed_at is not None and note.listed_at < call.listed_at


def _merged(call: Call, note: Merged, now: datetime) -> tuple[Call, list[Entry]]:
    """Take over the contents of the other record. The more advanced ledger wins, and doubts stay doubts."""
    call = returned(call) if may_return(call) else call
    other, distrusted, identity = note.call, call.distrusted, call.identity
    is_other_person = call.answered_for is not None and other.answered_for not in {None, call.answered_for}
    for kind in EffectKind:
        theirs = other.effect(kind)
        if _RANK.index(theirs.state) > _RANK.index(call.effect(kind).state):
            call = with_effect(call, kind, theirs)
    call = replace(
        call,
        alternate_id=call.alternate_id or _other_id(call.voice_id, other),
        spelled=call.spelled or spelling_of(other.voice_id),
        phase=Phase.LIVE if call.phase is Phase.HINTED else call.phase,
        person_id=call.person_id or other.person_id,
        assigned_person_id=call.assigned_person_id or other.assigned_person_id,
        assigned_as=call.assigned_as or other.assigned_as,
        started_at=call.started_at or other.started_at,
        phone_number=call.phone_number or other.phone_number,
        candidates=call.candidates or other.candidates,
        watch_from=call.watch_from or other.watch_from,
        checks_by_desk=max(call.checks_by_desk, other.checks_by_desk),
        history=call.history.joined(other.history),
        answered_for=call.answered_for if call.answered_for is not None else other.answered_for,
        unusable_answers=call.unusable_answers
        | (other.history.answered if is_other_person else other.unusable_answers),
        asked=call.asked or other.asked,
        checks_if_assigned=max(call.checks_if_assigned, other.checks_if_assigned),
        is_age_unknown=call.is_age_unknown or other.is_age_unknown,
        next_check_at=call.next_check_at or other.next_check_at,
        identity=stronger(call.identity, other.identity),
        distrusted=later(call.distrusted, other.distrusted),
        assign_wish=later(call.assign_wish, other.assign_wish),
        withdrawn=_latest(call.withdrawn, other.withdrawn),
        check_wish=later(call.check_wish, other.check_wish),
        heard_at=max((at for at in (call.heard_at, other.heard_at) if at is not None), default=None),
        has_statements=call.has_statements or other.has_statements,
        core_username=call.core_username or other.core_username,
        authenticated_seen=call.authenticated_seen or other.authenticated_seen,
        full_authentication_seen=call.full_authentication_seen or other.full_authentication_seen,
        opted_in_seen=call.opted_in_seen or other.opted_in_seen,
        mismatch_seen=call.mismatch_seen or other.mismatch_seen,
        risky_device_seen=call.risky_device_seen or other.risky_device_seen,
        red_seen=call.red_seen or other.red_seen,
        pending_seen=call.pending_seen or other.pending_seen,
        rejected_seen=call.rejected_seen or other.rejected_seen,
        rejected_by_rule_only=all(one.rejected_by_rule_only for one in (call, other) if one.rejected_seen)
        and (call.rejected_seen or other.rejected_seen),
        enrolled_seen=call.enrolled_seen or other.enrolled_seen,
        unenrolled_seen=call.unenrolled_seen or other.unenrolled_seen,
        opted_out_seen=call.opted_out_seen or other.opted_out_seen,
        end_hinted_at=call.end_hinted_at or other.end_hinted_at,
        next_read_at=call.next_read_at if call.is_settled else now,
    )
    call = without_withdrawn(call)
    is_distrusted = call.distrusted != distrusted and may_reopen(call, EffectKind.REJECT, now)
    verified_at = call.identity.established_at if call.identity is not None and call.identity != identity else None
    if is_distrusted or (verified_at is not None and may_reopen(call, EffectKind.ENROLL, verified_at)):
        call = reopened(call)
    return call, [Entry(at=now, what="merged", voice_id=other.voice_id)]


def _latest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {kind: max(one.get(kind, 0), other.get(kind, 0)) for kind in {**one, **other}}


MOST_TEXT = 200
"""How many characters are kept of a name that the institution has given."""


def reading_of(phone_call: PhoneCall, now: datetime) -> Reading:
    """Return what decisions may need of a call's record.

    Spec: Phone call record.
    """
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
        research_voice_id=canonical_id(case.voice_id) if case and case.voice_id else None,
        validation_rule=(phone_call.validation_rule_name or "")[:MOST_TEXT] or None,
        has_voice_match_rule=phone_call.has_voice_match_validation_rule,
        provider_error=plain_words(error) or None if error else None,
        verification_questions=len(phone_call.verification_questions),
        updated_at=phone_call.updated_at,
        created_at=phone_call.created_at,
    )


def policies_of(phone_call: PhoneCall) -> tuple[str, ...]:
    """Return the names of the policies applied to the call, in the service's order."""
    return () if phone_call.meta_data is None else phone_call.meta_data.vendor_policies


def fold_reading(call: Call, reading: Reading, book: RuleBook, now: datetime) -> Call:
    """Fold what the service's record says into ours. Facts that were seen once are remembered for the whole call.

    ``reading`` must be about this call: it names this id, or none.
    """
    status = reading.status
    before, previous = call, call.reading.status if call.reading else None
    by_us = call.assign.person_id if call.assign.state in DONE else None
    call = replace(
        call,
        held_back=None,
        phase=Phase.LIVE if call.phase is Phase.HINTED else call.phase,
        reading=reading,
        final_since=_final_since(call, reading, now),
        is_confirmed=call.is_confirmed or reading.voice_id == call.voice_id,
        other_voice_id=None,
        person_id=reading.person_id or by_us or call.person_id,
        core_username=reading.core_username or call.core_username,
        authenticated_seen=call.authenticated_seen or _is_authenticated(call, reading),
        full_authentication_seen=call.full_authentication_seen or status == Status.FULL_AUTHENTICATION,
        rejected_seen=call.rejected_seen or status in REJECTED,
        rejected_by_rule_only=status != Status.REJECT_CALLER_VOICE
        and (call.rejected_by_rule_only or (status == Status.REJECT_BY_RULE and not call.rejected_seen)),
        enrolled_seen=call.enrolled_seen or status == Status.ACCEPT_CALLER_VOICE or MANUAL_GREEN in reading.policies,
        opted_out_seen=call.opted_out_seen or status == Status.OPT_OUT,
        opted_in_seen=call.opted_in_seen or status == Status.OPT_IN,
        mismatch_seen=call.mismatch_seen or status == Status.MISMATCH or reading.is_voice_mismatch,
        risky_device_seen=call.risky_device_seen or reading.is_high_risk_device,
        red_seen=call.red_seen or Colour.RED in book.policies.colours(reading.policies),
        pending_seen=call.pending_seen or status == Status.PENDING,
        identity=_identity(call, reading, previous, now),
        reads_failed=0,
        not_found_since=None,
        needs_verifying=False,
    )
    call = fold_unenrolled(before, call, reading)
    for kind in EffectKind:
        effect = call.effect(kind)
        if effect.state is EffectState.INTENDED:
            call = with_effect(call, kind, replace(effect, was_read_since=True))
        elif effect.state in IN_DOUBT:
            call = with_effect(call, kind, replace(effect, doubted_at=first_doubt(effect, reading)))
    ended_at = believed_end(call, reading, now)
    if ended_at is not None:
        phase = call.phase if call.is_settled else Phase.ENDED
        call = replace(call, phase=phase, end_seen_at=ended_at)
    elif call.is_settled:
        return call
    elif call.person_id is not None and not _may_still_be_assigned(call, before, book):
        call = _watched(call, book, now, was_free=_was_assigned_by_us(call.assign, reading))
    elif book.checks_unassigned and call.next_check_at is None:
        call = replace(call, next_check_at=book.schedule.next_slot(call.first_seen_at or now, now))
    return call


def _final_since(before: Call, reading: Reading, now: datetime) -> datetime | None:
    """Return since when reads after the end have shown the same policies and signs; None before the end.

    A read within ``SETTLE_AFTER`` of the end begins nothing: the provider's analysis comes with the end or after it.
    """
    ended_at = before.end_seen_at or believed_end(before, reading, now)
    if ended_at is None:
        return None
    shown, since = before.reading, before.final_since
    if shown is None or since is None or since > reading.read_at or since < ended_at + SETTLE_AFTER:
        return reading.read_at
    is_same = (shown.policies, signs_of(shown)) == (reading.policies, signs_of(reading))
    return since if is_same else reading.read_at


def _watched(call: Call, book: RuleBook, now: datetime, *, was_free: bool) -> Call:
    """Begin the watch of a call that has a person. ``was_free``: nobody was, before our assign.

    Otherwise a record that Redis lost may have checked the call as an assigned one. Those checks count as spent.
    """
    if call.watch_from is not None:
        return call
    if was_free or not call.checks_if_assigned:
        return begin_watch(replace(call, checks_if_assigned=0), book.schedule, now, now)
    charged = charge_if_assigned(call, book.schedule)
    return begin_watch(charged, book.schedule, min(now, call.first_seen_at or now), now)


def _may_still_be_assigned(call: Call, before: Call, book: RuleBook) -> bool:
    """Tell whether it is open if a lost record can have checked the call for the person whom the service has filled in.

    If our assign succeeds, none can have (``_was_free``). Rules assign at once, or when the queue names the candidates.
    """
    if not call.checks_if_assigned or call.assign.state is not EffectState.NONE:
        return False
    if call.candidates:
        return is_free(call, book)
    shown, listed_at = before.reading, call.listed_at
    is_listed_since = shown is not None and shown.person_id and listed_at is not None and listed_at >= shown.read_at
    return book.assign.automatic and not call.core_username and not is_listed_since


def _was_assigned_by_us(assign: Effect, reading: Reading) -> bool:
    """Tell whether we assigned the person, and nobody was assigned before."""
    is_ours = assign.person_id is not None and assign.person_id == reading.person_id
    return is_ours and _was_free(assign) and assign.attempts > assign.unsent


def _was_free(assign: Effect) -> bool:
    """Tell whether no lost record can have checked the call as an assigned one before this assign.

    Where rules assign, a lost record would have assigned the person who stands there before it made a check.
    """
    return not assign.person_stood or assign.operator is None


def fold_check(call: Call, check: int, reading: Reading, signs: tuple[str, ...]) -> Call:
    """Record what the answer of one check showed, for whom it was made, and whether it came after the end."""
    after_end = 1 << (check - 1) if call.end_seen_at is not None else 0
    return replace(
        call,
        history=call.history.with_answer(check, reading.policies, signs),
        answered_for=call.person_id or "",
        unusable_answers=call.all_unusable_answers | after_end,
    )


def _is_authenticated(call: Call, reading: Reading) -> bool:
    """Tell whether the voice led to FullAuthentication: not our enroll, nor anybody else's."""
    by_hand = call.enroll.state in DONE or call.enroll.state in IN_DOUBT or call.enrolled_seen
    by_voice = reading.status == Status.FULL_AUTHENTICATION and reading.is_voice_verified
    return by_voice and not by_hand and MANUAL_GREEN not in reading.policies


def _identity(call: Call, reading: Reading, previous: str | None, now: datetime) -> Identity | None:
    """Return the identity that the service's status establishes, for the person assigned when it first appeared.

    One that comes later does not replace what was established in time.

    Assumed (`verified-before-end`): a status that the first read after the end shows was written before the end.
    """
    validation_type = ESTABLISHES.get(Status(reading.status)) if reading.status in ESTABLISHES else None
    known = call.identity
    is_kept = known is not None and (known.by_desk or previous == reading.status or call.end_seen_at is not None)
    if validation_type is None or is_kept:
        return known
    ended_at = believed_end(call, reading, now)
    return Identity(
        person_id=reading.person_id or "",
        validation_type=validation_type,
        by_desk=False,
        established_at=min(reading.read_at, ended_at) if ended_at and call.end_seen_at is None else reading.read_at,
    )


def assigned(call: Call, book: RuleBook, now: datetime) -> Call:
    """Start watching a call that was just assigned, and remember that we assigned this person."""
    person_id = call.assign.person_id
    call = replace(
        call,
        person_id=person_id,
        assigned_person_id=person_id,
        assigned_as=call.assign.requested_by,
    )
    return _watched(call, book, now, was_free=_was_free(call.assign))

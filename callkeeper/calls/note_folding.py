"""Folds notes into a call's record. Pure functions: record and note in, record and trail entries out."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from callkeeper.calls.assign_folding import assigned_to, with_assign_shown
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.effect_resolution import fold_member_rejected
from callkeeper.calls.fact_derivation import is_about, is_named_by_service, naming_other_call
from callkeeper.calls.item_names import CallId
from callkeeper.calls.law import SAME_MEMBER_LIVE, sentence_of
from callkeeper.calls.merging import continued, merged
from callkeeper.calls.notes import Listed, MemberRejected, Merged, Note, Pushed, SameMember, Unlisted
from callkeeper.calls.record import Asked, Call, Life, Phase, Reason
from callkeeper.calls.statement_folding import fold_statement, hinted_anew, may_return, returned, without_withdrawn
from callkeeper.calls.trail import Entry

PUSH_READ_GAP = timedelta(seconds=1)
"""Stored details are read at most this often because of pushed ends."""


def new_call(call_id: CallId, notes: Iterable[Note], now: datetime) -> Call:
    """Start a record: from another record that was merged into it, else empty."""
    for note in notes:
        if isinstance(note, Merged):
            return continued(call_id, note.call)
    return Call(institution_key=call_id.institution_key, voice_id=call_id.voice_id, life=Life(first_seen_at=now))


def fold_note(call: Call, note: Note, now: datetime) -> tuple[Call, list[Entry]]:
    """Fold one note into the record. Folding it twice changes nothing more."""
    match note:
        case Pushed():
            return _pushed(call, note, now)
        case Listed():
            return _listed(call, note, now)
        case Unlisted():
            if call.is_settled or call.life.is_unlisted or _is_old(note, call):
                return call, []
            return replace(
                call, life=replace(call.life, is_unlisted=True), plan=replace(call.plan, next_read_at=now)
            ), [Entry(at=now, what="unlisted")]
        case Merged():
            return merged(call, note.call, now), [Entry(at=now, what="merged", voice_id=note.call.voice_id)]
        case MemberRejected():
            return fold_member_rejected(call, now), []
        case SameMember():
            return fold_beside(call, (*call.ledger.beside, note.voice_id), now)
        case _:
            call, lines = fold_statement(call, note, now)
            return (without_withdrawn(call) if call.statements.withdrawn else call), lines


def fold_beside(call: Call, voice_ids: Iterable[str], now: datetime) -> tuple[Call, list[Entry]]:
    """Record the calls at the same time whose callers are the same member. Of a settled call a person is asked at once."""
    others = tuple(dict.fromkeys([one for one in voice_ids if not is_about(call, one)]))
    if set(others) == set(call.ledger.beside):
        return call, []
    has_another = not set(others) <= set(call.ledger.beside)
    call = replace(call, ledger=replace(call.ledger, beside=others))
    if not (call.is_settled and has_another):
        return call, []
    because = naming_other_call(call, SAME_MEMBER_LIVE, sentence_of(SAME_MEMBER_LIVE))
    asked = Asked(rule=SAME_MEMBER_LIVE, because=because, asked_at=now)
    line = Entry(
        at=now,
        what="decided",
        kind="ask",
        rule=SAME_MEMBER_LIVE,
        because=because,
        earlier_calls={SAME_MEMBER_LIVE: others[-1]},
    )
    return replace(call, statements=replace(call.statements, asked=asked)), [line]


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
        names=replace(
            call.names,
            alternate_id=call.names.alternate_id or note.alternate_id,
            phone_number=call.names.phone_number or note.phone_number,
            spelled=call.names.spelled if is_named_by_service(call) else note.spelled,
        ),
        life=replace(call.life, hinted_at=call.life.hinted_at or recorded_at),
    )
    if note.has_ended and not call.is_settled:
        last = call.seen.reading.read_at if call.seen.reading else now - PUSH_READ_GAP
        call = replace(
            call,
            life=replace(call.life, end_hinted_at=recorded_at),
            plan=replace(call.plan, next_read_at=max(now, last + PUSH_READ_GAP)),
        )
    return call, [entry]


def _listed(call: Call, note: Listed, now: datetime) -> tuple[Call, list[Entry]]:
    if call.life.reason is Reason.UNCONFIRMED:
        call = hinted_anew(call)
    if _is_old(note, call):
        return call, []
    call = returned(call) if may_return(call) else call
    if call.is_settled:
        return call, []
    call = with_assign_shown(_listed_for(call, note.person_id), note.person_id)
    if note.phone_number not in {None, call.names.phone_number}:
        call = _found_anew(call)
    call = replace(
        call,
        life=replace(
            call.life,
            phase=Phase.LIVE if call.life.phase is Phase.HINTED else call.life.phase,
            listed_at=min(note.listed_at, now),
            absent_at=note.absent_at if call.life.listed_at is None else call.life.absent_at,
            started_at=note.started_at or call.life.started_at,
            is_unlisted=False,
            not_found_since=None if call.life.phase is Phase.HINTED else call.life.not_found_since,
        ),
        names=replace(call.names, phone_number=note.phone_number or call.names.phone_number, spelled=note.spelled),
        seen=replace(
            call.seen,
            core_username=note.core_username or call.seen.core_username,
            candidates=note.candidates,
            had_several_candidates=call.seen.had_several_candidates or len(note.candidates) > 1,
        ),
    )
    entry = Entry(
        at=now,
        what="listed",
        person_id=note.person_id,
        candidates=len(note.candidates),
        operator=note.core_username,
    )
    return call, [entry]


def _found_anew(call: Call) -> Call:
    """Return a call that gets another number: what other calls left under it is looked up."""
    earlier = call.seen.earlier_marks
    return replace(call, seen=replace(call.seen, earlier_marks=earlier and replace(earlier, has_number=False)))


def _listed_for(call: Call, person_id: str | None) -> Call:
    """Return a call with the person of its entry in the queue.

    If details have named another one, details are read again, and decide: an entry of the queue can be late or garbled.
    """
    shown = call.seen.reading.person_id if call.seen.reading is not None else None
    if person_id in {None, call.seen.person_id} or shown is None or call.seen.person_id is None:
        return assigned_to(call, person_id)
    return replace(call, plan=replace(call.plan, needs_verifying=True))


def _is_old(note: Listed | Unlisted, call: Call) -> bool:
    """Tell whether a later look at the queue was already folded: the note came late, or twice."""
    return call.life.listed_at is not None and note.listed_at < call.life.listed_at

"""What stored details prove about an effect whose answer was lost.

An enroll leaves three traces (status, policy, flags), which only a reject takes away again. A reject leaves one, the status,
which later activities overwrite: it can be proved absent only while nothing at all was written since the read directly
before it was sent.
"""

from datetime import datetime, timedelta

from calls.facts import REJECTED, Status
from calls.policies import MANUAL_GREEN
from calls.record import Call, Effect, EffectKind, EffectState, Reading

DOUBT_READS_S = (1.0, 3.0, 8.0, 20.0)
"""When stored details are read after an effect was sent without a usable answer."""

DOUBT_RETRY = timedelta(seconds=5)
DOUBT_GIVE_UP = timedelta(minutes=10)
"""After so long without a readable answer the effect is a person's to resolve."""


def evidence(kind: EffectKind, call: Call, now: datetime) -> EffectState | None:
    """Return what is proved about an effect in doubt, or None while another read may tell."""
    effect, reading = call.effect(kind), call.reading
    sent_at = effect.sent_at or effect.intended_at
    if sent_at is None:
        return EffectState.UNRESOLVED
    if reading is not None and reading.read_at > sent_at:
        if _shows(kind, effect, reading):
            return EffectState.CONFIRMED
        if kind is EffectKind.ASSIGN and reading.person_id is not None:
            return EffectState.ABSENT
        if reading.read_at >= sent_at + timedelta(seconds=DOUBT_READS_S[-1]):
            return _absent_or_unresolved(kind, effect, reading, was_rejected=call.rejected_seen)
    if now - sent_at > DOUBT_GIVE_UP:
        return EffectState.UNRESOLVED
    return None


def next_doubt_read(effect: Effect, call: Call, now: datetime) -> datetime:
    """Return when to read next for an effect in doubt; a failed read is tried again a little later."""
    sent_at = effect.sent_at or effect.intended_at or now
    read_at = call.reading.read_at if call.reading else sent_at
    slots = [sent_at + timedelta(seconds=s) for s in DOUBT_READS_S]
    slot = next((slot for slot in slots if slot > read_at), now)
    if call.reads_failed and call.next_read_at is not None:
        return max(slot, min(call.next_read_at, now + DOUBT_RETRY))
    return slot


def _shows(kind: EffectKind, effect: Effect, reading: Reading) -> bool:
    match kind:
        case EffectKind.ASSIGN:
            return reading.person_id is not None and reading.person_id == effect.person_id
        case EffectKind.ENROLL:
            by_hand = reading.status == Status.FULL_AUTHENTICATION and not reading.is_voice_verified
            by_status = reading.status == Status.ACCEPT_CALLER_VOICE or by_hand
            return by_status or MANUAL_GREEN in reading.policies or reading.was_voice_enrolled_now
        case EffectKind.REJECT:
            return reading.status in REJECTED


def _absent_or_unresolved(kind: EffectKind, effect: Effect, reading: Reading, *, was_rejected: bool) -> EffectState:
    """Say whether the missing trace proves anything.

    Assumed: every activity moves ``updatedDateUtc``. The same status twice may have had a reject in between.
    """
    match kind:
        case EffectKind.ASSIGN:
            may_be_hidden = False
        case EffectKind.ENROLL:
            may_be_hidden = was_rejected or reading.status == Status.FULL_AUTHENTICATION_UNENROLLED
        case EffectKind.REJECT:
            before, after = (effect.status_before, effect.updated_before), (reading.status, reading.updated_at)
            may_be_hidden = before != after
    return EffectState.UNRESOLVED if may_be_hidden else EffectState.ABSENT

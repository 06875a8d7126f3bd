"""An answer about a call, taken into its record: the facts, the lines of its trail, and names that nobody defined."""

from datetime import timedelta

from msgspec.structs import replace

from calls.decide import next_read
from calls.facts import STATUSES, Colour
from calls.fold import fold_reading
from calls.notes import reading_of
from calls.record import Call, EffectKind, EffectState, Phase, Reading
from calls.recovery import charge_earlier_record
from calls.trail import Entry
from reseller import PhoneCall
from workers.claim import Claim


def take_in(
    claim: Claim,
    phone_call: PhoneCall,
    *,
    check: int | None = None,
    operator: str | None = None,
    took_ms: int | None = None,
) -> None:
    """Fold an answer about this very call.

    Args:
        claim: The call that was asked about.
        phone_call: The service's record of it.
        check: The number of the check that brought the answer; None for stored details.
        operator: The person who asked for it.
        took_ms: How long it took.
    """
    now = claim.now
    reading = reading_of(phone_call, now)
    if reading.voice_id:
        reading = replace(reading, voice_id=claim.call_id.voice_id)  # it may be spelled otherwise: `is_same_id`
    before, book = claim.call, claim.tools.book
    claim.call = fold_reading(_charged(claim, reading), reading, book, now)
    claim.call = replace(claim.call, next_read_at=next_read(claim.call, book, now, late=claim.held.late))
    changed = _told(before) != _told(claim.call)
    if changed:
        _report_unknown(claim, before.reading, reading)
    if check is not None or changed:
        claim.entries.append(
            Entry(
                at=now,
                what="read" if check is None else "checked",
                status=reading.status,
                policies=reading.policies,
                person_id=reading.person_id,
                n=check,
                took_ms=took_ms,
                operator=operator,
                trace=before.trace,
            )
        )
    if claim.call.unenrolled_seen and not before.unenrolled_seen:
        claim.entries.append(Entry(at=now, what="established", kind=EffectKind.ENROLL, state=EffectState.TAKEN_BACK))
        claim.tools.log.warning("enroll_taken_back", **claim.names)
    if claim.call.end_seen_at is not None and before.end_seen_at is None:
        claim.entries.append(Entry(at=now, what="ended"))


def _charged(claim: Claim, reading: Reading) -> Call:
    """Count checks that a lost record may have spent on a call that an answer shows before the queue does."""
    call, book = claim.call, claim.tools.book
    if call.phase is not Phase.HINTED or claim.held.lost is not None:
        return call
    age = timedelta(seconds=book.maximum_age_s)
    if reading.created_at is not None:
        age = claim.tools.clock.age(reading.created_at, claim.now, claim.held.epoch)
    begun = replace(call, person_id=reading.person_id or call.person_id)
    charged = charge_earlier_record(begun, book, claim.held.epoch, claim.now, age=age)
    return replace(charged, person_id=call.person_id)


def _told(call: Call) -> tuple[object, ...]:
    """Return what of a reading is worth a line when it changes."""
    reading = call.reading
    if reading is None:
        return ()
    return (
        reading.status,
        reading.policies,
        reading.person_id,
        reading.has_ended,
        reading.research_status,
        reading.provider_error,
    )


def _report_unknown(claim: Claim, before: Reading | None, reading: Reading) -> None:
    """Log names that nobody gave a meaning: never guessed, and a person should know of them."""
    known, policies, log = before.policies if before else (), claim.tools.book.policies, claim.tools.log
    for policy in reading.policies:
        if policy not in known and policies.colour(policy) is Colour.UNCLASSIFIED:
            log.warning("policy_unclassified", **claim.names, policy=policy)
    if reading.status not in (None, before.status if before else None, *STATUSES):
        log.warning("status_unknown", **claim.names, status=reading.status)

"""An answer about a call, taken into its record: the facts, the lines that are worth one, and what nobody gave a meaning."""

from msgspec.structs import replace

from calls.decide import next_read
from calls.facts import STATUSES
from calls.fold import fold_reading
from calls.policies import Colour
from calls.reading import reading_of
from calls.record import Call, Reading
from calls.trail import Entry
from reseller import PhoneCall
from workers.claim import Claim
from workers.merging import merge_into


async def take_in(
    claim: Claim,
    phone_call: PhoneCall,
    *,
    check: int | None = None,
    operator: str | None = None,
    took_ms: int | None = None,
) -> None:
    """Fold an answer; one about another voice id means that two records are one call.

    Args:
        claim: The call that was asked about.
        phone_call: The service's record of it.
        check: The number of the check that brought the answer; None for stored details.
        operator: The person who asked for it.
        took_ms: How long it took.
    """
    now = claim.now
    reading = reading_of(phone_call, now)
    if _names_another(claim, reading) and await merge_into(claim, reading.voice_id or ""):
        return
    before, book = claim.call, claim.tools.book
    claim.call = fold_reading(before, reading, book, now)
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
    if claim.call.end_seen_at is not None and before.end_seen_at is None:
        claim.entries.append(Entry(at=now, what="ended"))


def _names_another(claim: Claim, reading: Reading) -> bool:
    """Tell whether an answer is about an id that is news: one that we go on without is not asked for again."""
    known = claim.call.reading.voice_id if claim.call.reading else None
    return bool(reading.voice_id) and reading.voice_id not in {claim.call_id.voice_id, known}


def _told(call: Call) -> tuple[object, ...]:
    """Return what of a reading is worth a line when it changes."""
    reading = call.reading
    if reading is None:
        return ()
    return reading.status, reading.policies, reading.person_id, reading.has_ended, reading.research_status


def _report_unknown(claim: Claim, before: Reading | None, reading: Reading) -> None:
    """Log names that nobody gave a meaning: never guessed, and a person should know of them."""
    known, policies, log = before.policies if before else (), claim.tools.book.policies, claim.tools.log
    for policy in reading.policies:
        if policy not in known and policies.colour(policy) is Colour.UNCLASSIFIED:
            log.warning("policy_unclassified", **claim.names, policy=policy)
    if reading.status not in (None, before.status if before else None, *STATUSES):
        log.warning("status_unknown", **claim.names, status=reading.status)

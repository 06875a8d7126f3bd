"""What we keep of the service's records: the border at which personal data ends.

Of a person match three fields stay (id, name, type); of a call's record what decisions need.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from zlib import crc32

from calls.notes import Listed
from calls.record import Candidate, Reading
from reseller import PersonMatch, PhoneCall, QueueEntry
from reseller.plain_words import plain_words

MOST_TEXT = 200
"""Characters that we keep of a name that the institution has given."""

PLAUSIBLE = timedelta(days=2)


def reading_of(phone_call: PhoneCall, now: datetime) -> Reading:
    """Return what a decision may need of a call's record.

    Spec: Phone call record.
    """
    case = phone_call.research_case
    return Reading(
        read_at=now,
        voice_id=phone_call.voice_id,
        person_id=phone_call.person_id or None,
        core_username=phone_call.core_username or None,
        status=phone_call.status,
        policies=tuple(phone_call.policies),
        has_ended=phone_call.call_ended,
        is_voice_verified=phone_call.is_voice_verified,
        is_voice_mismatch=phone_call.is_voice_mismatch,
        is_high_risk_device=phone_call.is_high_risk_device,
        is_voice_enrolled=phone_call.is_voice_enrolled,
        was_voice_enrolled_now=phone_call.successful_voice_enrollment,
        research_status=case.research_status if case else None,
        validation_rule=(phone_call.validation_rule_name or "")[:MOST_TEXT] or None,
        has_voice_match_rule=phone_call.has_voice_match_validation_rule,
        provider_error=plain_words(phone_call.voice_authentication_error or "") or None,
        verification_questions=len(phone_call.verification_questions),
        updated_at=phone_call.updated_at,
        created_at=phone_call.created_at,
    )


def listed_of(entry: QueueEntry, now: datetime) -> Listed:
    """Return what a call has to know of its entry in the queue.

    Spec: Queue entry.
    """
    return Listed(
        listed_at=now,
        started_at=plausible_start(entry, now),
        phone_number=entry.phone_number or None,
        person_id=entry.person_id or None,
        core_username=entry.core_username or None,
        candidates=_candidates(entry.persons),
    )


def plausible_start(entry: QueueEntry, now: datetime) -> datetime | None:
    """Return when a call started, None where its entry does not say: a placeholder, or nothing that can be read.

    Assumed: clocks and zones differ by less than two days, and no call lasts longer.
    """
    return entry.started_at if abs(entry.started_at - now) < PLAUSIBLE else None


def _candidates(persons: Iterable[PersonMatch]) -> tuple[Candidate, ...]:
    """Return the different candidates. One without an id is kept: it counts, and can never be assigned."""
    found: dict[str, Candidate] = {}
    for n, person in enumerate(persons):
        name = person.name or " ".join(part for part in (person.first_name, person.last_name) if part)
        candidate = Candidate(person_id=person.person_id, name=name, person_type=person.person_type)
        found.setdefault(person.person_id or f"#{n}", candidate)
    return tuple(found.values())


def fingerprint(listed: Listed) -> str:
    """Return a text that changes when anything does that a call would want to know of its entry."""
    people = ",".join(sorted(candidate.person_id for candidate in listed.candidates))
    return f"{listed.person_id or ''}|{listed.core_username or ''}|{len(listed.candidates)}|{crc32(people.encode()):x}"

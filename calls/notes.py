"""Notes: everything anybody may tell a call. A note does nothing by itself; the call's mover folds it into the record.

Pushes and listings of one kind replace each other in the inbox (``note_id``): a thousand repetitions weigh as much as
one. What people say is a *statement*. Each has a field of its own, so none replaces another before it was read, and a
number that Redis gives it: the statement with the highest number is the one that counts.

``listed_of`` and ``reading_of`` are the border at which personal data ends: of a person match three fields stay (id,
name, type), of a call's record what decisions need. ``trace_of`` says which event a call is moved by: a push, or a
person's word at the desk; the number by which it was answered is its trace.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final
from zlib import crc32

import msgspec

from calls.record import Call, Candidate, Reading
from reseller import PersonMatch, PhoneCall, QueueEntry
from reseller.errors import plain_words
from reseller.exchange import is_trace

MOST_WAITING = 100
"""Notes in one inbox beyond which no further statement is taken: workers are far behind, or a client repeats itself."""


class InboxFull(Exception):
    """So many notes wait to be read that a statement was not taken. Nothing was written; it can be made again later."""


class Pushed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pushed"):
    """A push event came in: a hint that the call started or ended, and no more than that.

    ``received_at`` is by the clock of the process that received it, ``recorded_ms`` by Redis's; the script that leaves the
    note gives it, 0 where an earlier release left it.
    """

    has_ended: bool
    event_id: str
    received_at: datetime
    alternate_id: str | None = None
    phone_number: str | None = None
    recorded_ms: int = 0

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for starts, one for ends."""
        return "push:end" if self.has_ended else "push:start"


class Listed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="listed"):
    """The service's queue lists the call: it exists and has not ended."""

    listed_at: datetime
    started_at: datetime | None = None
    phone_number: str | None = None
    person_id: str | None = None
    core_username: str | None = None
    candidates: tuple[Candidate, ...] = ()
    note_id: ClassVar[str] = "listed"


class Unlisted(msgspec.Struct, frozen=True, kw_only=True, tag="unlisted"):
    """A full listing did not contain the call: a reason to read its stored details, not a proof of its end."""

    listed_at: datetime
    note_id: ClassVar[str] = "unlisted"


MERGED: Final = b"merged:"
"""How the inbox field of a ``Merged`` note begins; `merge.lua` writes it."""


class Merged(msgspec.Struct, frozen=True, kw_only=True, tag="merged"):
    """Another record turned out to be the same call; this is what it knew."""

    call: Call

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every record that was merged."""
        return f"{MERGED.decode()}{self.call.voice_id}"


class MemberRejected(msgspec.Struct, frozen=True, kw_only=True, tag="member_rejected"):
    """The voice was rejected in another call of the same person: the service takes earlier enrolls back."""

    rejected_at: datetime
    note_id: ClassVar[str] = "member:rejected"


class _Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person said. ``number`` is given by the script that leaves the note; 0 where an earlier release left it."""

    operator: str
    said_at: datetime
    token: str | None = None
    wish: str | None = None
    number: int = 0

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every statement."""
        return f"{self.__struct_config__.tag}:{self.wish or self.operator}"


class AssignWish(_Said, frozen=True, kw_only=True, tag="assign"):
    """A person at the desk said who the caller is."""

    person_id: str


class Verified(_Said, frozen=True, kw_only=True, tag="verified"):
    """A person at the desk verified the caller otherwise.

    ``validation_type`` is one of the Spec's validation types (Other shapes); ``remark`` goes with the enroll as its notes,
    and nowhere else.
    """

    person_id: str
    validation_type: str
    remark: str | None = None


class Distrusted(_Said, frozen=True, kw_only=True, tag="distrusted"):
    """A person at the desk said that the caller cannot be trusted."""

    reason: str = ""


class CheckWish(_Said, frozen=True, kw_only=True, tag="check"):
    """A person at the desk asked for one of the reserved checks now."""


class Resolved(_Said, frozen=True, kw_only=True, tag="resolved"):
    """A person looked at the service and says whether an unclear effect was applied."""

    applied: bool


Statement = AssignWish | Verified | Distrusted | CheckWish | Resolved
"""What people say."""

Note = Pushed | Listed | Unlisted | Merged | MemberRejected | Statement


def statement_order(number: int, said_at: datetime) -> int:
    """Return what statements are ordered by: the number that Redis gave, in milliseconds since 1970 like its clock.

    A statement without a number is ordered by the clock of the process that took it.
    """
    return number or int(said_at.timestamp() * 1000)


def fold_order(note: Note) -> tuple[int, int]:
    """Return where among waiting notes one is folded: pushes, what the service showed, then statements by their number.

    An inbox has no order. A push is folded before a listing, so that the trail shows the push first.
    """
    match note:
        case Pushed():
            return 0, 0
        case Listed() | Unlisted() | Merged() | MemberRejected():
            return 1, 0
        case _:
            return 2, statement_order(note.number, note.said_at)


_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Note] = msgspec.json.Decoder(Note)


def encode_note(note: Note) -> bytes:
    """Write a note as stored."""
    return _ENCODER.encode(note)


def parse_note(stored: bytes) -> Note:
    """Read a stored note.

    Raises:
        msgspec.ValidationError: Our own state holds something we never write.
    """
    return _DECODER.decode(stored)


def trace_of(notes: Sequence[Note]) -> str | None:
    """Return the trace of the newest event among notes; None if there is no event among them."""
    events = [event for event in map(_event, notes) if event is not None]
    return max(events)[1] if events else None


def _event(note: Note) -> tuple[datetime, str] | None:
    match note:
        case Pushed():
            at, trace = note.received_at, note.event_id
        case AssignWish() | Verified() | Distrusted() | CheckWish() | Resolved():
            at, trace = note.said_at, note.wish or ""
        case _:
            return None
    return (at, trace) if is_trace(trace) else None


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

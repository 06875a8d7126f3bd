"""Notes: everything that can be told to a call. A note does nothing by itself; the holder of the lease folds it.

Pushes replace each other in the inbox, and so do listings (``note_id``), so a thousand repetitions cost as much as one.
What people say is a *statement*. Each has an inbox field of its own, so no unread one is replaced, and a number from
Redis. Of several statements about the same, the one with the highest number counts.

``listed_of`` drops personal data: of a person match three fields are kept (id, name, type). ``traces_of`` returns the
ids of the events behind notes: those that pushes and statements were answered with.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final, get_args
from zlib import crc32

import msgspec

from callkeeper.calls.record import Call, Candidate
from callkeeper.calls.record_storage import SCHEMA, NewerRecord, encode_call, parse_call
from callkeeper.service import PersonMatch, QueueEntry
from callkeeper.service.endpoints import is_voice_id, spelling_of
from callkeeper.service.tracing import is_trace

MOST_WAITING = 100
"""With this many notes in an inbox, no statement is accepted: workers are far behind, or a client repeats itself."""


class InboxFull(Exception):
    """Too many notes wait, so a statement was not accepted. Nothing was written. It can be made again later."""


class Pushed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pushed"):
    """A push event arrived: a hint that the call started or ended, no more.

    ``received_at`` is by the clock of the receiving process. ``recorded_ms`` is by Redis's clock and set by the script
    that leaves the note.
    """

    has_ended: bool
    event_id: str
    received_at: datetime
    alternate_id: str | None = None
    phone_number: str | None = None
    recorded_ms: int = 0
    spelled: str | None = None
    """How the push spelled the call's id, if not in the canonical way."""

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for starts, one for ends."""
        return "push:end" if self.has_ended else "push:start"


class Listed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="listed"):
    """The service's queue lists the call, so it exists and has not ended."""

    listed_at: datetime
    started_at: datetime | None = None
    phone_number: str | None = None
    person_id: str | None = None
    core_username: str | None = None
    candidates: tuple[Candidate, ...] = ()
    spelled: str | None = None
    """How the queue spelled the call's id, if not in the canonical way."""
    is_first_look: bool = False
    """The whole queue had not been listed in this Redis before, so the call may have had a record in an earlier one."""
    absent_at: datetime | None = None
    """When the queue was last listed without the call, which is new, or when that had begun, if it was shown late; None if
    nothing shows that it was not there."""
    note_id: ClassVar[str] = "listed"


class Unlisted(msgspec.Struct, frozen=True, kw_only=True, tag="unlisted"):
    """A full listing did not contain the call. That is a reason to read its details, but no proof of its end.

    Assumed (`queue-lists-live`): what is listed exists; what is not may be live or have ended.
    """

    listed_at: datetime
    note_id: ClassVar[str] = "unlisted"


MERGED: Final = b"merged:"
"""The beginning of the inbox field of a ``Merged`` note. `merge.lua` writes it."""


class Merged(msgspec.Struct, frozen=True, kw_only=True, tag="merged"):
    """Another record turned out to be the same call. This is its content."""

    call: Call

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every record that was merged."""
        return f"{MERGED.decode()}{self.call.voice_id}"


class MemberRejected(msgspec.Struct, frozen=True, kw_only=True, tag="member_rejected"):
    """The voice was rejected in another call of the same person, so the service takes earlier enrolls back."""

    rejected_at: datetime
    note_id: ClassVar[str] = "member:rejected"


class SameMember(msgspec.Struct, frozen=True, kw_only=True, tag="enrolled_beside"):
    """The caller of another call, which went on at the same time, is established as the same member."""

    voice_id: str
    note_id: ClassVar[str] = "member:enrolled"


class _StatementFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's statement. The script that leaves the note sets ``number``."""

    operator: str
    said_at: datetime
    token: str | None = None
    wish: str | None = None
    """The id of the action that it belongs to. A repetition has the same id."""
    number: int = 0

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every statement."""
        return f"{self.__struct_config__.tag}:{self.wish or self.operator}"


class AssignWish(_StatementFields, frozen=True, kw_only=True, tag="assign"):
    """A person at the desk said who the caller is."""

    person_id: str


class Verified(_StatementFields, frozen=True, kw_only=True, tag="verified"):
    """A person at the desk verified the caller by other means than the voice.

    ``validation_type`` is one of the Spec's validation types (Other shapes). ``remark`` is sent with the enroll as its
    notes, and used nowhere else. ``despite`` names the evidence that they overrule (`informed_words`). ``refused`` names
    what the word was refused for when it was said: it is only recorded.
    """

    person_id: str
    validation_type: str
    remark: str | None = None
    despite: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class Distrusted(_StatementFields, frozen=True, kw_only=True, tag="distrusted"):
    """A person at the desk said that the caller cannot be trusted."""

    reason: str = ""


class OptedOut(_StatementFields, frozen=True, kw_only=True, tag="opted_out"):
    """The caller told a person at the desk that the voice must not be enrolled."""


class OptedIn(_StatementFields, frozen=True, kw_only=True, tag="opted_in"):
    """The caller told a person at the desk that the voice may be enrolled. ``remark`` says how they were asked."""

    remark: str


class CheckWish(_StatementFields, frozen=True, kw_only=True, tag="check"):
    """A person at the desk asked for one of the reserved checks now."""


class Resolved(_StatementFields, frozen=True, kw_only=True, tag="resolved"):
    """A person looked at the service, and says whether an unresolved effect was applied.

    ``effect`` names it (enroll or reject); None: the only one. If none is unresolved, it says that the rest was seen.
    ``seen`` names what a page has shown (`needs_of`): nothing else is closed. None: whatever needs a person.
    """

    applied: bool
    effect: str | None = None
    seen: str | None = None


class Withdrawn(_StatementFields, frozen=True, kw_only=True, tag="withdrawn"):
    """A person takes back what was said before: ``what`` is ``assign``, ``verified`` or ``distrusted``, ``reason`` why."""

    what: str
    reason: str | None = None


Statement = AssignWish | Verified | Distrusted | OptedOut | OptedIn | CheckWish | Resolved | Withdrawn
"""All statements of people."""

Note = Pushed | Listed | Unlisted | Merged | MemberRejected | SameMember | Statement


def statement_order(number: int, said_at: datetime) -> int:
    """Return the sort key of a statement: the number from Redis, which is in milliseconds since 1970 like its clock.

    A statement without a number is ordered by the clock of the process that received it.
    """
    return number or int(said_at.timestamp() * 1000)


def fold_order(note: Note) -> tuple[int, int, bool]:
    """Return the sort key for folding: pushes as they were recorded, then listings and statements as they came.

    An inbox has no order. A push is folded before a listing, so that the trail shows the push first. Whoever said
    something did not know who a later listing names.
    """
    match note:
        case Pushed():
            return 0, note.recorded_ms, False
        case Merged() | MemberRejected() | SameMember():
            return 1, 0, False
        case Listed() | Unlisted():
            return 1, statement_order(0, note.listed_at), False
        case _:
            return 1, statement_order(note.number, note.said_at), True


_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Note] = msgspec.json.Decoder(Note)
_KINDS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Note))


class _CallHead(msgspec.Struct, frozen=True):
    schema: int = 1


class _Head(msgspec.Struct, frozen=True):
    type: str
    call: _CallHead = _CallHead()


_HEAD: Final = msgspec.json.Decoder(_Head)


class _Record(msgspec.Struct, frozen=True):
    call: msgspec.Raw


_RECORD: Final = msgspec.json.Decoder(_Record)
_MERGED: Final = Merged.__struct_config__.tag


def encode_note(note: Note) -> bytes:
    """Encode a note for storage."""
    if isinstance(note, Merged):
        return b'{"type":"%b","call":%b}' % (str(_MERGED).encode(), encode_call(note.call))
    return _ENCODER.encode(note)


def parse_note(stored: bytes) -> Note:
    """Decode a stored note.

    Raises:
        NewerRecord: This release does not know this kind of note, or must not act on the record in it.
        msgspec.MsgspecError: The stored note does not have our format.
    """
    head = _HEAD.decode(stored)
    if head.type not in _KINDS or head.call.schema > SCHEMA:
        raise NewerRecord
    if head.type == _MERGED:
        return Merged(call=parse_call(bytes(_RECORD.decode(stored).call)))
    return _DECODER.decode(stored)


def traces_of(notes: Sequence[Note]) -> list[str]:
    """Return the traces of the events among notes, the newest first."""
    events = [event for event in map(_event, notes) if event is not None]
    return [trace for _, trace in sorted(events, reverse=True)]


def _event(note: Note) -> tuple[datetime, str] | None:
    match note:
        case Pushed():
            at, trace = note.received_at, note.event_id
        case AssignWish() | Verified() | Distrusted() | OptedOut() | OptedIn() | CheckWish() | Resolved() | Withdrawn():
            at, trace = note.said_at, note.wish or ""
        case _:
            return None
    return (at, trace) if is_trace(trace) else None


PLAUSIBLE = timedelta(days=2)


def why_unusable(entry: QueueEntry) -> str | None:
    """Return why an entry of the queue cannot be used; None if it can."""
    if not entry.voice_id:
        return "unreadable" if entry == QueueEntry() else "no_voice_id"
    return None if is_voice_id(entry.voice_id) else "odd_voice_id"


def listed_of(entry: QueueEntry, now: datetime, *, is_first_look: bool = False) -> Listed:
    """Return what a call needs to know of its queue entry. Spec: Queue entry."""
    return Listed(
        listed_at=now,
        started_at=plausible_start(entry, now),
        phone_number=entry.phone_number or None,
        person_id=entry.person_id or None,
        core_username=entry.core_username or None,
        candidates=_candidates(entry.persons),
        spelled=spelling_of(entry.voice_id),
        is_first_look=is_first_look,
    )


def plausible_start(entry: QueueEntry, now: datetime) -> datetime | None:
    """Return when a call started; None if its entry holds a placeholder or an unreadable time.

    Assumed (`clocks-two-days`): clocks and zones differ by less than two days, and no call lasts longer.
    """
    return entry.started_at if abs(entry.started_at - now) < PLAUSIBLE else None


def _candidates(persons: Iterable[PersonMatch]) -> tuple[Candidate, ...]:
    """Return the distinct candidates. One without an id is kept: it counts as one, but can never be assigned."""
    found: dict[str, Candidate] = {}
    for n, person in enumerate(persons):
        name = person.name or " ".join(part for part in (person.first_name, person.last_name) if part)
        candidate = Candidate(person_id=person.person_id, name=name, person_type=person.person_type)
        found.setdefault(person.person_id or f"#{n}", candidate)
    return tuple(found.values())


def fingerprint(listed: Listed) -> str:
    """Return a text that changes when the entry changes in a way that matters to the call (`is_same_entry`)."""
    return _fingerprint(listed.person_id, listed.core_username, listed.candidates, listed.phone_number)


def entry_expected(call: Call) -> str:
    """Return the fingerprint that the entry of a call assigned by us will have, so that it is not reported as a change.

    Assumed (`entry-after-assign`): the queue shows the person, the core username that assigned, and the same candidates
    and number as before. If it shows anything else, the call gets a note.
    """
    ours = call.ledger
    return _fingerprint(ours.assigned_person_id, ours.assigned_as, call.seen.candidates, call.names.phone_number)


def is_same_entry(after: str, before: str) -> bool:
    """Tell whether an entry, by its fingerprint, says nothing that the one before did not say.

    One without a number takes none away.
    """
    return after == before or (after.endswith(_NUMBER) and before.startswith(after))


def _fingerprint(
    person_id: str | None, core_username: str | None, candidates: Sequence[Candidate], phone_number: str | None
) -> str:
    people = ",".join(sorted([candidate.person_id for candidate in candidates]))
    rest = f"{person_id or ''}|{core_username or ''}|{len(candidates)}|{crc32(people.encode()):x}"
    return f"{rest}{_NUMBER}{f'{crc32(phone_number.encode()):x}' if phone_number else ''}"


_NUMBER: Final = "|#"
"""Stands before the number in a fingerprint."""

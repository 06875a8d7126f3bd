"""Notes: everything anybody may tell a call. A note does nothing by itself; the call's mover folds it into the record.

Notes of one kind replace each other in the inbox (``note_id``), so a thousand repetitions weigh as much as one. What people
say is kept apart by who says it: one person's word never replaces another's unread.
"""

from datetime import datetime
from typing import ClassVar

import msgspec

from calls.record import Call, Candidate


class Pushed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pushed"):
    """A push event came in: a hint that the call started or ended, and no more than that."""

    has_ended: bool
    event_id: str
    received_at: datetime
    alternate_id: str | None = None
    phone_number: str | None = None

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for starts, one for ends."""
        return "push:end" if self.has_ended else "push:start"


class Listed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="listed"):
    """The service's queue lists the call: it exists and has not ended."""

    listed_at: datetime
    started_at: datetime
    phone_number: str | None = None
    person_id: str | None = None
    core_username: str | None = None
    candidates: tuple[Candidate, ...] = ()
    note_id: ClassVar[str] = "listed"


class Unlisted(msgspec.Struct, frozen=True, kw_only=True, tag="unlisted"):
    """A full listing did not contain the call: a reason to read its stored details, not a proof of its end."""

    listed_at: datetime
    note_id: ClassVar[str] = "unlisted"


class Merged(msgspec.Struct, frozen=True, kw_only=True, tag="merged"):
    """Another record turned out to be the same call; this is what it knew."""

    call: Call

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every record that was merged."""
        return f"merged:{self.call.voice_id}"


class AssignWish(msgspec.Struct, frozen=True, kw_only=True, tag="assign"):
    """A person at the desk said who the caller is."""

    person_id: str
    operator: str
    said_at: datetime
    token: str | None = None
    wish: str | None = None

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every operator."""
        return f"assign:{self.operator}"


class Verified(msgspec.Struct, frozen=True, kw_only=True, tag="verified"):
    """A person at the desk verified the caller otherwise.

    ``validation_type`` is one of the Spec's validation types (Other shapes); ``remark`` goes with the enroll as its notes,
    and nowhere else.
    """

    person_id: str
    validation_type: str
    operator: str
    said_at: datetime
    remark: str | None = None
    token: str | None = None
    wish: str | None = None

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every operator."""
        return f"verified:{self.operator}"


class Distrusted(msgspec.Struct, frozen=True, kw_only=True, tag="distrusted"):
    """A person at the desk said that the caller cannot be trusted."""

    operator: str
    said_at: datetime
    reason: str = ""
    token: str | None = None
    wish: str | None = None

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every operator."""
        return f"distrusted:{self.operator}"


class CheckWish(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """A person at the desk asked for one of the reserved checks now."""

    operator: str
    said_at: datetime
    token: str | None = None
    wish: str | None = None

    @property
    def note_id(self) -> str:
        """Return the inbox field: one for every operator."""
        return f"check:{self.operator}"


class Resolved(msgspec.Struct, frozen=True, kw_only=True, tag="resolved"):
    """A person looked at the service and says whether an unclear effect was applied."""

    applied: bool
    operator: str
    said_at: datetime
    token: str | None = None
    wish: str | None = None
    note_id: ClassVar[str] = "resolved"


Note = Pushed | Listed | Unlisted | Merged | AssignWish | Verified | Distrusted | CheckWish | Resolved

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

"""Notes: everything anybody may tell a call. A note does nothing by itself; the call's mover folds it into the record.

Pushes and listings of one kind replace each other in the inbox (``note_id``): a thousand repetitions weigh as much as one.
What people say is a *statement*. Each has a field of its own, so none replaces another before it was read, and a number
that Redis gives it: the statement with the highest number is the one that counts.
"""

from datetime import datetime
from typing import ClassVar, Final

import msgspec

from calls.record import Call, Candidate

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

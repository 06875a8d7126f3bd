"""What a claim hands out: a member, the lease on it, and where its holder puts it when letting go.

No I/O: ``calls.store.store`` claims and writes.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from calls.pause import Pauses, parse_pauses
from reseller.config import REQUEST_DEADLINE_S


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a claim holds without being renewed, and what follows from that.

    Everything derives from the deadline of one request. If a request could outlive the lease it was sent under, a second
    worker could move the same call meanwhile.
    """

    request_s: float = REQUEST_DEADLINE_S
    """Deadline of one request, in seconds."""
    spare_s: float = 2.0
    """By how much the lease outlasts the request."""

    @property
    def seconds(self) -> float:
        """Return how long a claim holds."""
        return self.request_s + self.spare_s

    @property
    def ms(self) -> int:
        """Return how long a claim holds, in milliseconds."""
        return round(self.seconds * 1000)

    @property
    def first_byte_s(self) -> float:
        """Return how much time may pass between asking Redis to write ``sent`` and the first byte of the request.

        A fifth of a second less than what the lease has to spare.
        """
        return self.spare_s - 0.2

    @property
    def hold(self) -> timedelta:
        """Return for how long effects wait when Redis is new: whatever was sent before is over by then."""
        return timedelta(seconds=self.seconds)

    @property
    def finish_s(self) -> float:
        """Return how long a shift that claims no more lets its calls go on: two requests and a little."""
        return 2 * self.request_s + self.spare_s


LEASE = Lease()
"""The lease of every worker, unless a test shortens the deadline."""


class Epoch(NamedTuple):
    """Which life of which Redis server this is, and since when we know of it."""

    id: str
    since: datetime
    lost: timedelta | None = None
    """How long before it writes may have been lost; None if that is not known, or if there was no Redis before."""
    was_seen_to_begin: bool = False
    """Whether this process was there before it."""


class LostWrites(NamedTuple):
    """Between which instants the writes of a member may be lost, by the clock of the Redis that lost them.

    None where that is not known. Nothing that was written later than ``after`` is known.
    """

    after: datetime | None
    until: datetime | None


class LeaseLost(Exception):
    """Somebody else moves this call now, or what was expected of it is no longer so: leave it alone."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(f"{member}: {why}")
        self.why = why


@dataclass(slots=True)
class ClaimedItem:
    """One claimed member: what was stored, the notes that waited, and the right to write it."""

    member: str
    nonce: str
    checks: int
    lost: LostWrites | None
    """What Redis may have lost of it, until a record is written again; None if Redis is the one that it was written to."""
    failures: int
    record: bytes
    notes: dict[bytes, bytes]
    epoch: Epoch
    now: datetime
    pauses: Pauses
    late: timedelta
    """For how long it had been due."""
    writes: int = field(default=0)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a saved member is listed and when it is due.

    ``due_in_ms`` None: never by itself. ``listed``: ``live``, ``settled``, ``unconfirmed`` (settled, until the queue lists
    it), ``given up`` (it expires, attention or not), or nowhere.
    """

    due_in_ms: int | None
    listed: str = ""
    attention: str = ""


def instant(ms: int) -> datetime:
    """Return Redis's milliseconds as an aware UTC instant."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def pauses_of(stored: list[bytes]) -> Pauses:
    """Read the pauses as ``claim`` answers them: keys and values in turn."""
    pairs = zip(stored[::2], stored[1::2], strict=True)
    return parse_pauses(tuple((key.decode(errors="replace"), value) for key, value in pairs))


def parse_claimed(row: list[Any], epoch: Epoch, now: datetime, pauses: Pauses) -> ClaimedItem:
    """Read one claimed member as ``claim`` answers it."""
    member, nonce, checks, lost, failures, record, late_ms, notes = row
    return ClaimedItem(
        member=member.decode(),
        nonce=nonce.decode(),
        checks=int(checks),
        lost=_lost_writes(lost.decode()),
        failures=int(failures),
        record=record,
        notes=dict(zip(notes[::2], notes[1::2], strict=True)),
        epoch=epoch,
        now=now,
        pauses=pauses,
        late=timedelta(milliseconds=int(late_ms)),
    )


def _lost_writes(told: str) -> LostWrites | None:
    """Read what ``claim`` says of lost writes; what an earlier release said ('1') tells nothing of when."""
    if not told:
        return None
    after, _, until = told.partition(":")
    if not until.isdigit():
        return LostWrites(None, None)
    return LostWrites(instant(int(after)) if after.isdigit() else None, instant(int(until)))

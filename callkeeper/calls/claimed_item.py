"""The result of a claim (a member, its lease, the state of Redis), and the placement of a saved member.

No I/O: ``callkeeper.calls.store.claims`` claims and writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

import msgspec

from callkeeper.calls.item_names import CallId
from callkeeper.calls.pause import Pause, Pauses
from callkeeper.calls.stored_value import readable
from callkeeper.service.config import REQUEST_DEADLINE_S

SPARE_S = 2.0
"""How much longer than the request a lease lasts, in seconds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a claim lasts without renewal, and the times that follow from it.

    All of them derive from the deadline of an effect: it cannot outlive its lease, so no second worker claims the call
    meanwhile. A read that takes longer renews the lease.
    """

    request_s: float = REQUEST_DEADLINE_S
    """Deadline of an effect, in seconds."""

    @property
    def seconds(self) -> float:
        return self.request_s + SPARE_S

    @property
    def ms(self) -> int:
        return round(self.seconds * 1000)

    @property
    def first_byte_s(self) -> float:
        """Return how much time may pass between asking Redis to write ``sent`` and the first byte of the request.

        It is 0.2 s less than the lease has to spare.
        """
        return SPARE_S - 0.2

    @property
    def hold(self) -> timedelta:
        """Return how long effects wait after Redis changed: every earlier request has ended by then."""
        return timedelta(seconds=self.seconds)

    @property
    def finish_s(self) -> float:
        """Return how long a shift that claims no more lets its calls go on: two requests and the spare time."""
        return 2 * self.request_s + SPARE_S


LEASE = Lease()
"""The lease of every worker. Tests may use a shorter one."""


class Epoch(NamedTuple):
    """Which run of which Redis server this is, and since when it is known."""

    id: str
    since: datetime
    lost: timedelta | None = None
    """The time before it in which writes may have been lost; None if unknown, or if there was no Redis before."""
    was_seen_to_begin: bool = False
    """Whether this process also saw the Redis before it, or the data that this one has lost."""
    is_replaced: bool = False
    """Whether any process did. Then calls that are new to this Redis may have had a record."""
    first_claimed_at: datetime | None = None
    """When any process claimed from it first, by Redis's clock. ``since`` may be later: it is also by this process's own
    clock, and this process may have claimed from it seconds later."""


CLOCK_TOLERANCE = timedelta(seconds=5)
"""How far clocks may differ before it counts as a jump."""


class Jump(NamedTuple):
    """Redis's clock jumped ahead: its last time before, and by how much."""

    at: datetime
    by: timedelta


class LostWrites(NamedTuple):
    """Between which instants writes of a member may be lost, by the clock of the Redis that lost them.

    None if unknown. No write later than ``after`` is known to be there.
    """

    after: datetime | None
    until: datetime | None


class RefusedBy(StrEnum):
    """What refused a write of a claim. The values are those of ``keep`` and of the metric ``leases_lost``."""

    LEASE = "lease"  # another worker holds the call now
    LATE = "late"  # a repetition: a later write of this claim was executed before
    NOTES = "notes"  # somebody has left a note since
    PAUSED = "paused"  # a person has paused effects since
    CHECKS = "checks"  # the number of checks is another one


class WriteRefused(Exception):
    """A write of a claim was refused: stop working on the call, unless only a condition of this write does not hold."""

    def __init__(self, member: str, why: RefusedBy) -> None:
        super().__init__(f"{member}: {why}")
        self.why = why


class ClaimedItem(msgspec.Struct):
    """One claimed member: what was stored, its waiting notes, and the nonce that allows to write it."""

    member: str
    owner: CallId | str | None
    """The call or the institution; None for a name that we did not write."""
    nonce: str
    checks: int
    lost: LostWrites | None
    """Writes of it that Redis may have lost, until a record is saved again; None if it was saved to this Redis."""
    failures: int
    record: bytes
    notes: dict[bytes, bytes]
    epoch: Epoch
    now: datetime
    pause: Pause | None
    """The pause that applies to the call."""
    late: timedelta
    """How late workers are: how long the member had been due, or others that were claimed with it (`share_lateness`)."""
    live: int
    """The number of live calls of all institutions at the claim."""
    is_erased: bool = False
    """The caller's data was erased: the record takes up no number and no names any more."""
    unnamed: frozenset[str] = frozenset()
    """Other members whose data was erased: the record takes up no names of theirs."""
    writes: int = 0
    is_sending: bool = False
    """The request of an effect may be under way: nobody else may claim the call before it has ended."""

    @property
    def institution_key(self) -> str:
        """Return the institution that it is, or that the call is of; empty for a name that we did not write."""
        return self.owner.institution_key if isinstance(self.owner, CallId) else self.owner or ""

    @property
    def note_pairs(self) -> list[bytes]:
        """Return the id and the content of each waiting note in turn, as scripts take them."""
        return [part for pair in self.notes.items() for part in pair]


ListName = Literal[
    "",  # nowhere: it is no call, or it stays where it is
    "live",
    "settled",
    "unconfirmed",  # settled until the queue lists it
    "lost",  # settled until the queue, a push or a person names it
    "given up",  # expires even if it needs a person
    "as it is",  # where it was, and it needs a person if it did
]
"""The list in which a saved member is."""


class Placement(msgspec.Struct, frozen=True):
    """Where a saved member is listed and when it is due.

    ``due_in_ms`` None: only when something wakes it. ``entry``: fingerprint of the queue entry that is expected for it
    from now on, empty if unknown.
    """

    due_in_ms: int | None
    listed: ListName = ""
    attention: str = ""
    entry: str = ""


def instant(ms: float) -> datetime:
    """Convert Redis's milliseconds to an aware UTC instant."""
    return datetime.fromtimestamp(ms / 1000, UTC)


class ClaimAnswer(NamedTuple):
    """What ``claim`` returns, in its order. Times are in ms."""

    now: int
    epoch: bytes
    since: int
    breakers: list[bytes]
    pauses: list[bytes]
    next_due_in: int
    """-1 if nothing is due ever."""
    jobs_waiting: int
    lost: int
    """-1 if it is not known."""
    live: int
    breakers_of_kinds: list[bytes]
    born: bytes
    knew_other_data: int
    claimed: int
    rows: list[list[Any]]

    @classmethod
    def of(cls, answer: list[Any]) -> "ClaimAnswer":
        names = len(cls._fields) - 1
        return cls._make([*answer[:names], answer[names:]])


def parse_claimed(
    row: list[Any], owner: CallId | str | None, epoch: Epoch, now: datetime, pauses: Pauses, *, live: int
) -> ClaimedItem:
    """Read one claimed member in an answer of ``claim``."""
    member, nonce, checks, lost, failures, record, late_ms, notes, erased = row
    return ClaimedItem(
        member=member.decode(),
        owner=owner,
        nonce=nonce.decode(),
        checks=int(checks),
        lost=_lost_writes(lost.decode()),
        failures=int(failures),
        record=record,
        notes=dict(zip(notes[::2], notes[1::2], strict=True)),
        epoch=epoch,
        now=now,
        pause=pauses.over(owner.institution_key) if isinstance(owner, CallId) else None,
        late=timedelta(milliseconds=int(late_ms)),
        live=live,
        is_erased=erased == WHOLLY_ERASED,
        unnamed=parse_unnamed(erased),
    )


WHOLLY_ERASED: Final = b"1"
"""What a call's item says that was erased. If only names of other members were, it lists their ids (JSON)."""


def parse_unnamed(erased: bytes | None) -> frozenset[str]:
    """Return the members whose names alone were erased in a call."""
    return frozenset(readable(erased, list[str]) or ())


def share_lateness(items: Sequence[ClaimedItem]) -> None:
    """Set how late workers are in the items of one claim.

    Up to half of the members have just fallen due, so a member's own lateness says little. An institution's lateness is
    that of its latest member. All items get their own institution's, or the second-highest of all institutions if that is
    more. So one slow institution, whose calls wait for each other, does not delay the reads of others.
    """
    latest: dict[str, timedelta] = {}
    for item in items:
        latest[item.institution_key] = max(item.late, latest.get(item.institution_key, timedelta()))
    common = sorted(latest.values())[-2:-1] or [timedelta()]
    for item in items:
        item.late = max(latest[item.institution_key], *common)


def _lost_writes(stored: str) -> LostWrites | None:
    """Read the lost writes in an answer of ``claim``. Each time may be missing."""
    if not stored:
        return None
    after, _, until = stored.partition(":")
    if not until.isdigit():
        return LostWrites(None, None)
    return LostWrites(instant(int(after)) if after.isdigit() else None, instant(int(until)))

"""One claimed call: its record as it changes, the lines that its trail gets, and the only ways to write them.

Everything is written by the store's fenced writes; when one is refused the claim is over, and whoever holds the call
now goes on from what was written. ``follow_member`` and ``follow_trace`` say once for which call and event a task
works: every log line and every request of it carries that from then on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace
from structlog.contextvars import bind_contextvars

from calls.evidence import TAKEN_BACK, needs_person
from calls.fold import fold_epoch, fold_note, new_call
from calls.lease import ClaimedItem, Placement
from calls.ledger import EffectKind, EffectState
from calls.notes import fold_order, parse_note, trace_of
from calls.pause import PauseScope
from calls.record import ASKED, Call, Phase, encode_call, parse_call
from calls.redis_restart import charge_earlier_record, charge_lost_writes
from calls.rules.book import RuleBook
from calls.store.keys import CallId
from calls.store.store import Store
from calls.trail import Entry
from reseller import Reseller, ResellerError
from reseller.exchange import follow, new_trace
from workers.managed_institutions import ServiceClock
from workers.measurements import Counting, JobSummary, PauseLog


def follow_member(institution_key: str, voice_id: str | None = None) -> None:
    """Say for which institution, and for which of its calls, this task works."""
    bind_contextvars(institution=institution_key, **({} if voice_id is None else {"voice_id": voice_id}))


def follow_trace(trace: str | None = None) -> str:
    """Say for which event this task works; a new one if it works for none. Return its trace."""
    trace = trace or new_trace()
    bind_contextvars(trace_id=trace)
    follow(trace)
    return trace


@dataclass(frozen=True, slots=True)
class Tools:
    """The store, the service, the rules, the time and the log: the same for every call of a shift.

    Raises:
        ValueError: A request may take longer than the store's lease allows for, or shorter: the two must be one number.
    """

    store: Store
    service: Reseller
    clock: ServiceClock
    book: RuleBook
    requested_by: Callable[[str], str]
    monotonic: Callable[[], float]
    log: Any
    pauses: PauseLog = field(default_factory=PauseLog)
    counting: Counting = field(default_factory=Counting)

    def __post_init__(self) -> None:
        deadline_s, request_s = self.service.deadline_s, self.store.lease.request_s
        if deadline_s != request_s:
            raise ValueError(f"requests take {deadline_s:g} s, leases allow for {request_s:g} s")


AWAY, REFUSED = "the service is away", "the service refuses the institution"
INSTITUTION_AWAY = "the service does not answer for the institution, or asked for a pause"
"""Why a call is held back."""

FORGET = b"-"
"""Written instead of a record: the member is forgotten."""


@dataclass(slots=True)
class Claim:
    """A call in the hands of its mover. ``entries`` are the lines that the next write adds to the trail."""

    tools: Tools
    item: ClaimedItem
    call_id: CallId
    call: Call
    tally: JobSummary
    entries: list[Entry] = field(default_factory=list)
    claimed_at_s: float = 0.0
    lapses: int = 0
    is_over: bool = False

    @classmethod
    def begin(
        cls, tools: Tools, item: ClaimedItem, call_id: CallId, standing: str | None, tally: JobSummary
    ) -> "Claim":
        """Read the record, take over the epoch, fold the notes.

        Raises:
            msgspec.MsgspecError: The stored record or a note is not one of ours.
        """
        notes = sorted(map(parse_note, item.notes.values()), key=fold_order)
        before = call = parse_call(item.record) if item.record else new_call(call_id, notes, item.now)
        pause = item.pauses.over(call_id.institution_key)
        held_until = item.epoch.since + tools.store.lease.hold
        call = replace(
            call,
            checks_used=max(call.checks_used, item.checks),
            standing=standing,
            paused=pause.scope if pause else None,
            effects_held_until=held_until if held_until > item.now else None,
        )
        if item.lost is not None:
            call = charge_lost_writes(call, tools.book, item.lost)
        call = tools.store.jumps.catch_up(call)
        call, entries = fold_epoch(call, item.epoch.id, must_verify=item.lost is not None, now=item.now)
        for note in notes:
            call, lines = fold_note(call, note, item.now)
            entries += lines
        if item.lost is None and before.phase is Phase.HINTED and call.phase is not Phase.HINTED:
            age = tools.clock.found(call.started_at or item.now, item.now, item.epoch)
            call = charge_earlier_record(call, tools.book, item.epoch, item.now, age=age)
        trace = follow_trace(trace_of(notes) or call.trace)
        if trace != call.trace:
            call = replace(call, trace=trace)
        tools.counting.folded(before, call, tools.book, item.now)
        return cls(tools, item, call_id, call, tally, entries, tools.monotonic())

    @property
    def now(self) -> datetime:
        """Return Redis's time at the claim plus what has passed here since."""
        return self.item.now + timedelta(seconds=self.tools.monotonic() - self.claimed_at_s)

    @property
    def age_s(self) -> float:
        """Return how many seconds ago the call was claimed."""
        return self.tools.monotonic() - self.claimed_at_s

    @property
    def bot(self) -> str:
        """Return the core username that requests nobody asked for are made as."""
        return self.tools.requested_by(self.call_id.institution_key)

    @property
    def names(self) -> dict[str, str]:
        """Return what a line of the log calls this call."""
        return {"institution": self.call_id.institution_key, "voice_id": self.call_id.voice_id}

    @property
    def pause(self) -> str | None:
        """Say what pause the call is under, by whom and why."""
        pause = self.item.pauses.over(self.call_id.institution_key)
        return pause.words if pause else None

    def hold_back(self, because: str) -> None:
        """Write into the trail, once, that nothing can be asked now."""
        if self.call.held_back != because:
            self.entries.append(Entry(at=self.now, what="held_back", because=because))
            self.call = replace(self.call, held_back=because)

    async def keep(
        self,
        *,
        only_if_no_notes: bool = False,
        book_check: int | None = None,
        unless_paused: PauseScope | None = None,
        replicated: bool = False,
    ) -> None:
        """Write the record while holding on to it, and renew the lease.

        Raises:
            LeaseLost: The claim is gone, or what was expected of the call is no longer so.
        """
        self.call = replace(self.call, saved_at=self.now)
        await self.tools.store.keep(
            self.item,
            encode_call(self.call),
            entries=self.entries,
            book_check=book_check,
            only_if_no_notes=only_if_no_notes,
            unless_paused=unless_paused,
            replicated=replicated,
        )
        self._count()

    async def let_go(self, until: datetime | None) -> None:
        """Write the record and release it; it is due again then, or never by itself."""
        due_in_ms = None if until is None else max(0, int((until - self.now).total_seconds() * 1000) + 1)
        listed = "live" if self.call.phase in {Phase.LIVE, Phase.ENDED} else ""
        await self.save(Placement(due_in_ms, listed=listed, attention=attention(self.call)))

    async def save(self, placement: Placement) -> None:
        """Write the record and release it."""
        self.call = await self.tools.store.members.follow(self.call_id, self.call, self.now)
        self.call = replace(self.call, saved_at=self.now)
        await self._write(encode_call(self.call), placement)

    async def forget(self) -> None:
        """Leave no record behind; its trail stays for a day."""
        await self._write(FORGET, Placement(None))

    async def _write(self, record: bytes, placement: Placement) -> None:
        await self.tools.store.save(self.item, record, placement, entries=self.entries, checks=self.call.checks_used)
        self._count()
        self.is_over = True

    def _count(self) -> None:
        """Count the lines that have just been written."""
        self.tools.counting.wrote(self.call, self.entries)
        self.entries = []

    async def renew_token(self) -> bool:
        """Log in after a 401, once a claim; tell whether another try makes sense."""
        self.lapses += 1
        if self.lapses > 1:
            return False
        try:
            await self.tools.service.renew()
        except ResellerError as error:
            self.tools.log.warning("login_failed", error=type(error).__name__)
            return False
        return True


def attention(call: Call) -> str:
    """Say why a call needs a person; nothing if it does not."""
    for kind in (EffectKind.ENROLL, EffectKind.REJECT):
        if call.effect(kind).state is EffectState.UNRESOLVED:
            return f"{kind} unresolved"
    if needs_person(call):
        return TAKEN_BACK
    return f"{ASKED} {call.asked.rule!r}" if call.asked is not None and call.asked.closed_by is None else ""

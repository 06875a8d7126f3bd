"""One claimed call: its record, the trail entries not written yet, and the only methods that write them.

All writes are fenced by the store. When a write is refused, the claim is over; the next holder continues from the
stored record. ``follow_member`` and ``follow_trace`` set the institution, call and event of a task: all its later log
lines and requests carry them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace
from structlog.contextvars import bind_contextvars

from callkeeper.calls.assign_folding import assigned
from callkeeper.calls.claimed_item import ClaimedItem, ListName, Placement
from callkeeper.calls.context import Context
from callkeeper.calls.effect_ledger import DONE, Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import attention, fold_rejected
from callkeeper.calls.item_names import CallId
from callkeeper.calls.note_folding import fold_note, new_call
from callkeeper.calls.notes import (
    Distrusted,
    Listed,
    Merged,
    Note,
    Resolved,
    Verified,
    entry_expected,
    fold_order,
    parse_note,
    traces_of,
)
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.record import Call, Obstacles, Phase, with_effect
from callkeeper.calls.record_storage import encode_call, parse_call, without_caller, without_names
from callkeeper.calls.redis_restart import (
    catch_up,
    charge_earlier_record,
    charge_lost_writes,
    charge_unknown_age,
    fold_epoch,
    spent_checks,
)
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.settlement import settled_anew
from callkeeper.calls.statement_folding import as_heard
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.last_listing import Listings
from callkeeper.calls.trail import Entry
from callkeeper.service import ResellerError
from callkeeper.service.client import Reseller
from callkeeper.service.tracing import SpanKind, TraceSpan, first_span, follow, is_trace, new_trace, span
from workers.counting import Counting
from workers.job_summary import JobSummary
from workers.managed_institutions import Institutions
from workers.service_clock import ServiceClock
from workers.service_gate import ServiceGate


def follow_member(institution_key: str, voice_id: str | None = None) -> None:
    """Bind the institution, and the call if given, to the log context of this task."""
    bind_contextvars(institution=institution_key, **({} if voice_id is None else {"voice_id": voice_id}))


def follow_trace(trace: str | None = None) -> str:
    """Bind a trace to the log, requests and spans of this task, a new one if none is given, and return it."""
    trace = trace or new_trace()
    bind_contextvars(trace_id=trace)
    follow(trace)
    return trace


@dataclass(frozen=True, slots=True)
class Tools:
    """What all calls of a shift share: the store, the service and its gate, the rules, the clocks and the log.

    Raises:
        ValueError: The client's request deadline differs from the one that the store's lease is made for.
    """

    store: Store
    listings: Listings
    service: Reseller
    gate: ServiceGate
    clock: ServiceClock
    book: RuleBook
    requested_by: Callable[[str], str]
    monotonic: Callable[[], float]
    log: Any
    counting: Counting = field(default_factory=Counting)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    cpu_share: Callable[[], float] = lambda: 0.0

    def __post_init__(self) -> None:
        deadline_s, request_s = self.service.deadline_s, self.store.lease.request_s
        if deadline_s != request_s:
            raise ValueError(
                f"the client's request deadline is {deadline_s:g} s, but leases are made for {request_s:g} s"
            )


_UNDER_WAY = frozenset({Phase.LIVE, Phase.ENDED})

FORGET = b"-"
"""Written in place of a record to delete the member."""


class Claim(msgspec.Struct):
    """A call while a worker holds its lease.

    ``entries`` are added to the trail with the next write. ``permits`` is how many requests may be sent at once.
    ``has_assigned`` tells whether an assign of ours was applied. ``traces`` are those of the events that led to the claim,
    the newest first.
    """

    tools: Tools
    institutions: Institutions
    item: ClaimedItem
    call_id: CallId
    call: Call
    summary: JobSummary
    entries: list[Entry] = []
    claimed_at_s: float = 0.0
    lapses: int = 0
    permits: int = 0
    has_assigned: bool = False
    is_over: bool = False
    traces: Sequence[str] = ()

    @classmethod
    def begin(
        cls, tools: Tools, institutions: Institutions, item: ClaimedItem, call_id: CallId, summary: JobSummary
    ) -> "Claim":
        """Read the record, apply a change of the Redis epoch, and fold the notes.

        Raises:
            NewerRecord: A newer release wrote the record or a note.
            msgspec.MsgspecError: The stored record or a note does not have our format.
        """
        summary.add("calls")
        notes = sorted(map(parse_note, item.notes.values()), key=fold_order)
        before = call = parse_call(item.record) if item.record else new_call(call_id, notes, item.now)
        call = replace(
            call,
            plan=replace(call.plan, checks_used=max(call.plan.checks_used, item.checks)),
            last_claim=_obstacles(call_id.institution_key, tools, institutions, item),
        )
        call, entries = _after_restarts(call, tools, item)
        for note in notes:
            call, lines = _noted(call, note, tools.book, item.now)
            entries += lines
        if item.is_erased and call.life.phase in _UNDER_WAY and call.names.phone_number is None:
            # Rules may ask for the number, which is not stored: without it they would decide otherwise in each claim.
            call = replace(call, plan=replace(call.plan, needs_verifying=True))
        is_found = before.life.phase is Phase.HINTED and call.life.phase is not Phase.HINTED
        is_first_look = any(isinstance(note, Listed) and note.is_first_look for note in notes)
        if item.lost is None and is_found and not _is_begun(notes):
            call, lines = _charged(call, tools, item, may_be_old=is_first_look)
            entries += lines
        known = _traces_behind(call, notes)
        trace = follow_trace(known[0] if known else None)
        if trace != call.trace:
            call = replace(call, trace=trace)
        tools.counting.folded(before, call, tools.book, item.now, is_first_look=is_first_look)
        return cls(tools, institutions, item, call_id, call, summary, entries, tools.monotonic(), traces=known)

    def span(self) -> AbstractContextManager[TraceSpan]:
        """Begin the claim's span. Events before the newest one have traces of their own, which it links to."""
        return span(
            "claim",
            SpanKind.CONSUMER,
            is_first=not self.traces,
            links=[first_span(trace) for trace in self.traces[1:]],
            institution=self.call_id.institution_key,
            voice_id=self.call_id.voice_id,
            notes=len(self.item.notes),
        )

    @property
    def now(self) -> datetime:
        """Return Redis's time at the claim plus the time that has passed in this process since."""
        return self.item.now + timedelta(seconds=self.tools.monotonic() - self.claimed_at_s)

    def context(self, *, is_silent: bool = False) -> Context:
        """Return what a decision must know now. ``is_silent``: the queue of a hint could not be listed since."""
        item = self.item
        return Context(self.call.last_claim, item.live, item.late, self.tools.cpu_share(), is_silent)

    @property
    def bot(self) -> str:
        """Return the core username for requests that no person asked for."""
        return self.tools.requested_by(self.call_id.institution_key)

    @property
    def pause(self) -> str | None:
        """Describe the pause that applies to the call: scope, operator and reason."""
        return self.item.pause.words if self.item.pause else None

    @property
    def spelled_id(self) -> str:
        """Return the call's id as the service spelled it last."""
        return self.call.names.spelled or self.call_id.voice_id

    async def look_up_earlier(self, *, anew: bool = False) -> None:
        """Look up what earlier calls of the member or number showed, if the call is under way: `EarlierCalls.look_up`."""
        if self.call.life.phase in _UNDER_WAY and self.call.last_claim.standing is None:
            book, look_up = self.tools.book, self.tools.store.earlier_calls.look_up
            days, policies = book.history_days, book.policies
            self.call = await look_up(self.call_id, self.call, policies=policies, days=days, now=self.now, anew=anew)

    def set_effect(self, kind: EffectKind, effect: Effect) -> None:
        self.call = with_effect(self.call, kind, effect)

    def in_force(self, kind: EffectKind) -> None:
        """Record that an effect is in force: count it, watch a call that was assigned, and plan a read for now."""
        self.summary.add(_IN_FORCE[kind])
        if kind is EffectKind.ASSIGN:
            self.call = assigned(self.call, self.tools.book, self.now)
            self.has_assigned = True
        if kind is EffectKind.REJECT:
            self.call = fold_rejected(self.call, self.now)
        self.call = replace(self.call, plan=replace(self.call.plan, next_read_at=self.now))

    def hold_back(self, because: str) -> None:
        """Write once into the trail that no request can be sent now, and why."""
        if self.call.written.held_back != because:
            self.entries.append(Entry(at=self.now, what="held_back", because=because))
            self.call = replace(self.call, written=replace(self.call.written, held_back=because))

    async def keep(
        self,
        *,
        only_if_no_notes: bool = False,
        book_check: int | None = None,
        unless_paused: PauseScope | None = None,
        replicated: bool = False,
    ) -> None:
        """Write the record, keep the claim and renew the lease.

        Raises:
            WriteRefused: The lease is gone, or a condition of this write does not hold.
        """
        self.call = replace(self.call, saved_at=self.now, revision=self.call.revision + 1)
        await self.tools.store.keep(
            self.item,
            encode_call(self.stored),
            entries=self.entries,
            book_check=book_check,
            only_if_no_notes=only_if_no_notes,
            unless_paused=unless_paused,
            replicated=replicated,
        )
        self._count()

    async def renew_lease(self) -> None:
        """Renew the lease while an answer is late. Raises as `keep`."""
        await self.tools.store.keep(self.item)

    async def let_go(self, until: datetime | None) -> None:
        """Write the record and release the call. It is due again at ``until``; None: only when something wakes it."""
        due_in_ms = None if until is None else max(0, int((until - self.now).total_seconds() * 1000) + 1)
        listed: ListName = "live" if self.call.life.phase in _UNDER_WAY else ""
        entry = entry_expected(self.call) if self.has_assigned else ""
        why = attention(self.call, self.tools.book.maximum_age_s)
        await self.save(Placement(due_in_ms, listed=listed, attention=why, entry=entry))

    async def save(self, placement: Placement) -> None:
        """Write the record and release it."""
        now = self.now
        self.call = await self.tools.store.members.follow(self.call_id, self.call, now)
        await self.keep_marks()
        self.call = replace(self.call, saved_at=now, revision=self.call.revision + 1)
        await self._write(encode_call(self.stored), placement)

    @property
    def stored(self) -> Call:
        """The record as it is stored: if it was erased, without the number and the names that events have brought back."""
        if self.item.is_erased:
            return without_caller(self.call)
        return without_names(self.call, self.item.unnamed) if self.item.unnamed else self.call

    async def keep_marks(self) -> None:
        """Store what later calls of the member and the number must know of this one."""
        days, policies = self.tools.book.history_days, self.tools.book.policies
        keep = self.tools.store.earlier_calls.keep
        kept = await keep(self.call_id, self.stored, policies=policies, days=days, now=self.now)
        seen = replace(self.call.seen, earlier_marks=kept.seen.earlier_marks)
        self.call = replace(self.call, ledger=kept.ledger, seen=seen)

    async def forget(self) -> None:
        """Delete the record. Its trail stays for a day."""
        await self._write(FORGET, Placement(None))

    async def _write(self, record: bytes, placement: Placement) -> None:
        await self.tools.store.save(
            self.item, record, placement, entries=self.entries, checks=self.call.plan.checks_used
        )
        self._count()
        self.is_over = True

    def _count(self) -> None:
        self.tools.counting.wrote(self.call, self.entries)
        if self.entries:
            happened = [word for entry in self.entries for word in _words_of(entry)]
            self.summary.handled(self.call_id.voice_id, happened, self.call.plan.checks_used)
        self.entries = []

    async def renew_token(self) -> bool:
        """Log in after a 401, at most once per claim. Return whether another try makes sense."""
        self.lapses += 1
        if self.lapses > 1:
            return False
        try:
            await self.tools.service.renew()
        except ResellerError as error:
            self.tools.log.warning("login_failed", error=type(error).__name__)
            return False
        return True


_IN_FORCE = {EffectKind.ASSIGN: "assigned", EffectKind.ENROLL: "enrolled", EffectKind.REJECT: "rejected"}


def _words_of(entry: Entry) -> Iterator[str]:
    """Yield the words of the job's summary for an entry of a call's trail."""
    if entry.what in {"settled", "dropped", "parked"}:
        yield f"settled ({entry.because})" if entry.what == "settled" else entry.what
    elif entry.what in {"answered", "established"} and entry.kind is not None and entry.state is not None:
        yield _IN_FORCE[EffectKind(entry.kind)] if entry.state in DONE else f"{entry.kind} {entry.state}"
    yield from (colour for colour in ("red", "green") if entry.facts and entry.facts.get(colour))


def _obstacles(institution_key: str, tools: Tools, institutions: Institutions, item: ClaimedItem) -> Obstacles:
    """Return what keeps requests for the institution's calls back now."""
    held_until = item.epoch.since + tools.store.lease.hold
    return Obstacles(
        standing=institutions.obstacle(institution_key),
        standing_held_until=institutions.held_until(institution_key, item.now),
        paused=item.pause.scope if item.pause else None,
        effects_held_until=held_until if held_until > item.now else None,
    )


def _charged(call: Call, tools: Tools, item: ClaimedItem, *, may_be_old: bool) -> tuple[Call, list[Entry]]:
    """Count the checks that a lost record may have spent on a call that has just been found; see `redis_restart`."""
    age = tools.clock.found(call.life.started_at, item.now, item.epoch, may_be_old=may_be_old)
    charged = charge_earlier_record(call, tools.book, item.epoch, item.now, age=age)
    return charged, spent_checks(call, charged, item.now)


def _traces_behind(call: Call, notes: Sequence[Note]) -> list[str]:
    """Return the traces of the events that led to a claim, the newest first; the record's own is the oldest."""
    own = [call.trace] if call.trace is not None and is_trace(call.trace) else []
    return list(dict.fromkeys([*traces_of(notes), *own]))


def _is_begun(notes: Iterable[Note]) -> bool:
    """Tell whether a live record was merged into this one. Lost checks were charged when that was found."""
    return any(isinstance(note, Merged) and note.call.life.phase in _UNDER_WAY for note in notes)


def _after_restarts(call: Call, tools: Tools, item: ClaimedItem) -> tuple[Call, list[Entry]]:
    """Return a call with what became of Redis since its record was saved.

    First what a rollback may have lost, because that is counted by the clock of then; then the instants by today's clock.
    """
    if item.lost is not None:
        call = charge_lost_writes(call, tools.book, item.lost)
    call = catch_up(call, tools.store.jumps)
    call = charge_unknown_age(call, tools.book, item.epoch)
    return fold_epoch(call, item.epoch.id, must_verify=item.lost is not None, now=item.now)


def _noted(call: Call, note: Note, book: RuleBook, now: datetime) -> tuple[Call, list[Entry]]:
    """Return a call with a note, and the lines for its trail."""
    folded, lines = fold_note(call, note, now)
    if isinstance(note, Verified | Distrusted):
        folded = as_heard(call, folded, book)
    elif isinstance(note, Resolved) and folded.is_settled and _states(folded) != _states(call):
        folded = settled_anew(folded, book, now)
    return folded, lines


def _states(call: Call) -> list[EffectState]:
    return [call.effect(kind).state for kind in EffectKind]

"""The live calls that this process knows, and a call as one line of the board.

Of a person the board shows the last digits of a phone number. The page of an institution adds the assigned member's name,
which tells two calls with the same digits apart.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from callkeeper.calls.context import Context
from callkeeper.calls.decide import decide
from callkeeper.calls.effect_ledger import IN_DOUBT, EffectKind
from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.facts import Facts
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call, Phase
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.schedule.plan import automatic_checks
from callkeeper.calls.steps import Check, Deed, Intend, Read, Send, Wait, WriteDecision, WriteFacts
from callkeeper.calls.stop_rule import check_obstacle
from callkeeper.calls.store.queries import Queries
from callkeeper.desk.board.states import STATE_STYLES, CallState, StateName, StateStyle, state_of
from callkeeper.desk.feed import CallChange


@dataclass(frozen=True, slots=True)
class Next:
    """What happens next, and when; without an instant it happens by itself."""

    words: str
    at: datetime | None = None
    form: str = ""
    """The form of the call's page by which a person does it."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """One line. ``slot`` names its place in the page; ``since`` is the call's start, or when it was first seen.

    ``assignee``: the name of the assigned member. The board leaves it out, pages of one institution show it.
    """

    slot: str
    institution_key: str
    address: str
    state: CallState
    last_digits: str
    since: datetime | None
    candidates: int
    is_assigned: bool
    checks_used: int
    next: Next
    tags: tuple[str, ...]
    assignee: str

    @property
    def style(self) -> StateStyle:
        return STATE_STYLES[self.state.name]


def row_of(call: Call, book: RuleBook, state: CallState | None = None) -> CallRow:
    """Return a call's line. The state is computed unless it is given."""
    facts = facts_of(call, call.last_claim, book.policies)
    if state is None:
        state = state_of(call, book)
    call_id = CallId(call.institution_key, call.voice_id)
    return CallRow(
        slot=slot_of(call_id.member),
        institution_key=call.institution_key,
        address=address_of(call_id),
        state=state,
        last_digits=call.names.last_digits,
        since=call.life.began_at,
        candidates=len(call.seen.candidates),
        is_assigned=facts.assigned,
        checks_used=call.plan.checks_used,
        next=next_of(call, facts, book),
        tags=_tags(call, facts, state.name),
        assignee=assignee_of(call),
    )


def assignee_of(call: Call) -> str:
    """Return the name of the assigned member; empty if there is none."""
    return next((person.name for person in call.seen.candidates if person.person_id == call.seen.person_id), "")


def slot_of(member: str) -> str:
    """Return the name of a call's place in the page: an id that is valid in markup, scripts and styles."""
    return f"c-{sha256(member.encode()).hexdigest()[:16]}"


def address_of(call_id: CallId) -> str:
    """Return the address of a call's own page, below the board's."""
    return f"calls/{quote(call_id.institution_key, safe='')}/{quote(call_id.voice_id, safe='')}"


def next_of(call: Call, facts: Facts, book: RuleBook) -> Next:
    """Return what the worker has planned for a call, computed by the worker's own function.

    It is computed for the moment of the last write, when the plan was made.
    """
    if call.is_settled:
        return Next("closed")
    now = call.saved_at or call.life.first_seen_at
    if now is None:
        return Next("a first look")
    match _step(call, facts, book, now):
        case Check():
            return Next("check", now)
        case Send(kind) | Intend(kind):
            return Next(str(kind), now)
        case Read():
            return Next("read", now)
        case Wait(until):
            return _awaited(call, facts, book, until)
        case _:
            return _awaited(call, facts, book, call.plan.next_read_at or now)


def _step(call: Call, facts: Facts, book: RuleBook, now: datetime) -> Deed:
    """Return the next step that is more than a line in the trail (for example if the workers use other rules)."""
    for _ in range(3):
        decided = decide(call, Context(call.last_claim), book, now)
        step = decided.then if isinstance(decided, WriteFacts) else decided
        match step:
            case WriteDecision(verdict) if isinstance(verdict, Verdict):
                call = replace(call, written=replace(call.written, verdict=verdict.fingerprint, facts=facts.signature))
            case WriteDecision(verdict):
                call = replace(call, written=replace(call.written, assignment=verdict.fingerprint))
            case _:
                return step
    return step


def _awaited(call: Call, facts: Facts, book: RuleBook, until: datetime) -> Next:
    if call.life.phase is Phase.HINTED:
        return Next("to be listed")
    doubts = [kind for kind in EffectKind if call.effect(kind).state in IN_DOUBT]
    if doubts:
        return Next(f"find out what became of the {doubts[0]}", until)
    if facts.ended:
        return Next("a last read", until)
    if facts.allowed and not facts.assigned and len(call.seen.candidates) > 1:
        return Next(f"choose: {len(call.seen.candidates)} candidates", form="assign")
    limit = book.schedule.automatic_limit if facts.assigned else book.checks_unassigned
    may_check = check_obstacle(call, call.last_claim, book.policies) is None
    if may_check and call.plan.next_check_at is not None and automatic_checks(call) < limit:
        return Next("checks paused") if facts.paused_entirely else Next("check", call.plan.next_check_at)
    if may_check and facts.assigned:
        return Next("checks spent, watching until the call ends")
    if not facts.allowed:
        return Next("left alone")
    if facts.assigned:
        return Next("watching until the call ends")
    if call.seen.core_username is not None:
        return Next("claimed by somebody else")
    return Next("to be assigned" if facts.candidates else "no candidate")


def _tags(call: Call, facts: Facts, state: StateName) -> tuple[str, ...]:
    """Return short notes about the call."""
    shown = (
        (facts.ended and not call.is_settled and state is not StateName.ENDED, "ended"),
        (facts.voice_mismatch and state is not StateName.MISMATCH, "voice mismatch"),
        (facts.high_risk_device, "risky device"),
        (facts.red_seen and not facts.red, "red policy seen"),
        (facts.research is not None, f"research: {facts.research}"),
        (facts.research_elsewhere is not None, f"research of another call: {facts.research_elsewhere}"),
        (facts.fraud_before, "fraud before"),
        (facts.rejected_before, "rejected before"),
        (facts.unenrolled_before, "enroll taken back before"),
        (facts.suspected_before, "suspected before"),
        (facts.opted_out_before, "opted out before"),
        (facts.provider_error and state is not StateName.PROVIDER_ERROR, "provider error"),
        (facts.unclassified, "policy without colour"),
        (facts.opted_out, "opted out"),
        (facts.distrusted and not facts.rejected and state is not StateName.DISTRUSTED, "distrusted"),
        (facts.verified and not facts.enrolled, "verified"),
        (bool(call.seen.core_username) and not facts.assigned_by_us, "claimed"),
    )
    return tuple(word for holds, word in shown if holds)


BREATH: Final = 50
"""How many calls are read at a stretch, so that the process can serve others in between."""


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A live call and its state, by which calls are counted and sorted. ``slot`` names its place in the page."""

    slot: str
    call: Call
    state: CallState

    @property
    def since(self) -> datetime | None:
        """Return the call's start, or when it was first seen."""
        return self.call.life.began_at

    @property
    def style(self) -> StateStyle:
        return STATE_STYLES[self.state.name]

    @property
    def waits_for_choice(self) -> bool:
        """Tell whether it waits until a person has chosen the caller among several candidates."""
        return self.state.name is StateName.UNASSIGNED and len(self.call.seen.candidates) > 1

    @property
    def last_digits(self) -> str:
        return self.call.names.last_digits

    @property
    def address(self) -> str:
        """Return the address of the call's own page, below the board's."""
        return address_of(CallId(self.call.institution_key, self.call.voice_id))


class LiveCalls:
    """The live calls, by member. A call that has not changed stays the same object."""

    def __init__(self, queries: Queries, book: RuleBook) -> None:
        self._queries = queries
        self._book = book
        self._calls: dict[str, LiveCall] = {}

    async def load(self) -> None:
        calls: dict[str, LiveCall] = {}
        async for call in self._queries.live():
            member = _member(call)
            known = self._calls.get(member)
            calls[member] = known if known is not None and known.call == call else self._live(member, call)
            if len(calls) % BREATH == 0:
                await asyncio.sleep(0)
        self._calls = calls

    def apply(self, change: CallChange) -> None:
        call, member = change.call, change.call_id.member
        if call is None or call.is_settled or _member(call) != member:  # gone, over, or one with another record now
            self._calls.pop(member, None)
        if call is None:
            return
        if call.is_settled:
            self._calls.pop(_member(call), None)
        else:
            self._calls[_member(call)] = self._live(_member(call), call)

    def _live(self, member: str, call: Call) -> LiveCall:
        return LiveCall(slot_of(member), call, state_of(call, self._book))

    def __iter__(self) -> Iterator[LiveCall]:
        """Yield the calls in no order."""
        return iter(self._calls.values())

    def __len__(self) -> int:
        return len(self._calls)


def _member(call: Call) -> str:
    return CallId(call.institution_key, call.voice_id).member

"""Moves one claimed call on: fold what was said, decide, act, until there is nothing to do but wait.

A ``Move`` lives for one claim. What it changes is written by the store's fenced writes only; when one is refused the move
ends there, and whoever holds the call now goes on from what was written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, assert_never

from msgspec.structs import replace

from calls.assigning import Assignment
from calls.decide import decide, next_read, read_retry
from calls.facts import STATUSES, facts_of
from calls.fold import assigned, fold_epoch, fold_note, fold_reading, new_call, with_effect
from calls.keys import CallId
from calls.notes import Merged, encode_note, parse_note
from calls.pause import PauseScope
from calls.policies import Colour
from calls.reading import reading_of
from calls.record import (
    Call,
    Effect,
    EffectKind,
    EffectState,
    Phase,
    Reading,
    Reason,
    Word,
    encode_call,
    parse_call,
)
from calls.rules.book import RuleBook
from calls.steps import (
    Check,
    Drop,
    Establish,
    Intend,
    Look,
    Note,
    NoteFacts,
    Read,
    Rest,
    Send,
    Settle,
    Step,
    Wait,
    Withdraw,
)
from calls.store import Ask, Held, LeaseLost, Placement, Store
from calls.trail import Entry
from calls.verdict import Verdict, table
from calls.watch import charge_lost_bookings, check_answered, check_booked, check_failed
from reseller import (
    CallNotFound,
    NotSent,
    OutcomeUnknown,
    PhoneCall,
    ResellerError,
    ServiceRefused,
    TokenLapsed,
    Unsendable,
    ValidationType,
)
from workers.crashpoints import Crashpoints
from workers.noticing import PauseNotice
from workers.service import Service
from workers.tally import Tally

MAX_STEPS = 16
"""Steps in one claim; more means that two of them undo each other."""

FROZEN_S = 1.8
"""Between asking Redis to write ``sent`` and the first byte; later, and the lease (8 s, counted from that write) might end
before the deadline of the request (6 s) does. Redis may write any time after it was asked, so the asking is what counts."""

_STOPPED_BY = {
    EffectKind.ASSIGN: PauseScope.ALL,
    EffectKind.ENROLL: PauseScope.EFFECTS,
    EffectKind.REJECT: PauseScope.EFFECTS,
}
"""The least pause under which an effect is not sent, asked once more by the write that books it."""

FORGET = b"-"

_BOOKS = (Check, Intend, Send)
"""Steps that book or send something."""


class FrozenTooLong(Exception):
    """The process stood still between booking an effect and sending it: the lease no longer covers the request."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What every move works with."""

    store: Store
    service: Service
    book: RuleBook
    requested_by: Callable[[str], str]
    monotonic: Callable[[], float]
    log: Any
    crash: Crashpoints = field(default_factory=Crashpoints)
    pauses: PauseNotice = field(default_factory=PauseNotice)


@dataclass(slots=True)
class Move:
    """One claim of one call."""

    tools: Tools
    held: Held
    call_id: CallId
    call: Call
    tally: Tally
    entries: list[Entry] = field(default_factory=list)
    claimed_at_s: float = 0.0
    lapses: int = 0
    is_over: bool = False
    doing: str = "wait"
    """What this claim is about: the step that crash points of its save are named after."""

    @classmethod
    def begin(cls, tools: Tools, held: Held, call_id: CallId, standing: str | None, tally: Tally) -> "Move":
        """Read the record, take over the epoch, fold the notes.

        Raises:
            msgspec.MsgspecError: The stored record or a note is not one of ours.
        """
        tools.crash.pass_by("call.claimed")
        notes = [parse_note(note) for note in held.notes.values()]
        call = parse_call(held.record) if held.record else new_call(call_id, notes, held.now)
        pause = held.pauses.over(call_id.institution_key)
        paused = pause.scope if pause else None
        call = replace(call, checks_used=max(call.checks_used, held.checks), standing=standing, paused=paused)
        call, entries = fold_epoch(call, held.epoch, must_verify=held.must_verify, now=held.now)
        if entries:
            call = charge_lost_bookings(call, tools.book.schedule, held.now)
        for note in notes:
            call, lines = fold_note(call, note, tools.book, held.now)
            entries += lines
        tools.crash.pass_by("call.folded")
        return cls(tools, held, call_id, call, tally, entries, tools.monotonic())

    @property
    def now(self) -> datetime:
        """Return Redis's time at the claim plus what has passed here since."""
        return self.held.now + timedelta(seconds=self.tools.monotonic() - self.claimed_at_s)

    async def run(self) -> None:
        """Take steps until the call is let go.

        Raises:
            LeaseLost: Somebody else moves the call now.
            RuntimeError: The steps do not come to an end: a bug in ``decide``.
        """
        for _ in range(MAX_STEPS):
            await self._take(self._through_the_gate(decide(self.call, self.tools.book, self.now)))
            if self.is_over:
                return
        raise RuntimeError(f"no end after {MAX_STEPS} steps")

    async def _take(self, step: Step) -> None:
        match step:
            case Read():
                await self._read()
            case Check():
                await self._check(by_desk=step.by_desk)
            case Wait():
                await self._let_go(step.until)
            case Intend():
                await self._intend(step)
            case Send():
                await self._send(step.kind)
            case Look():
                await self._look()
            case Withdraw():
                self._withdraw(step)
            case Establish():
                self._establish(step)
            case Note():
                self._note(step.verdict)
            case NoteFacts():
                self._note_facts()
            case Settle():
                await self._settle(step.reason)
            case Drop():
                await self._drop(step)
            case Rest():
                await self._let_go(None)
            case _:
                assert_never(step)

    def _through_the_gate(self, step: Step) -> Step:
        """Return the step, or what takes its place while the service is away: a wait, or a free read to try it."""
        gate = self.tools.service.gate
        shut_until = gate.wait(self.now)
        if shut_until is not None and isinstance(step, (Read, *_BOOKS)):
            self.entries.append(Entry(at=self.now, what="held_back", because="the service is away"))
            return Wait(shut_until)
        return Read("probe") if gate.is_probing and isinstance(step, _BOOKS) else step

    # Letting go

    async def _let_go(self, until: datetime | None) -> None:
        due_in_ms = None if until is None else max(0, int((until - self.now).total_seconds() * 1000) + 1)
        await self._save(Placement(due_in_ms, listed=self._listing(), attention=_attention(self.call)))

    def _listing(self) -> str:
        return "live" if self.call.phase in {Phase.LIVE, Phase.ENDED} else ""

    async def _save(self, placement: Placement) -> None:
        self.call = replace(self.call, saved_at=self.now)
        await self._write(encode_call(self.call), placement)

    async def _write(self, record: bytes, placement: Placement) -> None:
        crash = self.tools.crash
        crash.pass_by(f"{self.doing}.before-save")
        await self.tools.store.save(self.held, record, placement, entries=self.entries, checks=self.call.checks_used)
        crash.pass_by(f"{self.doing}.after-save")
        self.is_over = True

    async def _keep(
        self,
        *,
        only_if_no_notes: bool = False,
        book_check: int | None = None,
        unless_paused: PauseScope | None = None,
    ) -> None:
        self.call = replace(self.call, saved_at=self.now)
        await self.tools.store.keep(
            self.held,
            encode_call(self.call),
            entries=self.entries,
            book_check=book_check,
            only_if_no_notes=only_if_no_notes,
            unless_paused=unless_paused,
        )
        self.entries = []

    async def _settle(self, reason: Reason) -> None:
        self.doing, now = "settle", self.now
        self.call = replace(self.call, phase=Phase.SETTLED, reason=reason, settled_at=now)
        digest = self.tools.book.digest
        self.entries.append(Entry(at=now, what="settled", because=reason, n=self.call.checks_used, rules=digest))
        await self._save(Placement(None, listed="settled", attention=_attention(self.call)))
        self.tally.add("settled")
        self.tools.log.info("call_settled", **self._names(), reason=reason, checks=self.call.checks_used)

    async def _drop(self, step: Drop) -> None:
        self.doing = "drop"
        self.entries.append(Entry(at=self.now, what="dropped", because=step.because, rules=self.tools.book.digest))
        await self._write(FORGET, Placement(None))
        self.tally.add("dropped")
        self.tools.log.info("hint_dropped", **self._names())

    # Asking

    async def _look(self) -> None:
        self.doing = "look"
        self.tools.crash.pass_by("look.before-asked")
        await self.tools.store.ask_to_look(self.call_id.institution_key, Ask.WIDE)
        self.tools.crash.pass_by("look.after-asked")
        self.call = replace(self.call, confirm_looks=self.call.confirm_looks + 1)

    async def _read(self) -> None:
        """Read stored details; whatever goes wrong is a read to repeat later."""
        self.tally.add("reads")
        if self.doing == "wait":
            self.doing = "read"
        try:
            phone_call = await self._details("read", self._bot)
        except ResellerError as error:
            self._read_failed(error)
            return
        await self._fold(phone_call)

    def _read_failed(self, error: ResellerError) -> None:
        call, now = self.call, self.now
        not_found_since = (call.not_found_since or now) if isinstance(error, CallNotFound) else None
        call = replace(call, not_found_since=not_found_since)
        self.call = replace(call, reads_failed=call.reads_failed + 1, next_read_at=read_retry(call, now))
        self.tools.log.warning("read_failed", **self._names(), error=type(error).__name__)

    async def _check(self, *, by_desk: bool) -> None:
        """Book one of the 20 checks, then make it; never refunded, never repeated without another booking."""
        call, now, n = self.call, self.now, self.call.checks_used + 1
        operator = call.check_wish.operator if by_desk and call.check_wish else None
        self.call = check_booked(call, self.tools.book.schedule, now)
        self.doing = "check"
        self.tools.crash.pass_by("check.before-booked")
        await self._keep(book_check=n)
        self.tools.crash.pass_by("check.after-booked")
        self.tally.add("checks")
        try:
            phone_call = await self._details("check", operator or self._bot)
        except ResellerError as error:
            self.entries.append(Entry(at=self.now, what="check_failed", n=n, because=type(error).__name__))
            self.tools.log.warning("check_failed", **self._names(), n=n, error=type(error).__name__)
            await self._after_lapse(error, call.check_wish if by_desk else None)
            return
        took_ms = int((self.now - now).total_seconds() * 1000)
        self.call = check_answered(self.call)
        await self._fold(phone_call, check=n, operator=operator, took_ms=took_ms)

    async def _details(self, kind: Literal["read", "check"], operator: str) -> PhoneCall:
        """Read the service's record of the call."""
        with self.tools.crash.during(f"{kind}.mid-request"):
            phone_call = await self.tools.service.details(
                self.call_id.institution_key, self.call_id.voice_id, check=kind == "check", requested_by=operator
            )
        self.tools.crash.pass_by(f"{kind}.after-request")
        return phone_call

    async def _after_lapse(self, error: ResellerError, wish: Word | None) -> None:
        """After a 401 log in, once a claim, and let the check be booked and made anew, for whoever wanted it.

        A refusal is an answer; after any other failure the next check is planned from the last answer.
        """
        if isinstance(error, TokenLapsed) and await self._renew():
            next_check_at = self.call.next_check_at if wish else self.now
            self.call = replace(self.call, check_wish=wish, next_check_at=next_check_at)
        elif not isinstance(error, ServiceRefused):
            self.call = check_failed(self.call, self.tools.book.schedule, self.now)

    async def _renew(self) -> bool:
        self.lapses += 1
        if self.lapses > 1:
            return False
        try:
            await self.tools.service.renew()
        except ResellerError as error:
            self.tools.log.warning("login_failed", error=type(error).__name__)
            return False
        return True

    async def _fold(
        self, phone_call: Any, *, check: int | None = None, operator: str | None = None, took_ms: int | None = None
    ) -> None:
        """Take an answer into the record; an answer about another voice id means that two records are one call."""
        now = self.now
        reading = reading_of(phone_call, now)
        if reading.voice_id and reading.voice_id != self.call_id.voice_id:
            await self._merge(reading.voice_id)
            return
        before, book = self.call, self.tools.book
        self.call = fold_reading(before, reading, book, now)
        self.call = replace(self.call, next_read_at=next_read(self.call, book, now))
        changed = _told(before) != _told(self.call)
        if changed:
            self._report_unknown(before.reading, reading)
        if check is not None or changed:
            self.entries.append(
                Entry(
                    at=now,
                    what="read" if check is None else "checked",
                    status=reading.status,
                    policies=reading.policies,
                    person_id=reading.person_id,
                    n=check,
                    took_ms=took_ms,
                    operator=operator,
                )
            )
        if self.call.end_seen_at is not None and before.end_seen_at is None:
            self.entries.append(Entry(at=now, what="ended"))

    def _report_unknown(self, before: Reading | None, reading: Reading) -> None:
        """Log names that nobody gave a meaning: never guessed, and a person should know of them."""
        known = before.policies if before else ()
        for policy in reading.policies:
            if policy not in known and self.tools.book.policies.colour(policy) is Colour.UNCLASSIFIED:
                self.tools.log.warning("policy_unclassified", **self._names(), policy=policy)
        if reading.status not in (None, before.status if before else None, *STATUSES):
            self.tools.log.warning("status_unknown", **self._names(), status=reading.status)

    async def _merge(self, voice_id: str) -> None:
        """Go on under the real voice id: this record becomes a tombstone, its knowledge a note."""
        other = CallId(self.call_id.institution_key, voice_id)
        await self._keep()
        note = encode_note(Merged(call=self.call))
        await self.tools.store.merge(self.held, self.call_id, other, note, checks=self.call.checks_used)
        self.is_over = True
        self.tools.log.info("calls_merged", **self._names(), into=voice_id)

    # Acting

    async def _intend(self, step: Intend) -> None:
        now, verdict = self.now, step.verdict
        if isinstance(verdict, Verdict):
            self._note(verdict)
        effect = Effect(
            state=EffectState.INTENDED,
            person_id=step.person_id,
            validation_type=step.validation_type,
            operator=step.operator,
            rule=verdict.rule if isinstance(verdict, Verdict) else None,
            because=verdict.because,
            intended_at=now,
            attempts=self.call.effect(step.kind).attempts,
            remark=self.call.identity.remark if step.kind is EffectKind.ENROLL and self.call.identity else None,
        )
        self.call = with_effect(self.call, step.kind, effect)
        self.entries.append(
            Entry(
                at=now,
                what="intended",
                kind=step.kind,
                person_id=step.person_id,
                validation_type=step.validation_type,
                because=verdict.because,
                operator=step.operator,
            )
        )
        self.doing = step.kind
        self.tools.crash.pass_by(f"{step.kind}.before-intended")
        await self._keep()
        self.tools.crash.pass_by(f"{step.kind}.after-intended")

    async def _send(self, kind: EffectKind) -> None:
        """Save ``sent``, send the one request, write down what came back."""
        now, intended = self.now, self.call
        effect, reading = intended.effect(kind), intended.reading
        operator = effect.operator or self._bot
        effect = replace(
            effect,
            state=EffectState.SENT,
            sent_at=now,
            attempts=effect.attempts + 1,
            status_before=reading.status if reading else None,
            updated_before=reading.updated_at if reading else None,
            requested_by=operator,
        )
        self.call = with_effect(intended, kind, effect)
        self.entries.append(Entry(at=now, what="sent", kind=kind, operator=operator, n=effect.attempts))
        self.doing = kind
        self.tools.crash.pass_by(f"{kind}.before-sent")
        booked_at_s = self.tools.monotonic()
        try:
            await self._keep(only_if_no_notes=True, unless_paused=_STOPPED_BY[kind])
        except LeaseLost as lost:
            if lost.why not in {"notes", "paused"}:
                raise
            self.entries.pop()
            self.call = intended
            await self._let_go(self.now)
            return
        self.tools.crash.pass_by(f"{kind}.after-sent")
        state = await self._request(kind, effect, operator, booked_at_s)
        self.tools.crash.pass_by(f"{kind}.after-request")
        if not self.is_over:
            self._answered(kind, state)
            if state is EffectState.INTENDED:
                await self._let_go(self.now + timedelta(seconds=3))

    async def _request(self, kind: EffectKind, effect: Effect, operator: str, booked_at_s: float) -> EffectState:
        """Send the request of an effect and return what its ledger has to say of it."""
        crash = self.tools.crash

        def guard() -> None:
            if self.tools.monotonic() - booked_at_s > FROZEN_S:
                raise FrozenTooLong
            crash.pass_by(f"{kind}.first-byte")

        try:
            with crash.during(f"{kind}.mid-request"):
                await self._emit(kind, effect, operator, guard)
        except (ServiceRefused, Unsendable):
            return EffectState.REFUSED
        except NotSent as error:
            self.tools.log.warning("effect_not_sent", **self._names(), kind=kind, error=type(error).__name__)
            return EffectState.INTENDED
        except TokenLapsed:
            return await self._effect_lapsed(kind)
        except (OutcomeUnknown, ResellerError) as error:
            self.tools.log.warning("effect_in_doubt", **self._names(), kind=kind, error=type(error).__name__)
            return EffectState.UNKNOWN
        return EffectState.APPLIED

    async def _emit(self, kind: EffectKind, effect: Effect, operator: str, guard: Callable[[], None]) -> None:
        service, (institution_key, voice_id) = self.tools.service, self.call_id
        match kind:
            case EffectKind.ASSIGN:
                real = await service.assign(
                    institution_key,
                    person_id=effect.person_id or "",
                    requested_by=operator,
                    voice_id=voice_id,
                    guard=guard,
                )
                if real != voice_id:
                    self._answered(kind, EffectState.APPLIED)
                    await self._merge(real)
            case EffectKind.ENROLL:
                await service.enroll(
                    institution_key,
                    voice_id,
                    person_id=effect.person_id or "",
                    validation_type=ValidationType(effect.validation_type or ValidationType.OTHER),
                    notes=effect.remark or effect.because,
                    requested_by=operator,
                    guard=guard,
                )
            case EffectKind.REJECT:
                await service.reject_voice(institution_key, voice_id, requested_by=operator, guard=guard)

    async def _effect_lapsed(self, kind: EffectKind) -> EffectState:
        """A 401 did not get past authentication: renew, then read and book anew, from a new intention."""
        await self._renew()
        effect = self.call.effect(kind)
        self.call = with_effect(self.call, kind, replace(effect, was_read_since=False))
        return EffectState.INTENDED

    def _answered(self, kind: EffectKind, state: EffectState) -> None:
        now, effect = self.now, self.call.effect(kind)
        self.call = with_effect(self.call, kind, replace(effect, state=state))
        self.entries.append(Entry(at=now, what="answered", kind=kind, state=state))
        if state is EffectState.APPLIED:
            self._in_force(kind)
        self.tools.log.info("effect_answered", **self._names(), kind=kind, state=state)

    def _in_force(self, kind: EffectKind) -> None:
        self.tally.add({"assign": "assigned", "enroll": "enrolled", "reject": "rejected"}[kind])
        if kind is EffectKind.ASSIGN:
            self.call = assigned(self.call, self.tools.book, self.now)
        self.call = replace(self.call, next_read_at=self.now)

    def _withdraw(self, step: Withdraw) -> None:
        effect = Effect(attempts=self.call.effect(step.kind).attempts)
        self.call = with_effect(self.call, step.kind, effect)
        self.entries.append(Entry(at=self.now, what="withdrawn", kind=step.kind, because=step.because))

    def _establish(self, step: Establish) -> None:
        effect = replace(self.call.effect(step.kind), state=step.state)
        self.call = with_effect(self.call, step.kind, effect)
        self.entries.append(Entry(at=self.now, what="established", kind=step.kind, state=step.state))
        if step.state is EffectState.CONFIRMED:
            self._in_force(step.kind)
        if step.state is EffectState.UNRESOLVED:
            self.tools.log.error("effect_unresolved", **self._names(), kind=step.kind)

    def _note(self, verdict: Verdict | Assignment) -> None:
        """Write a decision down with all that explains it."""
        if isinstance(verdict, Assignment):
            self._note_assignment(verdict)
            return
        facts, book = facts_of(self.call, self.tools.book.policies), self.tools.book
        reading = self.call.reading
        self.call = replace(self.call, last_verdict=verdict.fingerprint, last_facts=facts.signature)
        self.entries.append(
            Entry(
                at=self.now,
                what="decided",
                kind=verdict.outcome,
                asked=verdict.asked,
                rule=verdict.rule,
                rules=book.digest,
                because=verdict.because,
                validation_type=verdict.validation_type,
                forbidden=verdict.forbidden,
                facts=facts.as_dict(),
                policies=reading.policies if reading else (),
                tried=table(facts, book, self.call_id.institution_key),
                pause=self._pause,
            )
        )

    def _note_assignment(self, assignment: Assignment) -> None:
        self.call = replace(self.call, last_assignment=assignment.fingerprint)
        self.entries.append(
            Entry(
                at=self.now,
                what="decided",
                kind="hold",
                asked="assign",
                rules=assignment.rules,
                because=assignment.because,
                operator=assignment.operator,
                forbidden=assignment.forbidden,
                candidates=len(self.call.candidates),
                pause=self._pause,
            )
        )

    def _note_facts(self) -> None:
        facts, reading = facts_of(self.call, self.tools.book.policies), self.call.reading
        self.call = replace(self.call, last_facts=facts.signature)
        policies = reading.policies if reading else ()
        self.entries.append(Entry(at=self.now, what="facts", facts=facts.as_dict(), policies=policies))

    @property
    def _pause(self) -> str | None:
        """Say what pause the call is under, by whom and why."""
        pause = self.held.pauses.over(self.call_id.institution_key)
        return pause.words if pause else None

    @property
    def _bot(self) -> str:
        return self.tools.requested_by(self.call_id.institution_key)

    def _names(self) -> dict[str, str]:
        return {"institution": self.call_id.institution_key, "voice_id": self.call_id.voice_id}


def _attention(call: Call) -> str:
    for kind in (EffectKind.ENROLL, EffectKind.REJECT):
        if call.effect(kind).state is EffectState.UNRESOLVED:
            return f"{kind} unresolved"
    return ""


def _told(call: Call) -> tuple[object, ...]:
    """Return what of a reading is worth a line when it changes."""
    reading = call.reading
    if reading is None:
        return ()
    return reading.status, reading.policies, reading.person_id, reading.has_ended, reading.research_status

"""Checks every request that reaches the service, and reports a broken promise at that moment.

The judge compares each request with three sources: the sandbox (what really happened), its own memory (what people
stated and what the service answered), and our trail and record as they are in Redis at that moment.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
import msgspec

from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.effect_ledger import DONE, EffectKind, EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import AssignWish, Distrusted, Note, Resolved, Statement, Verified
from callkeeper.calls.policies import MANUAL_GREEN
from callkeeper.calls.record import Call, CallStatement, Identity, Reason
from callkeeper.calls.trail import Entry
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Call as SandboxCall
from tests.faults.seams import Witness
from tests.sandbox_fixtures import KEY, Asgi

CHECKS = 20
FRESH_S = 3.0
"""An effect is booked at most 2 s after the read before it, and sent at most 1 s after its booking."""

REJECTED = frozenset({"RejectCallerVoice", "RejectCallerVoiceFromValidationRule"})
EFFECTS = {
    EffectKind.ASSIGN: Operation.ASSIGN,
    EffectKind.ENROLL: Operation.ENROLL,
    EffectKind.REJECT: Operation.REJECT_VOICE,
}
MAX_REQUESTS = 2
"""How many requests of one enroll or reject may arrive. The second one is sent only after a 401."""
ONCE = (EffectKind.ENROLL, EffectKind.REJECT)
NOTHING_SENT = frozenset({EffectState.NONE, EffectState.INTENDED})


class Said(NamedTuple):
    """An accepted statement, and the id under which it was made."""

    place: CallId
    statement: Statement


@dataclass(slots=True)
class Memory:
    """What the judge remembers of one call. It is rolled back together with Redis."""

    verified: set[str] = field(default_factory=set)
    distrusts: int = 0
    """How often somebody stated distrust. Each statement allows one reject."""
    verifications: int = 0
    """How often somebody verified the caller. After an answer that an enroll was not applied, that allows one more."""
    absent: int = 0
    """How often somebody answered that an effect was not applied."""
    wished: set[str] = field(default_factory=set)
    is_resolved: bool = False
    said: list[Said] = field(default_factory=list)

    def heard(self, note: Note) -> None:
        """Remember what a person said."""
        match note:
            case Verified(person_id=person):
                self.verified.add(person)
                self.verifications += 1
            case AssignWish(person_id=person):
                self.wished.add(person)
            case Distrusted():
                self.distrusts += 1
            case Resolved(applied=is_applied):
                self.is_resolved = True
                self.absent += not is_applied
            case _:
                pass


@dataclass(slots=True)
class Answered:
    """The service's last answer about a call."""

    at: dt.datetime
    record: dict[str, Any]


@dataclass(slots=True)
class Lost:
    """What a rollback of Redis removed from a call: effects that may be sent once more, by kind."""

    effects: dict[EffectKind, int] = field(default_factory=lambda: defaultdict(int))
    bookings: int = 0
    """Booked checks that are missing from the record until the call is claimed again."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What Redis stores about a call, under both of its ids."""

    records: tuple[Call, ...]
    checks: int


Load = Callable[[str], Awaitable[tuple[Call | None, tuple[Entry, ...]]]]
"""Returns our record and trail of a call, by its real voice id."""


class Judge(Witness):
    """Checks every request against the promises."""

    def __init__(self, stage: Asgi, load: Load) -> None:
        super().__init__()
        self._stage = stage
        self._load = load
        self.memories: dict[str, Memory] = defaultdict(Memory)
        self.lost: dict[str, Lost] = defaultdict(Lost)
        self.answered: dict[str, Answered] = {}
        self.refused: set[tuple[str, Operation]] = set()
        self.late: set[tuple[str, EffectKind]] = set()
        self.samples: set[str] = set()
        self.rolled_back_at: dt.datetime | None = None
        self.jumped_since_s = 0.0
        """By how much Redis's clock has jumped ahead since."""
        self.is_worker_new = False
        """Whether a worker has been replaced since."""

    def of(self, call: SandboxCall) -> Memory:
        """Return the memory of a call."""
        return self.memories[call.voice_id]

    async def request(self, request: httpx.Request, *, was_frozen: bool) -> None:
        """Judge a request that reaches the service.

        A process that was frozen directly before the first byte may still send the booked request when it goes on. Such
        a request is only counted.
        """
        assert request.headers.get("InstitutionKey", KEY) not in {"cu-foreign", "cu-nowhere"}, "a foreign institution"
        named = self._named(request)
        if named is None:
            return
        operation, given_id = named
        assert given_id not in self.samples, "a sample push led to a request"
        kind = next((kind for kind, op in EFFECTS.items() if op == operation), None)
        call = self._stage.world.any_call(given_id)
        if kind is None or call is None:
            return
        assert call.institution_key == KEY, "an effect for an institution in test mode"
        if was_frozen:
            self.late.add((call.voice_id, kind))
            return
        await self._effect(kind, call, given_id, request)

    def answer(self, request: httpx.Request, response: httpx.Response) -> None:
        """Remember the service's answer about a call, and whether it refused an effect."""
        named = self._named(request)
        if named is None:
            return
        operation, given_id = named
        call = self._stage.world.any_call(given_id)
        try:
            said = response.json()
        except ValueError:
            return
        if operation not in {Operation.READ, Operation.CHECK}:
            if call is not None and said.get("success") is False:
                self.refused.add((call.voice_id, operation))
            return
        if response.status_code != 200:
            return
        record = said.get("phoneCall") or said
        if call is not None and record.get("voiceId") == call.voice_id:
            self.answered[call.voice_id] = Answered(self._stage.clock.now, record)

    def _named(self, request: httpx.Request) -> tuple[Operation, str] | None:
        parts = request.url.path.split("/")
        if parts[:3] != ["", "external", "calls"] or parts[3] == "queue":
            return None
        if parts[3] == "assign":
            return Operation.ASSIGN, str(msgspec.json.decode(request.content)["voiceId"])
        if parts[-1] == "details":
            is_check = request.url.params["checkVoiceAuthentication"] == "true"
            return (Operation.CHECK if is_check else Operation.READ), parts[3]
        return Operation(parts[-1].replace("-", "_")), parts[3]

    # One effect

    async def _effect(self, kind: EffectKind, call: SandboxCall, given_id: str, request: httpx.Request) -> None:
        assert given_id == call.voice_id, "an effect by an alternate id"
        record, trail = await self._load(call.voice_id)
        assert record is not None, "an effect without a record"
        self._is_booked(kind, record, trail)
        if kind is EffectKind.ASSIGN:
            self._assign_is_lawful(call, str(msgspec.json.decode(request.content)["personId"]))
            return
        self._is_alone(kind)
        self._is_explained(kind, trail)
        self._is_read_before(kind, call)
        if kind is EffectKind.ENROLL:
            self._enroll_is_lawful(call, trail, msgspec.json.decode(request.content))
        else:
            assert self.of(call).distrusts, "a reject that nobody asked for"

    def _is_booked(self, kind: EffectKind, record: Call, trail: tuple[Entry, ...]) -> None:
        """Assert that Redis has `sent` in the ledger and in the trail before the first byte is written."""
        assert record.effect(kind).state is EffectState.SENT, f"{kind} was not booked: {record.effect(kind).state}"
        assert any(entry.what == "sent" and entry.kind == kind for entry in trail), f"{kind} is not in the trail"

    def _is_alone(self, kind: EffectKind) -> None:
        """Assert that one lease has passed since a rollback. By then, requests booked before it have ended.

        A worker that began after it knows Redis's clock only.
        """
        if self.rolled_back_at is not None:
            since_s = (self._stage.clock.now - self.rolled_back_at).total_seconds()
            since_s += self.jumped_since_s if self.is_worker_new else 0
            assert since_s >= LEASE.seconds, f"{kind} only {since_s:g} s after Redis was rolled back"

    def _is_explained(self, kind: EffectKind, trail: tuple[Entry, ...]) -> None:
        """Assert that the trail names the rule, the digest of the rules and the facts."""
        decided = [entry for entry in trail if entry.what == "decided" and entry.kind == kind]
        assert decided, f"{kind} was sent and never decided"
        assert decided[-1].rule, "a decision without its rule"
        assert decided[-1].rules, "a decision without the digest of its rules"
        assert decided[-1].facts, "a decision without its facts"

    def _is_read_before(self, kind: EffectKind, call: SandboxCall) -> None:
        """Assert that the stored details were read just before, and that they do not forbid the effect."""
        answered = self.answered.get(call.voice_id)
        assert answered is not None, f"{kind} without a read"
        age_s = (self._stage.clock.now - answered.at).total_seconds()
        assert age_s <= FRESH_S, f"{kind} on a read {age_s:g} s old"
        is_enrolled = kind is EffectKind.REJECT and MANUAL_GREEN in _policies(answered.record)
        assert answered.record.get("status") != "RejectCallerVoice" or is_enrolled, f"{kind} after a reject"
        if kind is EffectKind.ENROLL:
            assert not any(_is_green(name) for name in _policies(answered.record)), "an enroll of a green voice"
            assert not any(name.startswith("Red") for name in _policies(answered.record)), "an enroll on a red policy"
            forbidden = {"VoiceOptOut", "AcceptCallerVoice"} | REJECTED
            assert answered.record.get("status") not in forbidden, "an enroll forbidden"

    def _enroll_is_lawful(self, call: SandboxCall, trail: tuple[Entry, ...], body: dict[str, Any]) -> None:
        """Assert that the person is assigned and verified, and that no reject or opt-out was known before."""
        person_id = body["personId"]
        by_service = any(verified.validation_type == body["validationType"] for verified in call.verifications)
        assert person_id in self.of(call).verified or by_service, "an enroll of somebody nobody verified"
        read = self.answered[call.voice_id].record
        assert read.get("personId") == person_id, "an enroll for another than the assigned person"
        statuses = {entry.status for entry in trail if entry.what in {"read", "checked"}}
        assert not statuses & (REJECTED | {"VoiceOptOut"}), f"an enroll though we knew of {statuses}"
        assert not _is_done(trail, EffectKind.REJECT), "an enroll after our reject"
        assert not _is_done(trail, EffectKind.ENROLL), "an enroll after our enroll"

    def _assign_is_lawful(self, call: SandboxCall, person_id: str) -> None:
        """Assert that the desk named this person, or that the person is the only candidate."""
        candidates = [member.person.person_id for member in self._stage.world.candidates(call)]
        assert person_id in self.of(call).wished or candidates == [person_id], "an assign of somebody nobody named"

    # After every step

    def counts_hold(self, call: SandboxCall, checks_booked: int) -> None:
        """Assert the limits: 20 checks, one enroll, one reject for each statement, and a booking for every request.

        An effect may be sent once more if the service refused it, and for each rollback that lost it. A check that was
        answered with 401 was not made, but it counts as one of the 20 as long as its booking is stored.
        """
        tally, lost = self._stage.sandbox.ledger.tally(call.voice_id), self.lost[call.voice_id]
        checks = tally.arrived.get(Operation.CHECK, 0)
        made = tally.authenticated.get(Operation.CHECK, 0)
        assert made <= CHECKS, f"{made} checks"
        assert checks <= CHECKS + lost.bookings, f"{checks} requests for a check"
        assert checks <= checks_booked + lost.bookings, f"{checks} checks arrived, {checks_booked} booked"
        for kind in ONCE:
            memory, allowed = self.of(call), lost.effects[kind]
            if kind is EffectKind.REJECT:
                allowed += max(0, memory.distrusts - 1)
            applied = tally.applied.get(EFFECTS[kind], 0)
            assert applied <= 1 + allowed, f"{applied} times {kind}"
            seen = tally.authenticated.get(EFFECTS[kind], 0)
            if kind is EffectKind.ENROLL:  # a later word asks once more for what was not applied, or is said not to be
                not_applied = max(memory.absent, seen - applied)
                allowed += min(not_applied, max(0, memory.verifications - 1))
            was_refused = (call.voice_id, EFFECTS[kind]) in self.refused
            assert seen <= 1 + allowed + was_refused, f"{seen} times {kind} asked for"
            arrived = tally.arrived.get(EFFECTS[kind], 0)
            assert arrived <= MAX_REQUESTS * (1 + allowed), f"{arrived} requests of {kind} arrived"

    def forgets(self, voice_id: str, before: "Kept", after: "Kept") -> None:
        """Note which requests a rollback removed from our records of a call.

        The first one is not lost if its intention is still stored, because callkeeper treats it as if it had been sent.
        """
        lost = self.lost[voice_id]
        for kind in ONCE:
            is_known = any(record.effect(kind).state is not EffectState.NONE for record in after.records)
            sent = max((record.effect(kind).arrived for record in before.records), default=0)
            kept = max((record.effect(kind).arrived for record in after.records), default=0)
            lost.effects[kind] += max(0, sent - max(kept, is_known))
        lost.bookings += max(0, before.checks - after.checks)

    # At the end

    def last_statements_count(self, record: Call, reached: list[Statement]) -> None:
        """Assert that of each type of statement that reached a record, it has the one that Redis received last."""
        kept: dict[type[Statement], CallStatement | Identity | None] = {
            AssignWish: record.statements.assign_wish,
            Verified: record.statements.identity,
            Distrusted: record.statements.distrusted,
        }
        for kind, ours in kept.items():
            said = [statement for statement in reached if isinstance(statement, kind)]
            if not said:
                continue
            is_by_service = isinstance(ours, Identity) and not ours.by_desk
            if (
                kind is Verified
                and (ours is None or is_by_service)
                and record.life.is_reopened
                and record.statements.distrusted is not None
            ):
                # A distrust that reopens a call which nobody was enrolled in ends what people verified before. What the
                # service established stays, and counts for nothing.
                continue
            assert ours is not None, f"{kind.__name__} was taken and is not in the record"
            assert ours.operator == said[-1].operator, f"not the last {kind.__name__} counts"
            person_id = getattr(said[-1], "person_id", None)
            assert getattr(ours, "person_id", None) == person_id, f"not the last {kind.__name__} counts"

    def is_told_once(self, trail: tuple[Entry, ...]) -> None:
        """Assert that the trail has one line for each request and for each time the call was settled.

        Each distrust after the first settling allows one more line. So does a listing of a call that was settled because
        the service had never shown it.
        """
        sent = [(entry.kind, entry.n) for entry in trail if entry.what == "sent" and entry.kind in ONCE]
        assert len(sent) == len(set(sent)), f"one sending, several lines: {sent}"
        settled = [n for n, entry in enumerate(trail) if entry.what == "settled"]
        late = [entry for entry in trail[settled[0] :] if entry.what == "said" and entry.kind == "distrusted"]
        unconfirmed = [n for n in settled if trail[n].because == Reason.UNCONFIRMED]
        shown = [n for n in unconfirmed if any(entry.what == "listed" for entry in trail[n:])]
        assert 1 <= len(settled) <= 1 + len(late) + len(shown), f"{len(settled)} lines of the settling"

    def is_true(self, call: SandboxCall, record: Call, trail: tuple[Entry, ...]) -> None:
        """Assert that our ledgers of enroll and reject agree with what the service did.

        Effects that a rollback lost are excused. A rollback that lost a reject also removed the traces of the enroll.
        """
        tally, lost = self._stage.sandbox.ledger.tally(call.voice_id), self.lost[call.voice_id]
        for kind in ONCE:
            state, applied = record.effect(kind).state, tally.applied.get(EFFECTS[kind], 0)
            applied -= _applied_before(kind, trail)
            assert state not in {EffectState.SENT, EffectState.UNKNOWN}, f"{kind} was left in doubt"
            if state is EffectState.APPLIED:
                assert applied, f"{kind} applied, says our ledger; the service knows nothing of it"
            if self.of(call).is_resolved:
                continue
            is_forgotten = lost.effects[kind] or lost.effects[EffectKind.REJECT]
            is_excused = is_forgotten or (call.voice_id, kind) in self.late
            if state in NOTHING_SENT | {EffectState.ABSENT, EffectState.REFUSED} and not is_excused:
                assert not applied, f"{kind} {state}, says our ledger; the service applied it"


def _applied_before(kind: EffectKind, trail: tuple[Entry, ...]) -> int:
    """Return how often an effect was applied before it was intended the last time: a person may ask for another one.

    What a person said of it may be wrong, and does not count.
    """
    lines = [entry for entry in trail if entry.kind == kind]
    intended = [n for n, entry in enumerate(lines) if entry.what == "intended"]
    earlier = lines[: intended[-1]] if intended else []
    shown = [entry for entry in earlier if entry.what in {"answered", "established"} and entry.operator is None]
    return sum(entry.state in DONE for entry in shown)


def _policies(record: dict[str, Any]) -> list[str]:
    return list((record.get("metaData") or {}).get("vendorPolicies") or ())


def _is_green(name: str) -> bool:
    return name.startswith("Green")


def _is_done(trail: tuple[Entry, ...], kind: EffectKind) -> bool:
    """Tell whether the service's answers show an effect as done, or the last person who resolved it said so."""
    found = [entry for entry in trail if entry.what in {"answered", "established"} and entry.kind == kind]
    counts = [entry for entry in found if entry.operator is None] + found[-1:]
    return any(entry.state in {"applied", "confirmed"} for entry in counts)

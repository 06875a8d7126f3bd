"""Outcomes: the few events of a call that other systems wait for, derived from its trail. Pure functions.

The trail serves as the outbox. It is append-only and written together with the record, so no outcome can be lost, or
sent before it is true. An outcome's number is part of its id, which is the same however often it is sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate
from typing import Final, Literal

from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, EffectKind, EffectState
from callkeeper.calls.effect_resolution import GIVEN_UP_BECAUSE, HELD_BACK
from callkeeper.calls.law import BRIEF
from callkeeper.calls.record import Reason
from callkeeper.calls.trail import Entry

OutcomeType = Literal[
    "authenticated",
    "rejected",
    "enrolled",
    "unenrolled",
    "held",
    "asked",
    "refused",
    "not_carried_out",
    "unresolved",
    "settled",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCause:
    """Who caused an outcome and why, as far as the trail shows. ``operator`` is None if only a rule caused it.

    ``effect`` is the assign, enroll or reject that it is about, ``requested_by`` the core username it was sent under,
    ``status`` the last status in the service's record, ``reason`` a fixed word or a rule's sentence, ``person_id`` the
    member whose call it was then, or whom the effect was for; None if the trail does not say.
    """

    effect: str | None = None
    person_id: str | None = None
    operator: str | None = None
    requested_by: str | None = None
    validation_type: str | None = None
    rule: str | None = None
    reason: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One outcome: its number among the call's (from 0), the trail entry that shows it, and who caused it and why."""

    n: int
    type: OutcomeType
    line: Entry
    cause: OutcomeCause = field(default_factory=OutcomeCause)

    @property
    def at(self) -> datetime:
        return self.line.at


def outcomes(trail: Sequence[Entry]) -> list[CallOutcome]:
    """Return a call's outcomes in order.

    ``rejected`` and ``enrolled`` come once, whoever caused them, and again after they turned out not to be in force.
    ``authenticated`` comes once for each member. ``held`` comes whenever the effect asked for, or what forbids it, has
    changed, but not for an effect of ours that is in force. ``unresolved`` comes once for each effect.
    """
    reader = _Reader()
    causes = _Causes()
    found = []
    for line, newest in zip(trail, accumulate((line.at for line in trail), max), strict=True):
        causes.read(line)
        for kind in reader.read(line, causes.person_id):
            is_repeated = kind == "held" and causes.is_carried_out(line)
            is_told = not is_repeated and not _is_of_the_other_record(line, newest)
            found.append((is_told, CallOutcome(0, kind, line, causes.of(kind, line))))
    # Numbers are parts of ids and of stored cursors: what is not told keeps its number.
    return [replace(one, n=n) for n, (is_told, one) in enumerate(found) if is_told]


def _is_of_the_other_record(line: Entry, newest: datetime) -> bool:
    """Tell whether a line says that the record under the call's other id was settled as unconfirmed.

    That was told under the other id. A merge copies the lines of that record behind those of this one, so they are older
    than the ``newest``.
    """
    return line.what == "settled" and line.because == Reason.UNCONFIRMED and line.at < newest


@dataclass(slots=True)
class _Causes:
    """The last decision, intention, request and statement so far, by kind."""

    decided: dict[str, Entry] = field(default_factory=dict)
    intended: dict[str, Entry] = field(default_factory=dict)
    sent: dict[str, Entry] = field(default_factory=dict)
    stated: dict[str, Entry] = field(default_factory=dict)
    states: dict[str, EffectState] = field(default_factory=dict)
    status: str | None = None
    person_id: str | None = None
    is_person_read: bool = False
    """Details have named the person; then an entry in the queue changes nobody (`callkeeper.calls.note_folding`)."""

    def read(self, line: Entry) -> None:
        if line.what == "decided" and line.asked is not None:
            self.decided[line.asked] = line
        elif line.kind is not None and line.what == "intended":
            self.intended[line.kind] = line
            self.sent.pop(line.kind, None)
        elif line.kind is not None and line.what in {"sent", "said"}:
            (self.sent if line.what == "sent" else self.stated)[line.kind] = line
        state = _state(line)
        if state is not None and line.kind is not None:
            self.states[line.kind] = state
            if line.kind == EffectKind.ASSIGN and state in DONE and line.kind in self.intended:
                self.person_id = self.intended[line.kind].person_id or self.person_id
        if line.what in {"read", "checked"}:
            self.status = line.status
            self.person_id, self.is_person_read = line.person_id or self.person_id, bool(line.person_id)
        elif line.what == "listed" and not self.is_person_read:
            self.person_id = line.person_id or self.person_id

    def of(self, kind: OutcomeType, line: Entry) -> OutcomeCause:
        """Return who caused an entry's outcome, and why."""
        match kind:
            case "held":
                stated = self.stated.get(_SAID.get(line.asked or "", ""))
                is_hers = stated is not None and line.validation_type == stated.validation_type
                operator = line.operator or (stated.operator if stated is not None and is_hers else None)
                return self._cause(line, effect=line.asked, operator=operator, reason=line.because)
            case "asked":
                return self._cause(line, reason=line.because)
            case "settled":
                return self._of_effect(self._settled_by(line.because), reason=line.because)
            case "unenrolled":
                cause = self._cause(line, effect=EffectKind.ENROLL, reason="member_rejected")
                return replace(cause, person_id=self._person_of(EffectKind.ENROLL))
            case "unresolved":
                return self._of_effect(line.kind)
            case "refused" | "not_carried_out":
                cause, stated = self._of_effect(line.kind, reason=line.because), self.stated.get("distrusted")
                return replace(cause, operator=stated.operator) if line.because == HELD_BACK and stated else cause
            case "enrolled" | "rejected":
                ours = EffectKind.ENROLL if kind == "enrolled" else EffectKind.REJECT
                return self._of_effect(ours if self.states.get(ours) in DONE else None)
            case "authenticated":
                return self._cause(line)

    def is_carried_out(self, line: Entry) -> bool:
        """Tell whether what a decision holds back is an effect of ours that is in force, for the same member."""
        effect = line.asked or ""
        intended, stated = self.intended.get(effect), self.stated.get(_SAID.get(effect, ""))
        if intended is None or self.states.get(effect) not in DONE:
            return False
        whose = (stated.person_id if stated is not None else None) or self.person_id
        return whose in {None, intended.person_id}

    def _cause(
        self, line: Entry, *, effect: str | None = None, operator: str | None = None, reason: str | None = None
    ) -> OutcomeCause:
        return OutcomeCause(
            effect=effect,
            person_id=self.person_id,
            operator=operator or line.operator,
            validation_type=line.validation_type,
            rule=line.rule,
            reason=reason,
            status=self.status,
        )

    def _of_effect(self, effect: str | None, *, reason: str | None = None) -> OutcomeCause:
        """Return who wanted an effect of ours, by which rule, and under which username it was sent."""
        intended, sent = self.intended.get(effect or ""), self.sent.get(effect or "")
        decided = self.decided.get(effect or "")
        return OutcomeCause(
            effect=effect,
            person_id=self._person_of(effect),
            operator=intended.operator if intended else None,
            requested_by=sent.operator if sent else None,
            validation_type=intended.validation_type if intended else None,
            rule=decided.rule if intended and decided else None,
            reason=reason if reason is not None or intended is None else intended.because,
            status=self.status,
        )

    def _person_of(self, effect: str | None) -> str | None:
        """Return for whom an enroll or a reject of ours was intended; else whose call it is now."""
        intended = self.intended.get(effect or "") if effect != EffectKind.ASSIGN else None
        return (intended.person_id if intended else None) or self.person_id

    def _settled_by(self, reason: str | None) -> str | None:
        """Return the effect of ours that a call was settled for."""
        kinds, states = _SETTLED_FOR.get(reason or "", ((), DONE))
        return next((kind for kind in kinds if self.states.get(kind) in states), None)


_SETTLED_FOR: Final[dict[str, tuple[tuple[EffectKind, ...], frozenset[EffectState]]]] = {
    Reason.ENROLLED: ((EffectKind.ENROLL,), DONE),
    Reason.UNENROLLED: ((EffectKind.ENROLL,), DONE | {EffectState.TAKEN_BACK}),
    Reason.REJECTED: ((EffectKind.REJECT,), DONE),
    Reason.UNRESOLVED: ((EffectKind.ENROLL, EffectKind.REJECT), frozenset({EffectState.UNRESOLVED})),
}
"""The effects that a call may be settled for, and the states that show which one it was."""

_SAID: Final[dict[str, str]] = {
    EffectKind.ASSIGN: "assign",
    EffectKind.ENROLL: "verified",
    EffectKind.REJECT: "distrusted",
}
"""The statement by which a person asks for an effect."""


@dataclass(slots=True)
class _Reader:
    """Finds the outcomes in a trail, and remembers those found so far."""

    done: set[OutcomeType] = field(default_factory=set)
    authenticated: set[str | None] = field(default_factory=set)
    """As whom; None if the trail does not say, which is any member."""
    held: tuple[object, ...] = ()
    is_enroll_open: bool = False
    asked: str | None = None

    def read(self, line: Entry, person_id: str | None) -> Iterator[OutcomeType]:
        """Yield the outcomes that a line shows. ``person_id`` is the call's member after it."""
        state, facts = _state(line), line.facts or {}
        if line.kind == EffectKind.ENROLL and line.what in {"sent", "answered", "established"}:
            self.is_enroll_open = line.what == "sent" or state in IN_DOUBT
        # With nobody assigned it is nobody's voice yet.
        if facts.get("green") and facts.get("assigned") and not facts.get("red") and self._is_another(person_id):
            self.authenticated.add(person_id)
            yield "authenticated"
        yield from self._once(facts, line.kind if state in DONE else None)
        if self._is_news(line):
            yield "held"
        if self._is_asked(line):
            yield "asked"
        if line.what == "established" and state is EffectState.UNRESOLVED:
            yield "unresolved"
        if line.what == "established" and state is EffectState.REFUSED and line.operator is None:
            yield "not_carried_out" if line.because in GIVEN_UP_BECAUSE else "refused"
        if line.what == "established" and state is EffectState.ABSENT and line.because is not None:
            self.done.discard("enrolled" if line.kind == EffectKind.ENROLL else "rejected")
            yield "not_carried_out"
        if state is EffectState.TAKEN_BACK:
            self.done.discard("enrolled")
            yield "unenrolled"
        if line.what == "settled":
            yield "settled"

    def _is_another(self, person_id: str | None) -> bool:
        known = self.authenticated
        return not known or (person_id is not None and not known & {None, person_id})

    def _once(self, facts: Mapping[str, object], applied: str | None) -> Iterator[OutcomeType]:
        shown: dict[OutcomeType, object] = {
            "rejected": facts.get("rejected") or applied == EffectKind.REJECT,
            "enrolled": (facts.get("enrolled") and not self.is_enroll_open) or applied == EffectKind.ENROLL,
        }
        for kind, is_true in shown.items():
            if is_true and kind not in self.done:
                self.done.add(kind)
                yield kind

    def _is_news(self, line: Entry) -> bool:
        """Tell whether a decision holds back what a rule or a person asked for, and differs from the last such decision."""
        if line.what != "decided" or line.kind != "hold":
            return False
        lasting = tuple(reason for reason in line.forbidden if reason not in BRIEF)
        is_asked = line.asked in {EffectKind.ENROLL, EffectKind.REJECT} or line.operator is not None
        held = (line.asked, lasting) if lasting and is_asked else ()
        is_news = bool(held) and held != self.held
        self.held = held
        return is_news

    def _is_asked(self, line: Entry) -> bool:
        """Tell whether a rule asks a person, and did not do so in the previous decision, or asks again for new signs."""
        if line.what != "decided" or line.asked == EffectKind.ASSIGN:
            return False
        before, self.asked = self.asked, line.rule if line.kind == "ask" else None
        return self.asked is not None and (self.asked != before or bool(line.signs))


def _state(line: Entry) -> EffectState | None:
    """Return the state of an effect in an answer or a proof."""
    return EffectState(line.state) if line.state and line.what in {"answered", "established"} else None

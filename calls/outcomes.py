"""Outcomes: the few things in a call's story that other systems wait for, read out of its trail. Pure.

The trail is the outbox. It is append-only and written with the record, so an outcome can be neither lost nor told before it
is true; its number makes its id, which is the same however often it is sent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from calls.law import BRIEF
from calls.ledger import DONE, IN_DOUBT, EffectKind, EffectState
from calls.trail import Entry

OutcomeType = Literal["authenticated", "rejected", "enrolled", "unenrolled", "held", "asked", "unresolved", "settled"]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One outcome, its number among the call's (from 0), and the line of the trail that tells it."""

    n: int
    type: OutcomeType
    line: Entry

    @property
    def at(self) -> datetime:
        """Return when it became true."""
        return self.line.at


def outcomes(trail: Sequence[Entry]) -> list[CallOutcome]:
    """Return a call's outcomes, in the order in which they came about.

    ``authenticated``, ``rejected`` and ``enrolled`` come once, whoever did it; ``held`` whenever what was asked for, or what
    stands in its way, is another; ``unresolved`` once for each effect.
    """
    reader = _Reader()
    found = [(kind, line) for line in trail for kind in reader.read(line)]
    return [CallOutcome(n, kind, line) for n, (kind, line) in enumerate(found)]


@dataclass(slots=True)
class _Reader:
    """What has been told so far."""

    told: set[OutcomeType] = field(default_factory=set)
    held: tuple[object, ...] = ()
    is_enroll_open: bool = False
    asked: str | None = None

    def read(self, line: Entry) -> Iterator[OutcomeType]:
        """Yield what a line tells."""
        state = _state(line)
        if line.kind == EffectKind.ENROLL and line.what in {"sent", "answered", "established"}:
            self.is_enroll_open = line.what == "sent" or state in IN_DOUBT
        yield from self._once(line, state)
        if self._is_news(line):
            yield "held"
        if self._is_asked(line):
            yield "asked"
        if line.what == "established" and state is EffectState.UNRESOLVED:
            yield "unresolved"
        if state is EffectState.TAKEN_BACK:
            yield "unenrolled"
        if line.what == "settled":
            yield "settled"

    def _once(self, line: Entry, state: EffectState | None) -> Iterator[OutcomeType]:
        facts = line.facts or {}
        is_done = state in DONE
        shown: tuple[tuple[OutcomeType, bool], ...] = (
            ("authenticated", bool(facts.get("green")) and not facts.get("red")),
            ("rejected", bool(facts.get("rejected")) or (is_done and line.kind == EffectKind.REJECT)),
            (
                "enrolled",
                (bool(facts.get("enrolled")) and not self.is_enroll_open)
                or (is_done and line.kind == EffectKind.ENROLL),
            ),
        )
        for kind, is_true in shown:
            if is_true and kind not in self.told:
                self.told.add(kind)
                yield kind

    def _is_news(self, line: Entry) -> bool:
        """Tell whether a decision holds something back that a rule or a person asked for, for a reason not told last."""
        if line.what != "decided" or line.kind != "hold":
            return False
        lasting = tuple(reason for reason in line.forbidden if reason not in BRIEF)
        is_asked = line.asked in {EffectKind.ENROLL, EffectKind.REJECT} or line.operator is not None
        held = (line.asked, lasting) if lasting and is_asked else ()
        is_news = bool(held) and held != self.held
        self.held = held
        return is_news

    def _is_asked(self, line: Entry) -> bool:
        """Tell whether a rule puts the call before a person that did not do so in the decision before."""
        if line.what != "decided" or line.asked == EffectKind.ASSIGN:
            return False
        before, self.asked = self.asked, line.rule if line.kind == "ask" else None
        return self.asked is not None and self.asked != before


def _state(line: Entry) -> EffectState | None:
    """Return what an answer or a proof says of an effect."""
    return EffectState(line.state) if line.state and line.what in {"answered", "established"} else None

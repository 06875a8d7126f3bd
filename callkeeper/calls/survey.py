"""The survey: which assumptions about the service its answers have contradicted. Pure functions.

``judged`` says once, at a call's end, what the call's record and the sampled answers about it contradict.
``Survey.parse`` reads what `add_figures.lua` keeps; ``contradictions`` are what nobody has acknowledged: an incident, once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from callkeeper.calls.assumptions import Assumption, OtherAnswer, assumptions
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.effect_ledger import DONE, EffectKind, EffectState
from callkeeper.calls.effect_resolution import NOT_SHOWN
from callkeeper.calls.metrics.counting import MOST_PLACES
from callkeeper.calls.policies import MANUAL_GREEN
from callkeeper.calls.quantity import quantity
from callkeeper.calls.record import Call
from callkeeper.calls.settlement import STARTS_APART
from callkeeper.service.answer_tap import CallSample, Shown
from callkeeper.service.endpoints import ASSIGN, ENROLL, REJECT_VOICE, is_same_id
from callkeeper.service.enumerations import CallStatus

KNOWN_FIELD = "known|"
"""The beginning of the fields that hold since when people know of the contradictions of an institution, or of all."""


class Sight(msgspec.Struct, frozen=True):
    """How one answer was seen.

    ``at`` are institutions where it was seen, with the first time of each; no more than `MOST_PLACES` are kept.
    """

    n: int
    first: float
    last: float
    shape: str = ""
    at: dict[str, float] = {}

    @property
    def times(self) -> str:
        """Return how often it was seen, in words."""
        return quantity(self.n, "time")

    def where(self, may_see: Callable[[str], bool] = lambda _: True) -> str:
        """Return where it was seen, to follow how often; of the institutions only those that may be seen."""
        names = ", ".join(key for key in sorted(self.at) if may_see(key))
        others = ", and perhaps at others" if len(self.at) >= MOST_PLACES else ""
        return f"{f' at {names}' if names else ''}{others}"

    @property
    def first_at(self) -> datetime:
        return instant(self.first)

    @property
    def last_at(self) -> datetime:
        return instant(self.last)


_SIGHT = msgspec.json.Decoder(Sight)


@dataclass(frozen=True, slots=True)
class Survey:
    """What was seen, by assumption and answer, and since when people know of contradictions, by institution."""

    seen: Mapping[str, Mapping[str, Sight]] = field(default_factory=dict)
    known_ms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, stored: Mapping[bytes, bytes]) -> "Survey":
        """Read what is stored. What another release wrote in another form is left out."""
        seen: dict[str, dict[str, Sight]] = {}
        known_ms: dict[str, float] = {}
        for name, value in stored.items():
            text = name.decode(errors="replace")
            try:
                if text.startswith(KNOWN_FIELD):
                    known_ms[text.removeprefix(KNOWN_FIELD)] = float(value)
                    continue
                sight = _SIGHT.decode(value)
            except (msgspec.MsgspecError, ValueError):
                continue
            assumption, _, answer = text.partition("|")
            seen.setdefault(assumption, {})[answer] = sight
        return cls(seen, known_ms)

    def contradicting(self, one: Assumption) -> list[tuple[OtherAnswer, Sight]]:
        """Return the answers that contradict an assumption and were seen often enough, in the order of the list."""
        sights = self.seen.get(one.id, {})
        found = ((answer, sights[answer.name]) for answer in one.answers if answer.name in sights)
        return [(answer, sight) for answer, sight in found if sight.n >= answer.least]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A contradiction of an assumption at one institution, or at none in particular, that nobody knows yet."""

    assumption: Assumption
    answer: OtherAnswer
    sight: Sight
    institution_key: str
    since: datetime


def contradictions(survey: Survey) -> Iterator[Contradiction]:
    """Yield the contradictions that nobody has acknowledged since they were first seen."""
    for one in assumptions().values():
        for answer, sight in survey.contradicting(one):
            for key, first in (sight.at or {"": sight.first}).items():
                known_ms = max((survey.known_ms[place] for place in {key, ""} if place in survey.known_ms), default=0.0)
                if first > known_ms:
                    yield Contradiction(one, answer, sight, key, instant(first))


_SILENT_AFTER: Final = timedelta(seconds=10)
"""If the status still says this long after a reject of the member that the voice is enrolled, no activity was written."""

_TURNED_AWAY: Final = {
    401: ("refused-401-before-acting", "401-after-acting"),
    429: ("busy-before-acting", "429-after-acting"),
}
_SENT_TO: Final = {EffectKind.ASSIGN: ASSIGN, EffectKind.ENROLL: ENROLL, EffectKind.REJECT: REJECT_VOICE}


def judged(call: Call, sample: CallSample | None) -> Iterator[Shown]:
    """Yield what a call that is over contradicts. ``sample``: the answers about it, if they were sampled."""
    yield from _of_reading(call)
    yield from _of_assign(call)
    for kind in (EffectKind.ENROLL, EffectKind.REJECT):
        effect, ended_at = call.effect(kind), call.life.ended_at
        if effect.state is EffectState.REFUSED and ended_at and effect.sent_at and effect.sent_at > ended_at:
            answer = "reject-after-end-refused" if kind is EffectKind.REJECT else "effects-after-end-refused"
            yield Shown("effects-after-end", answer, kind)
    if sample is None:
        return
    yield from sorted(sample.shown)
    alternate_id = call.names.alternate_id
    if alternate_id and sample.alternate_ids and not any(is_same_id(one, alternate_id) for one in sample.alternate_ids):
        yield Shown("alternate-id-field", "alternate-id-elsewhere")
    for kind, endpoint in _SENT_TO.items():
        status = sample.turned_away.get(endpoint.name)
        if status is not None and call.effect(kind).state is EffectState.CONFIRMED:
            yield Shown(*_TURNED_AWAY[status], kind)


def _of_reading(call: Call) -> Iterator[Shown]:
    reading, started_at = call.seen.reading, call.life.started_at
    if reading is None:
        return
    if started_at is not None and reading.created_at is not None:
        apart = started_at - reading.created_at
        if abs(apart) > STARTS_APART:
            answer = "starts-in-future" if apart > timedelta() else "starts-earlier"
            yield Shown("start-and-creation", answer, f"the start is {apart.total_seconds():+.0f} s from the creation")
    rejected_at = call.plan.recheck_from
    if (
        rejected_at is not None
        and reading.status in (CallStatus.FULL_AUTHENTICATION, CallStatus.ACCEPT_CALLER_VOICE)
        and MANUAL_GREEN not in reading.policies
        and call.ledger.enroll.state in DONE
        and reading.read_at >= rejected_at + _SILENT_AFTER
    ):
        yield Shown("reject-unenrolls", "unenrolled-silently", f"status {reading.status}, without the policy")


def _of_assign(call: Call) -> Iterator[Shown]:
    effect, reading = call.ledger.assign, call.seen.reading
    is_another = call.seen.person_id not in {None, effect.person_id}
    ended_at, sent_at = call.life.ended_at, effect.sent_at
    is_before_end = sent_at is not None and (ended_at is None or sent_at <= ended_at)
    if effect.state is EffectState.REFUSED and is_another and is_before_end:
        answer = "assign-over-ignored" if effect.refusal == NOT_SHOWN else "assign-over-refused"
        yield Shown("assign-replaces-person", answer, "over another person")
    is_shown = reading is not None and (effect.sent_at is None or reading.read_at > effect.sent_at)
    if effect.state in DONE and reading is not None and is_shown and not is_another and reading.core_username is None:
        yield Shown("assign-shows-username", "assign-without-username", "coreUsername null after an assign")

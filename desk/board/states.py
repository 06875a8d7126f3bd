"""The state of a call as people see it: one word, one tone, one shape. Pure.

A call is in exactly one state: the strongest thing that is true of it. Nobody has to tell colours apart: each
state has a word and a shape of its own.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from calls.facts import Facts, facts_of
from calls.law import BRIEF, LAW
from calls.record import IN_DOUBT, Call, EffectKind, EffectState, Phase, Reason
from calls.rules.book import Outcome, RuleBook
from calls.verdict import Verdict, judge


class Tone(StrEnum):
    """What a colour says. The word says it too."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    BUSY = "busy"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is shown: its word, its tone, and the name of its shape. ``rank`` orders the states in a summary."""

    word: str
    tone: Tone
    shape: str
    rank: int


class State(StrEnum):
    """The states, strongest first."""

    UNRESOLVED = "unresolved"
    DOUBT = "doubt"
    ANNOUNCED = "announced"
    REJECTED = "rejected"
    RED = "red"
    UNENROLLED = "unenrolled"
    ENROLLED = "enrolled"
    GREEN = "green"
    ACTING = "acting"
    HELD = "held"
    ENDED = "ended"
    FOREIGN = "foreign"
    UNASSIGNED = "unassigned"
    UNDECIDED = "undecided"
    PROVIDER_ERROR = "provider_error"
    LOST = "lost"
    WATCHED = "watched"


LOOKS: Final = {
    State.GREEN: Look("Authenticated", Tone.GOOD, "tick", 0),
    State.ENROLLED: Look("Enrolled", Tone.GOOD, "plus", 1),
    State.WATCHED: Look("Watching", Tone.BUSY, "half", 2),
    State.ACTING: Look("Acting", Tone.BUSY, "arrow", 3),
    State.UNASSIGNED: Look("Unassigned", Tone.IDLE, "ring", 4),
    State.ANNOUNCED: Look("Announced", Tone.IDLE, "dots", 5),
    State.FOREIGN: Look("Left alone", Tone.IDLE, "dash", 6),
    State.ENDED: Look("Ended", Tone.IDLE, "dash", 7),
    State.UNDECIDED: Look("Undecided", Tone.IDLE, "dash", 7),
    State.PROVIDER_ERROR: Look("Provider error", Tone.WARN, "question", 8),
    State.LOST: Look("Lost", Tone.WARN, "question", 8),
    State.HELD: Look("Held", Tone.WARN, "bars", 8),
    State.DOUBT: Look("In doubt", Tone.WARN, "question", 9),
    State.UNRESOLVED: Look("Unresolved", Tone.BAD, "triangle", 10),
    State.UNENROLLED: Look("Enroll taken back", Tone.WARN, "dash", 9),
    State.REJECTED: Look("Rejected", Tone.BAD, "cross", 11),
    State.RED: Look("Red policy", Tone.BAD, "octagon", 12),
}

MEANINGS: Final = {article.name: article.meaning for article in LAW}

_FOR_A_PERSON: Final = {
    "verified_person_is_not_the_assigned": "the verified person is not the assigned one",
    "unclassified_policy": "a policy has no colour in the rules",
    "determined_fraud": "a research case found fraud",
}
"""What holds an effect that somebody asked for, and only a person can clear up; shown on top."""

_HOLDS: Final = {
    **_FOR_A_PERSON,
    "paused": "paused",
    "opted_out": "the caller opted out",
    "red_policy": "a red policy is applied",
    "institution_not_allowed": "nothing is done for this institution",
    "nobody_assigned": "nobody is assigned yet",
    "opt_in_required": "no opt-in was seen",
    "call_ended": "the call has ended",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A call's state and, where something is held back, why. ``for_person``: only a person can clear it up."""

    state: State
    because: str = ""
    for_person: bool = False


def standing_of(call: Call, book: RuleBook) -> Standing:
    """Return the state of a call."""
    facts = facts_of(call, book.policies)
    return _by_ledger(call) or _by_facts(call, facts) or _by_verdict(call, facts, book) or Standing(_early(call, facts))


def _by_ledger(call: Call) -> Standing | None:
    """An effect that nothing proves comes before all else."""
    effects = {kind: call.effect(kind) for kind in (EffectKind.ENROLL, EffectKind.REJECT)}
    for kind, effect in effects.items():
        if effect.state is EffectState.UNRESOLVED:
            return Standing(State.UNRESOLVED, f"was the {kind} applied?", for_person=True)
    for kind, effect in effects.items():
        if effect.state in IN_DOUBT:
            return Standing(State.DOUBT, f"{kind} sent, not yet proved")
    return Standing(State.ANNOUNCED) if call.phase is Phase.HINTED else None


def _by_facts(call: Call, facts: Facts) -> Standing | None:
    shown = (
        (facts.rejected, State.REJECTED),
        (facts.red, State.RED),
        (facts.unenrolled, State.UNENROLLED),
        (facts.enrolled, State.ENROLLED),
        (facts.green, State.GREEN),
    )
    for holds, state in shown:
        if holds:
            return Standing(state)
    intended = [kind for kind in EffectKind if call.effect(kind).state is EffectState.INTENDED]
    return Standing(State.ACTING, f"about to {intended[0]}") if intended else None


def _by_verdict(call: Call, facts: Facts, book: RuleBook) -> Standing | None:
    """What was asked for and is held back, with the reason that weighs most."""
    if not (facts.verified or facts.distrusted) or call.reading is None:
        return None
    verdict = judge(facts, book, call.institution_key)
    reasons = held_by(verdict)
    if not reasons:
        return None
    name = next((name for name in reasons if name in _FOR_A_PERSON), reasons[0])
    is_for_person = name in _FOR_A_PERSON and not facts.ended
    return Standing(State.HELD, _HOLDS.get(name, MEANINGS.get(name, name)), for_person=is_for_person)


def held_by(verdict: Verdict) -> tuple[str, ...]:
    """Return the lasting reasons for which the law holds back what was asked for."""
    if verdict.outcome is not Outcome.HOLD or verdict.asked is Outcome.HOLD:
        return ()
    return tuple(name for name in verdict.forbidden if name not in BRIEF)


_CLOSED: Final = {
    Reason.UNDECIDED: State.UNDECIDED,
    Reason.PROVIDER_ERROR: State.PROVIDER_ERROR,
    Reason.UNASSIGNED: State.UNASSIGNED,
    Reason.LOST: State.LOST,
    Reason.UNCONFIRMED: State.LOST,
}


def _early(call: Call, facts: Facts) -> State:
    if call.reason is not None:
        return _CLOSED.get(call.reason, State.ENDED)
    if facts.ended:
        return State.ENDED
    if call.standing is not None:
        return State.FOREIGN
    return State.WATCHED if facts.assigned else State.UNASSIGNED

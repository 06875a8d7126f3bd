"""The state of a call as the board shows it: a word, a tone and a shape. Pure.

A call has exactly one state: of those that apply, the most important one. Each state has its own word and shape, so
nobody has to tell colours apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from callkeeper.calls.call_query import NEEDS_PERSON, OPEN, SETTLED, FilterWrong
from callkeeper.calls.effect_ledger import IN_DOUBT, EffectKind, EffectState
from callkeeper.calls.effect_resolution import ENDLESS, ENROLLED_AS_ANOTHER, UNREAD, attention, enroll_trouble
from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.facts import Facts
from callkeeper.calls.law import BRIEF, meaning_of
from callkeeper.calls.record import Call, Phase, Reason
from callkeeper.calls.rules.book import Outcome, RuleBook
from callkeeper.calls.rules.matching import Verdict, judge


class StateTone(StrEnum):
    """The meaning of a colour; the text has it too."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    BUSY = "busy"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class StateStyle:
    """How a state is shown: its word, its tone, and the name of its shape. ``rank`` orders the states in a summary.

    ``meaning``: what it says about the caller, for somebody who has them on the line; empty if other words say it.
    """

    word: str
    tone: StateTone
    shape: str
    rank: int
    meaning: str = ""


class StateName(StrEnum):
    """The states, strongest first."""

    UNRESOLVED = "unresolved"
    DOUBT = "doubt"
    ANNOUNCED = "announced"
    REJECTED = "rejected"
    RED = "red"
    DISTRUSTED = "distrusted"
    MISMATCH = "voice_mismatch"
    ASKED = "asked"
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


STATE_STYLES: Final = {
    StateName.GREEN: StateStyle(
        "Authenticated", StateTone.GOOD, "tick", 0, "The voice is that of the assigned member."
    ),
    StateName.ENROLLED: StateStyle(
        "Enrolled",
        StateTone.GOOD,
        "plus",
        1,
        "The voice was enrolled in this call; that does not authenticate it.",
    ),
    StateName.WATCHED: StateStyle("Watching", StateTone.BUSY, "half", 2, "The voice is not authenticated."),
    StateName.ACTING: StateStyle("Acting", StateTone.BUSY, "arrow", 3),
    StateName.UNASSIGNED: StateStyle(
        "Unassigned", StateTone.IDLE, "ring", 4, "No member is assigned: the voice authenticates nobody."
    ),
    StateName.ANNOUNCED: StateStyle("Announced", StateTone.IDLE, "dots", 5),
    StateName.FOREIGN: StateStyle(
        "Left alone", StateTone.IDLE, "dash", 6, "Nothing is done for this call, and the voice is not authenticated."
    ),
    StateName.ENDED: StateStyle("Ended", StateTone.IDLE, "dash", 7),
    StateName.UNDECIDED: StateStyle("Undecided", StateTone.IDLE, "dash", 7, "The voice was not authenticated."),
    StateName.PROVIDER_ERROR: StateStyle("Provider error", StateTone.WARN, "question", 8),
    StateName.LOST: StateStyle("Lost", StateTone.WARN, "question", 8),
    StateName.HELD: StateStyle(
        "Held", StateTone.WARN, "bars", 8, "The voice is not authenticated, and no enroll or reject is sent now:"
    ),
    StateName.DOUBT: StateStyle("In doubt", StateTone.WARN, "question", 9),
    StateName.ASKED: StateStyle("Open question", StateTone.WARN, "question", 9),
    StateName.MISMATCH: StateStyle(
        "Voice mismatch", StateTone.WARN, "cross", 9, "The voice did not match the enrolled one of this member."
    ),
    StateName.UNRESOLVED: StateStyle("Unresolved", StateTone.BAD, "triangle", 10),
    StateName.UNENROLLED: StateStyle(
        "Enroll taken back",
        StateTone.WARN,
        "dash",
        9,
        "A reject of the member took the enroll back: the voice is not enrolled.",
    ),
    StateName.REJECTED: StateStyle(
        "Rejected", StateTone.BAD, "cross", 11, "Do not trust this caller: the voice was rejected."
    ),
    StateName.DISTRUSTED: StateStyle(
        "Distrusted", StateTone.BAD, "octagon", 11, "A person said not to trust this caller."
    ),
    StateName.RED: StateStyle(
        "Red policy", StateTone.BAD, "octagon", 12, "Do not trust this caller: the service applies a red policy."
    ),
}


def _typed(word: str) -> str:
    """Return a word in small letters, with hyphens for blanks and underscores."""
    return "-".join(word.casefold().replace("_", " ").replace("-", " ").split())


STATE_WORDS: Final = (OPEN, SETTLED, NEEDS_PERSON, *(_typed(style.word) for style in STATE_STYLES.values()))
"""The words by which lists are filtered: those that lists and pages show for a state."""

_STATES: Final[Mapping[str, str]] = {
    **{word: word for word in (OPEN, SETTLED, NEEDS_PERSON)},
    **{_typed(word): name for name, style in STATE_STYLES.items() for word in (style.word, name)},
    "live": OPEN,
    "needs-a-person": NEEDS_PERSON,
}


def state_named(word: str) -> str:
    """Return the name of the state that is shown by a word. Names are taken, too, and any case, hyphens or blanks.

    Raises:
        FilterWrong: There is no such state.
    """
    name = _STATES.get(_typed(word))
    if name is None:
        raise FilterWrong("state", f"must be one of {', '.join(STATE_WORDS)}")
    return name


_FOR_A_PERSON: Final = {
    "verified_person_is_not_the_assigned": "the verified person is not the assigned one",
    "unclassified_policy": "a policy has no colour in the rules",
    "determined_fraud": "a research case found fraud",
    "voice_mismatch": "the voice does not match",
    "failed_feedback": "somebody may have rejected the voice",
    "fraud_elsewhere": "a research case found fraud in another call",
}
"""Reasons for holding an effect that only a person can clear up. They are shown first."""

_HOLDS: Final = {
    **_FOR_A_PERSON,
    "paused": "paused",
    "opted_out": "the caller opted out",
    "opted_out_before": "the member opted out in another call",
    "red_policy": "a red policy is applied",
    "institution_not_allowed": "nothing is done for this institution",
    "standing_unconfirmed": "the service does not say whether the institution is active",
    "nobody_assigned": "nobody is assigned yet",
    "opt_in_required": "no opt-in was seen",
    "voice_not_checked": "the voice is not checked yet",
    "verified_too_late": "verified too long after the end",
}


_URGENT: Final = frozenset(
    {
        StateName.UNRESOLVED,
        StateName.UNENROLLED,
        StateName.REJECTED,
        StateName.RED,
        StateName.DISTRUSTED,
        StateName.MISMATCH,
    }
)
_DECIDED: Final = frozenset({StateName.ENROLLED, StateName.GREEN})


UNREAD_AFTER: Final = 3
"""Failed reads in a row after which a call says so: about 7 s."""


@dataclass(frozen=True, slots=True)
class CallState:
    """A call's state and, where something is held back, why. ``for_person``: only a person can clear it up."""

    name: StateName
    because: str = ""
    for_person: bool = False

    @property
    def is_urgent(self) -> bool:
        """Tell whether somebody should look at the call before the others: it waits for a person, or is `_URGENT`."""
        return self.for_person or self.name in _URGENT

    @property
    def is_decided(self) -> bool:
        """Tell whether the call ended well and needs no attention."""
        return self.name in _DECIDED


def state_of(call: Call, book: RuleBook) -> CallState:
    """Return the state of a call. While a rule asks about it, that is the reason that is shown."""
    facts = facts_of(call, call.last_claim, book.policies)
    state = (
        _by_ledger(call)
        or _against(call, facts, book)
        or _by_facts(call, facts)
        or _by_verdict(call, facts, book)
        or CallState(_early(call, facts), _unread(call) or _left_open(call, facts))
    )
    why = attention(call, book.maximum_age_s)
    if why in {UNREAD, ENDLESS} and not state.for_person:
        state = replace(state, because=why, for_person=True)
    question = call.statements.open_question
    if question is None or state.name is StateName.UNRESOLVED:
        return state
    is_louder = STATE_STYLES[state.name].tone in {StateTone.BAD, StateTone.WARN}
    return CallState(state.name if is_louder else StateName.ASKED, f"rule asks: {question.rule}", for_person=True)


def _left_open(call: Call, facts: Facts) -> str:
    """Return what kept a call that has ended from being decided, if a person could have changed it."""
    if not (facts.ended or call.is_settled) or facts.assigned or not facts.allowed:
        return ""
    if len(call.seen.candidates) > 1:
        return f"nobody chose between {len(call.seen.candidates)} candidates"
    return "" if call.seen.candidates else "no member has this number, and nobody named the caller"


def state_words(call: Call, book: RuleBook) -> str:
    """Return the words by which a call's state can be searched."""
    name = state_of(call, book).name
    status = call.seen.reading.status if call.seen.reading else None
    return f"{STATE_STYLES[name].word} {name} {call.life.reason or ''} {call.life.phase} {status or ''}"


def state_names(call: Call, book: RuleBook, *, is_marked: bool) -> frozenset[str]:
    """Return the names by which lists can be filtered that a call has. ``is_marked``: workers want a person to look."""
    state = state_of(call, book)
    needs_person = {NEEDS_PERSON} if is_marked or state.for_person else set()
    return frozenset({str(state.name), SETTLED if call.is_settled else OPEN, *needs_person})


def _unread(call: Call) -> str:
    return UNREAD if call.plan.reads_failed >= UNREAD_AFTER and not call.is_settled else ""


def _by_ledger(call: Call) -> CallState | None:
    """An effect with an unknown outcome comes before all else."""
    effects = {kind: call.effect(kind) for kind in (EffectKind.ENROLL, EffectKind.REJECT)}
    for kind, effect in effects.items():
        if effect.state is EffectState.UNRESOLVED:
            return CallState(StateName.UNRESOLVED, f"was the {kind} applied?", for_person=True)
    for kind, effect in effects.items():
        if effect.state in IN_DOUBT:
            return CallState(StateName.DOUBT, f"{kind} sent, not yet proved")
    return CallState(StateName.ANNOUNCED) if call.life.phase is Phase.HINTED else None


def _against(call: Call, facts: Facts, book: RuleBook) -> CallState | None:
    """Return the state of a call of which something speaks against the caller, in the order of the agent's element."""
    if facts.rejected:
        return CallState(StateName.REJECTED)
    shown = (
        (facts.red, StateName.RED),
        (facts.distrusted, StateName.DISTRUSTED),
        (facts.voice_mismatch, StateName.MISMATCH),
    )
    name = next((name for holds, name in shown if holds), None)
    return None if name is None else replace(_by_verdict(call, facts, book) or CallState(name), name=name)


def _by_facts(call: Call, facts: Facts) -> CallState | None:
    shown = (
        (facts.unenrolled, StateName.UNENROLLED),
        (facts.enrolled, StateName.ENROLLED),
        (facts.green and facts.assigned, StateName.GREEN),
    )
    for holds, state in shown:
        if holds:
            return _as_enrolled(call, facts) if state is StateName.ENROLLED else CallState(state)
    intended = [kind for kind in EffectKind if call.effect(kind).state is EffectState.INTENDED]
    return CallState(StateName.ACTING, f"about to {intended[0]}") if intended else None


def _as_enrolled(call: Call, facts: Facts) -> CallState:
    """Another member may have the caller's voiceprint now. Only people can find out who called, and have it removed."""
    trouble = enroll_trouble(call)
    if facts.manual and trouble != ENROLLED_AS_ANOTHER:
        return CallState(StateName.ENROLLED)
    return CallState(StateName.HELD, ENROLLED_AS_ANOTHER, for_person=bool(trouble))


def _by_verdict(call: Call, facts: Facts, book: RuleBook) -> CallState | None:
    """An effect that is held back, with the most important reason."""
    speaks = facts.verified or facts.red or facts.distrusted or facts.voice_mismatch
    if not speaks or call.seen.reading is None:
        return None
    verdict = judge(facts, book, call.institution_key)
    reasons = held_by(verdict)
    if not reasons:
        return None
    if "nobody_assigned" in reasons:  # then it cannot be the wrong person
        reasons = tuple(name for name in reasons if name != "verified_person_is_not_the_assigned")
    name = next((name for name in reasons if name in _FOR_A_PERSON), reasons[0])
    is_for_person = name in _FOR_A_PERSON and not facts.ended
    return CallState(
        StateName.HELD, _HOLDS.get(name) or meaning_of(name, verdict.asked) or name, for_person=is_for_person
    )


def held_by(verdict: Verdict) -> tuple[str, ...]:
    """Return the lasting reasons for which the law forbids the effect."""
    if verdict.outcome is not Outcome.HOLD or verdict.asked is Outcome.HOLD:
        return ()
    return tuple(name for name in verdict.forbidden if name not in BRIEF)


_CLOSED: Final = {
    Reason.UNDECIDED: StateName.UNDECIDED,
    Reason.PROVIDER_ERROR: StateName.PROVIDER_ERROR,
    Reason.UNASSIGNED: StateName.UNASSIGNED,
    Reason.LOST: StateName.LOST,
    Reason.UNCONFIRMED: StateName.LOST,
}


def _early(call: Call, facts: Facts) -> StateName:
    if call.life.reason is not None:
        return _CLOSED.get(call.life.reason, StateName.ENDED)
    if facts.ended:
        return StateName.ENDED
    if call.last_claim.standing is not None:
        return StateName.FOREIGN
    return StateName.WATCHED if facts.assigned else StateName.UNASSIGNED

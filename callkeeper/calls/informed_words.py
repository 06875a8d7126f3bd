"""What a person's word ``verified`` contradicts. The word counts against what it names, and against nothing else.

The same words are shown before the click, in a refusal, in the story, and in the note to the service. Pure functions.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from callkeeper.calls.effect_ledger import PERHAPS_DONE
from callkeeper.calls.facts import Facts
from callkeeper.calls.record import Call
from callkeeper.calls.statuses import UNDER_REVIEW

EVIDENCE: Final[Mapping[str, str]] = {
    "voice_mismatch": "the voice does not match the member's enrolled one",
    "high_risk_device": "the device is a high risk",
    "red_seen": "a red policy was applied in this call",
    "unclassified_seen": "a policy without a colour was applied in this call, and might be a red one",
    "failed_feedback": "the voice may have been rejected in this call: the provider got FAILED feedback",
    "research": "this call is under investigation",
    "rejected_before": "the voice was rejected in an earlier call of this member or number",
    "fraud_before": "an investigator found fraud in an earlier call of this member or number",
    "suspected_before": "something spoke against the caller in an earlier call of this member or number",
    "unenrolled_before": "an enroll of this member or number was taken back in an earlier call",
    "same_member_live": "the caller of another call at the same time is the same member",
    "enroll_unresolved": "an enroll was sent, and nobody knows whether it was carried out: look at the service's record",
}
"""What a person may overrule, by the name of its fact: all but the last speaks against the caller's identity."""

_IDENTITY: Final = frozenset(EVIDENCE) - {"enroll_unresolved"}

FORBIDDING: Final[Mapping[str, str]] = {
    "fraud": "an investigator found fraud in this call",
    "fraud_elsewhere": "an investigator found fraud in another call that the record is tied to",
    "red": "a red policy is applied",
    "rejected": "the voice was rejected in this call",
    "distrusted": "a person said that the caller cannot be trusted: that has to be taken back first",
    "reject_in_doubt": "a reject was sent, and nobody knows yet whether it was carried out",
    "green": "the voice is authenticated: there is nothing to verify",
}
"""What no word ``verified`` overrules, by the name of its fact."""

WORDS: Final[Mapping[str, str]] = {**EVIDENCE, **FORBIDDING}
_ASKED_ABOUT: Final = _IDENTITY | {"fraud", "fraud_elsewhere"}


def evidence_in(facts: Facts) -> tuple[str, ...]:
    """Return the names of what speaks against the caller's identity now, in the order in which it is shown."""
    return tuple([name for name in EVIDENCE if _holds(facts, name)])


def forbidding(facts: Facts) -> tuple[str, ...]:
    """Return the names of what forbids an enroll on any word now."""
    return tuple([name for name in FORBIDDING if getattr(facts, name)])


def speaking(facts: Facts) -> tuple[str, ...]:
    """Return the names of all that has spoken against the caller in this call: a question is about these."""
    return tuple([name for name in WORDS if name in _ASKED_ABOUT and _has_spoken(facts, name)])


def unnamed(call: Call, facts: Facts) -> tuple[str, ...]:
    """Return the evidence that nobody named who verified the caller, or that came after our enroll.

    A policy that is applied counts after an enroll: the law, which would have prevented it, does not take it back.
    """
    identity, enroll = call.statements.identity, call.ledger.enroll
    is_enrolled = enroll.state in PERHAPS_DONE
    if identity is None or not (identity.by_desk or is_enrolled):
        return ()
    named = {*identity.despite, *(enroll.despite if is_enrolled else ())}
    is_there = _has_spoken if is_enrolled else _holds
    return tuple([name for name in EVIDENCE if name in _IDENTITY and name not in named and is_there(facts, name)])


def in_words(names: Iterable[str]) -> str:
    """Return what names mean, as a part of a sentence."""
    return "; ".join(WORDS.get(name, name) for name in names)


def _holds(facts: Facts, name: str) -> bool:
    """Tell whether evidence is there. A policy that is still applied is the law's matter, which no word overrules."""
    is_applied = {"red_seen": facts.red, "unclassified_seen": facts.unclassified}
    return _has_spoken(facts, name) and not is_applied.get(name, False)


def _has_spoken(facts: Facts, name: str) -> bool:
    return facts.research in UNDER_REVIEW if name == "research" else bool(getattr(facts, name))

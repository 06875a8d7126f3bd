"""Reports the results of rules over many recorded calls: matches, shadow matches, what was sent and its outcome. Pure.

Read it before switching a rule from shadow to live. Calls in which a rule in shadow would have acted differently from
the live rules are listed one by one.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from callkeeper.calls.policies import Colour, Policies
from callkeeper.calls.story import would
from callkeeper.calls.trail import Entry, Recorded, Tried


@dataclass(slots=True)
class Tally:
    """The results of one rule at one institution, in calls. ``ended`` counts what became of effects, by state."""

    matched: int = 0
    held_by_law: int = 0
    shadowed: int = 0
    would: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    disagreements: int = 0


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A call in which a rule in shadow would have acted differently from the live rules."""

    institution_key: str
    voice_id: str
    rule: str
    would: str
    live: str


@dataclass(slots=True)
class Report:
    """The results of all rules. ``colourless`` counts calls by policy names without a colour in the current rules."""

    calls: int = 0
    rules: dict[tuple[str, str], Tally] = field(default_factory=dict)
    disagreements: list[Disagreement] = field(default_factory=list)
    colourless: Counter[str] = field(default_factory=Counter)
    digests: Counter[str] = field(default_factory=Counter)

    def tally(self, institution_key: str, rule: str) -> Tally:
        return self.rules.setdefault((institution_key, rule), Tally())


def report(calls: Iterable[Recorded], policies: Policies) -> Report:
    """Count the results of rules."""
    result = Report()
    for call in calls:
        result.calls += 1
        decisions = [entry for entry in call.trail if entry.what == "decided" and entry.asked != "assign"]
        result.digests.update({entry.rules for entry in decisions if entry.rules})
        _count_matches(result, call, decisions)
        _count_shadows(result, call, decisions)
        _count_effects(result, call)
        names = {name for entry in call.trail for name in entry.policies}
        result.colourless.update(name for name in names if policies.colour(name) is Colour.UNCLASSIFIED)
    return result


def _count_matches(result: Report, call: Recorded, decisions: list[Entry]) -> None:
    for rule in {entry.rule for entry in decisions if entry.rule}:
        result.tally(call.institution_key, rule).matched += 1
    for rule in {entry.rule for entry in decisions if entry.rule and entry.forbidden}:
        result.tally(call.institution_key, rule).held_by_law += 1


def _count_shadows(result: Report, call: Recorded, decisions: list[Entry]) -> None:
    """Count each rule in shadow once per call, by the strongest thing it would have done."""
    strongest: dict[str, tuple[Tried, Entry]] = {}
    for entry in decisions:
        for line in entry.tried:
            known = strongest.get(line.rule)
            is_weaker = known is not None and _net(line) == "hold" and _net(known[0]) != "hold"
            if line.result == "shadowed" and not is_weaker:
                strongest[line.rule] = (line, entry)
    for rule, (line, entry) in strongest.items():
        tally = result.tally(call.institution_key, rule)
        tally.shadowed += 1
        tally.would[_net(line)] += 1
        if _net(line) != entry.kind:
            tally.disagreements += 1
            live = f"{entry.kind} by {entry.rule!r}"
            result.disagreements.append(Disagreement(call.institution_key, call.voice_id, rule, would(line), live))


def _net(line: Tried) -> str:
    return "hold" if line.forbidden else line.then


def _count_effects(result: Report, call: Recorded) -> None:
    """Follow each effect from the rule that decided it to its last known state."""
    rule_of: dict[str, str] = {}
    sent: dict[str, str] = {}
    for entry in call.trail:
        kind = entry.kind or ""
        if entry.what == "decided" and kind in {"enroll", "reject"}:
            rule_of[kind] = entry.rule or ""
        elif entry.what == "sent" and kind in rule_of:
            sent[kind] = "sent"
        elif entry.what in {"answered", "established"} and kind in sent:
            sent[kind] = entry.state or ""
    for kind, state in sent.items():
        tally = result.tally(call.institution_key, rule_of[kind])
        tally.sent[kind] += 1
        tally.ended[state] += 1

"""What can be proved about rules before any call comes, from what facts mean: each proof is a fault.

A rule whose conditions contradict each other; a rule whose calls earlier rules take; an enroll or reject that the law always
holds; a reject on a single piece of evidence.
"""

from collections.abc import Sequence

from calls.law import articles
from calls.record import EffectKind
from calls.rules.book import Condition, Outcome, Rule, Stage
from calls.rules.conditions import describe_condition
from calls.rules.sections import Fault, Faults
from calls.rules.world import possible

_EFFECTS = {Outcome.ENROLL: EffectKind.ENROLL, Outcome.REJECT: EffectKind.REJECT}


def prove(rules: Sequence[Rule], faults: Faults) -> None:
    """Add every fault that can be proved of rules that are well formed one by one."""
    for n, rule in enumerate(rules):
        if not possible(rule.when):
            _fault(faults, rule, "its conditions contradict each other: it never matches", _clash(rule.when))
        elif (taken := taken_by(rules[:n], rule)) is not None:
            names = ", ".join(f"{other.name!r} (line {other.line})" for other in taken)
            _fault(
                faults,
                rule,
                f"it is never reached: every call it would match is taken by {names}",
                "put it earlier, or narrow the others",
            )
        elif reasons := always_forbidden(rule):
            _fault(
                faults,
                rule,
                f"it can never {rule.outcome}: the law forbids it ({', '.join(reasons)})",
                "see callkeeper rules docs, The law",
            )
        elif rule.outcome is Outcome.REJECT and len(evidence(rule)) < 2 and ("distrusted", True) not in rule.when:
            _fault(
                faults,
                rule,
                "it rejects on a single piece of evidence",
                "add one that follows neither from the others nor from the law, or distrusted = true (a person's word)",
            )


def taken_by(earlier: Sequence[Rule], rule: Rule) -> list[Rule] | None:
    """Return the earlier live rules that together leave a rule nothing; None if it can be reached."""
    live = [other for other in earlier if other.stage is Stage.LIVE]
    if any(_is_reached(live, rule, key) for key in _meant_for(live, rule)):
        return None
    needed = list(live)
    for other in live:
        fewer = [one for one in needed if one is not other]
        if not any(_is_reached(fewer, rule, key) for key in _meant_for(live, rule)):
            needed = fewer
    return needed


def _meant_for(live: Sequence[Rule], rule: Rule) -> frozenset[str | None]:
    """Return the institutions to try: the rule's own, or every one that is named and one that is not."""
    if rule.institutions is not None:
        return frozenset(rule.institutions)
    return frozenset[str | None]({None}).union(*(other.institutions or () for other in live))


def _is_reached(live: Sequence[Rule], rule: Rule, institution_key: str | None) -> bool:
    return possible(rule.when, [other.when for other in live if other.applies_to(institution_key)])


def always_forbidden(rule: Rule) -> list[str]:
    """Return the articles of the law that hold in every call the rule matches, if they leave it nothing to do."""
    kind = _EFFECTS.get(rule.outcome)
    if kind is None or possible(rule.when, [article.when for article in articles(kind)]):
        return []
    return [article.name for article in articles(kind) if not possible(rule.when, [article.when])]


def evidence(rule: Rule) -> list[Condition]:
    """Return the conditions that say something of their own: implied neither by the law nor by the others."""
    lawless = [article.when for article in articles(EffectKind.REJECT)]
    kept = list(rule.when)
    for condition in rule.when:
        others = [other for other in kept if other is not condition]
        if not possible(others, [*lawless, [condition]]):
            kept = others
    return kept


def _clash(when: Sequence[Condition]) -> str:
    """Name the fewest conditions that contradict each other."""
    clash = list(when)
    for condition in when:
        fewer = [one for one in clash if one is not condition]
        if not possible(fewer):
            clash = fewer
    return " and ".join(describe_condition(*condition) for condition in clash) + " cannot both be"


def _fault(faults: Faults, rule: Rule, problem: str, allowed: str) -> None:
    faults.found.append(Fault(rule.line, problem, allowed, repr(rule.name)))

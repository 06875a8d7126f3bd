"""Proves faults in rules before any call comes, from the meaning of the facts.

It finds a rule whose conditions contradict each other, a rule that is never reached because of earlier ones, an enroll
or reject that the law always forbids, and a reject with a single piece of evidence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import Facts
from callkeeper.calls.law import articles
from callkeeper.calls.policies import Policies
from callkeeper.calls.rules.book import EFFECTS, Condition, Not, OnChecks, Outcome, Rule, Stage, Test, dates_of
from callkeeper.calls.rules.condition_parsing import describe_condition
from callkeeper.calls.rules.matching import holds, is_meant_for, is_valid
from callkeeper.calls.rules.patterns import TooManyNames
from callkeeper.calls.rules.possible_facts import TooManyHistories, World
from callkeeper.calls.rules.toml_reader import Fault

_ALWAYS = datetime.min.replace(tzinfo=UTC)

ADD_EVIDENCE = (
    "add one that follows neither from the others nor from the law and speaks against the caller, or distrusted = true "
    "(a person's word)"
)
ASK_INSTEAD = (
    'ask a person instead: then = "ask"; where the institution accepts that, name it: institutions = [...] in the rule, and '
    "the same keys in [enroll] against_mismatch"
)
OPT_IN = (
    "; where the institution accepts that, name it: institutions = [...] in the rule, and the same keys in "
    "[reject] on_red_alone"
)


_ELSEWHERE = "the case may be about another call, whose victim may be the one who calls now"
_EARLIER = "the earlier call may have been another caller's, and its victim may be the one who calls now"
_NEVER_EVIDENCE: Mapping[str, str] = {
    "fraud_elsewhere": _ELSEWHERE,
    "research_elsewhere": _ELSEWHERE,
    "rejected_before": _EARLIER,
    "unenrolled_before": _EARLIER,
    "fraud_before": _EARLIER,
    "suspected_before": _EARLIER,
    "opted_out_before": "it speaks of consent, not against the caller",
}
"""Facts about other calls, on which no rule may reject, and why."""

_NOTHING_KNOWN = Facts.from_dict({})


def prove(
    rules: Sequence[Rule], policies: Policies, red_alone: frozenset[str], against_mismatch: frozenset[str]
) -> tuple[list[Rule], list[Fault]]:
    """Find the faults in a combination of rules without individual faults.

    Args:
        rules: In the order of the file.
        policies: The colours of policies.
        red_alone: The institutions that let a rule reject on a red policy alone.
        against_mismatch: The institutions that let a rule enroll although the voice does not match.

    Returns:
        The rules, with those marked that reject on red alone or enroll against a mismatch, and the faults.
    """
    proofs = Proofs.of(rules, policies)
    marked, faults = [], []
    for n, rule in enumerate(rules):
        try:
            fault = proofs.fault_of(rules[:n], rule, red_alone, against_mismatch)
            marked.append(
                replace(
                    rule,
                    on_red_alone=proofs.is_on_red_alone(rule),
                    against_mismatch=proofs.is_against_mismatch(rule),
                )
            )
        except TooManyNames:
            many = "the patterns of policies can be combined in too many ways to prove anything"
            return list(rules), [
                Fault(rule.line, many, "use fewer patterns that begin with *, or whole names", repr(rule.name))
            ]
        except TooManyHistories:
            many = "the conditions with on_checks can be combined in too many ways to prove anything"
            return list(rules), [Fault(rule.line, many, "use fewer of them, with smaller numbers", repr(rule.name))]
        faults += [fault] if fault is not None else []
    return marked, faults


@dataclass(frozen=True, slots=True)
class Proofs:
    """Proofs about rules, within the world of the facts that they name."""

    world: World

    @classmethod
    def of(cls, rules: Sequence[Rule], policies: Policies) -> "Proofs":
        named = [condition for rule in rules for condition in rule.when]
        now = [(name, _now(test)) for name, test in named]
        return cls(World(policies, tuple(dict.fromkeys([*named, *now]))))

    def fault_of(
        self, earlier: Sequence[Rule], rule: Rule, red_alone: frozenset[str], against_mismatch: frozenset[str]
    ) -> Fault | None:
        """Return the first fault of a rule that follows others; None if it has none."""
        if not self.world.possible(rule.when):
            return _fault(rule, "its conditions contradict each other: it never matches", self._clash(rule.when))
        if (taken := self.taken_by(earlier, rule)) is not None:
            names = ", ".join(f"{other.name!r} (line {other.line})" for other in taken)
            problem = f"it is never reached: every call it would match is taken by {names}"
            return _fault(rule, problem, "put it earlier, or narrow the others")
        if self.is_against_mismatch(rule) and not (rule.institutions and rule.institutions <= against_mismatch):
            return _fault(rule, "it enrolls although the voice does not match", ASK_INSTEAD)
        if reasons := self.always_forbidden(rule):
            problem = f"it can never {rule.outcome}: the law forbids it ({', '.join(reasons)})"
            return _fault(rule, problem, "see docs/rules.md, The law")
        if (other := self._about_another_call(rule)) is not None:
            problem = f"it rejects on {describe_condition(*other)}"
            return _fault(rule, problem, f"it may ask or hold, not reject: {_NEVER_EVIDENCE[other[0]]}")
        if rule.outcome is Outcome.REJECT and not self._may_reject(rule, red_alone):
            more = OPT_IN if self.is_on_red_alone(rule) else ""
            return _fault(rule, "it rejects on a single piece of evidence", ADD_EVIDENCE + more)
        return None

    def taken_by(self, earlier: Sequence[Rule], rule: Rule) -> list[Rule] | None:
        """Return the earlier live rules that together match every call of a rule; None if the rule can be reached."""
        live = [other for other in earlier if other.stage is Stage.LIVE]
        if self._is_reached(live, rule):
            return None
        needed = list(live)
        for other in live:
            fewer = [one for one in needed if one is not other]
            if not self._is_reached(fewer, rule):
                needed = fewer
        return needed

    def _is_reached(self, live: Sequence[Rule], rule: Rule) -> bool:
        """Tell whether some call, of some institution, at some time, reaches a rule and matches it."""
        keys = frozenset[str | None]({None}).union(*(other.institutions or () for other in live))
        if rule.institutions is not None:
            keys = frozenset(rule.institutions)
        times = [at for at in (_ALWAYS, *dates_of((*live, rule))) if is_valid(rule, at)]
        before = {
            tuple(other.when for other in live if is_meant_for(other, key) and is_valid(other, at))
            for key in keys
            for at in times
        }
        return any(self.world.possible(rule.when, taken) for taken in before)

    def always_forbidden(self, rule: Rule) -> list[str]:
        """Return the articles of the law behind the fact that a rule's effect is forbidden in every call it matches."""
        kind = EFFECTS.get(rule.outcome)
        if kind is None:
            return []
        against = articles(
            kind, on_red_alone=self.is_on_red_alone(rule), against_mismatch=self.is_against_mismatch(rule)
        )
        if self.world.possible(rule.when, [article.when for article in against]):
            return []
        return [article.name for article in against if not self.world.possible(rule.when, [article.when])]

    def evidence(self, rule: Rule) -> list[Condition]:
        """Return the conditions that speak against the caller, without those implied by the others or by the law.

        The same sign, now and on some checks, counts once.
        """
        lawless = [article.when for article in articles(EffectKind.REJECT)]
        signs = dict.fromkeys((name, _now(test)) for name, test in rule.when)
        # A policy that nobody has classified may mean anything, so it is no evidence.
        kept = [sign for sign in signs if sign[0] != "unclassified" and self.world.speaks_against(sign)]
        for sign in list(kept):
            others = [other for other in kept if other is not sign]
            if not self.world.possible(others, [*lawless, [sign]]):
                kept = others
        return kept

    def is_on_red_alone(self, rule: Rule) -> bool:
        """Tell whether a rule rejects although only a red policy speaks against the caller."""
        if rule.outcome is not Outcome.REJECT or self._needs_distrust(rule) or len(self.evidence(rule)) != 1:
            return False
        return not self.world.possible([*self.evidence(rule), ("red", False)])

    def is_against_mismatch(self, rule: Rule) -> bool:
        """Tell whether a rule enrolls only callers whose voice does not match, without a person's word."""
        if rule.outcome is not Outcome.ENROLL or not self.world.possible([*rule.when, ("verified_by_desk", False)]):
            return False
        return not self.world.possible(rule.when, [[("voice_mismatch", True)]])

    def _about_another_call(self, rule: Rule) -> Condition | None:
        """Return the first condition that makes a reject depend on what another call showed; None if there is none.

        A person's distrust is reason enough beside it.
        """
        if rule.outcome is not Outcome.REJECT or self._needs_distrust(rule):
            return None
        named = (one for one in rule.when if one[0] in _NEVER_EVIDENCE)
        return next((one for one in named if not holds(one, _NOTHING_KNOWN)), None)

    def _may_reject(self, rule: Rule, red_alone: frozenset[str]) -> bool:
        if self._needs_distrust(rule) or len(self.evidence(rule)) > 1:
            return True
        return self.is_on_red_alone(rule) and rule.institutions is not None and rule.institutions <= red_alone

    def _needs_distrust(self, rule: Rule) -> bool:
        return not self.world.possible([*rule.when, ("distrusted", False)])

    def _clash(self, when: Sequence[Condition]) -> str:
        """Return the smallest set of conditions that contradict each other."""
        clash = list(when)
        for condition in when:
            fewer = [one for one in clash if one is not condition]
            if not self.world.possible(fewer):
                clash = fewer
        if len(clash) == 1:
            return f"{describe_condition(*clash[0])} is true of no call: see [policies], and what the fact can be"
        return " and ".join(describe_condition(*condition) for condition in clash) + " cannot both be"


def _now(test: Test) -> Test:
    """Return a test about checks as the same test about the present."""
    match test:
        case OnChecks(inner, _):
            return inner
        case Not(inner):
            return Not(_now(inner))
        case _:
            return test


def _fault(rule: Rule, problem: str, allowed: str) -> Fault:
    return Fault(rule.line, problem, allowed, repr(rule.name))

"""Apply the rules to the facts of a call, within the law: what is to be done, and who may be assigned. Pure.

First live match wins; rules in shadow are remembered with what they would have done, and passed over. What the law
forbids is held, with every reason. Only a person's word or the one candidate of a call that nobody has claimed leads to
an assign.
"""

from dataclasses import dataclass

from calls.facts import Facts
from calls.law import forbidden
from calls.ledger import EffectKind
from calls.record import Call, Candidate
from calls.rules.book import AS_VERIFIED, Outcome, Rule, RuleBook, Stage, holds
from calls.rules.conditions import DATE, dates_wanted, found, wanted
from calls.trail import Result, Tried

_EFFECTS = {Outcome.ENROLL: EffectKind.ENROLL, Outcome.REJECT: EffectKind.REJECT}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule comes to within the law.

    ``asked`` is what the rule asks for, ``outcome`` what is left of it, ``forbidden`` names the law's reasons where that is
    less. ``shadows`` are the rules in shadow that match before the live one: what they would have come to.
    """

    outcome: Outcome
    rule: str
    because: str
    validation_type: str | None = None
    forbidden: tuple[str, ...] = ()
    shadows: tuple["Verdict", ...] = ()
    asked: Outcome = Outcome.HOLD
    rules: str = ""
    """Digest of the rules in force."""

    @property
    def fingerprint(self) -> str:
        """Return a text that changes when the verdict or the rules do, so that a trail holds each verdict once."""
        shadows = ",".join(shadow.fingerprint for shadow in self.shadows)
        return f"{self.outcome}/{self.rule}/{','.join(self.forbidden)}/{self.rules}[{shadows}]"


def judge(facts: Facts, book: RuleBook, institution_key: str) -> Verdict:
    """Return what the first matching live rule asks for, held back by the law."""
    shadows: list[Verdict] = []
    for rule in book.rules:
        if not rule.applies_to(institution_key) or not rule.is_valid(facts.at) or not matches(rule, facts):
            continue
        if rule.stage is Stage.SHADOW:
            shadows.append(_within_the_law(rule, facts, book, ()))
            continue
        return _within_the_law(rule, facts, book, tuple(shadows))
    return Verdict(Outcome.HOLD, "", "no rule matches", shadows=tuple(shadows), rules=book.digest)


def matches(rule: Rule, facts: Facts) -> bool:
    """Tell whether every condition of a rule holds."""
    return all(holds(condition, facts) for condition in rule.when)


def table(facts: Facts, book: RuleBook, institution_key: str) -> tuple[Tried, ...]:
    """Return how every rule fared, in order: matched, or which condition failed on which fact.

    Says the same as ``judge``, at greater length: for the trail.
    """
    lines: list[Tried] = []
    is_decided = False
    for rule in book.rules:
        line = (
            Tried(rule.name, rule.outcome, rule.stage, "unasked")
            if is_decided
            else _try(rule, facts, book, institution_key)
        )
        is_decided |= line.result == "matched"
        lines.append(line)
    return tuple(lines)


def _try(rule: Rule, facts: Facts, book: RuleBook, institution_key: str) -> Tried:
    line = Tried(rule.name, rule.outcome, rule.stage, "elsewhere")
    if not rule.applies_to(institution_key):
        return line
    if not rule.is_valid(facts.at):
        was = f"{facts.at:{DATE}}" if facts.at is not None else None
        return Tried(rule.name, rule.outcome, rule.stage, "failed", "the date", dates_wanted(rule), was)
    for name, test in rule.when:
        if not holds((name, test), facts):
            return Tried(rule.name, rule.outcome, rule.stage, "failed", name, wanted(test), found(name, test, facts))
    result: Result = "shadowed" if rule.stage is Stage.SHADOW else "matched"
    return Tried(
        rule.name, rule.outcome, rule.stage, result, forbidden=_within_the_law(rule, facts, book, ()).forbidden
    )


def _within_the_law(rule: Rule, facts: Facts, book: RuleBook, shadows: tuple[Verdict, ...]) -> Verdict:
    kind = _EFFECTS.get(rule.outcome)
    reasons = (
        ()
        if kind is None
        else forbidden(kind, facts, opt_in_required=book.require_opt_in, on_red_alone=rule.on_red_alone)
    )
    validation = facts.validation_type if rule.validation_type == AS_VERIFIED else rule.validation_type
    outcome = Outcome.HOLD if reasons else rule.outcome
    return Verdict(outcome, rule.name, rule.because, validation, reasons, shadows, rule.outcome, book.digest)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Whom to assign; nobody where ``person_id`` is None or the law forbids it. ``rules`` is the digest in force."""

    person_id: str | None
    because: str
    operator: str | None = None
    forbidden: tuple[str, ...] = ()
    rules: str = ""

    @property
    def allowed_person(self) -> str | None:
        """Return whom to assign now."""
        return None if self.forbidden else self.person_id

    @property
    def fingerprint(self) -> str:
        """Return a text that changes when this does, so that a trail holds each decision once."""
        return f"{self.person_id}/{self.because}/{','.join(self.forbidden)}/{self.rules}"


def judge_assignment(call: Call, book: RuleBook, facts: Facts) -> Assignment:
    """Return whom to assign: the desk's word, or the only candidate of a call that nobody has claimed."""
    reasons = forbidden(EffectKind.ASSIGN, facts)
    wish = call.assign_wish
    if wish is not None:
        because = "a person at the desk said who the caller is"
        return Assignment(wish.person_id, because, wish.operator, reasons, book.digest)
    obstacle = _obstacle(call, book)
    if obstacle is not None:
        return Assignment(None, obstacle, None, reasons, book.digest)
    because = "the only candidate, and nobody has claimed the call"
    return Assignment(call.candidates[0].person_id, because, None, reasons, book.digest)


def _obstacle(call: Call, book: RuleBook) -> str | None:
    """Say why nobody is assigned without being asked for; None where the only candidate may be."""
    if call.person_id is not None:
        return "the call has a person"
    if not book.assign.automatic:
        return "[assign] automatic is false"
    if call.core_username:
        return "an operator has claimed the call"
    if len(call.candidates) != 1:
        return f"{len(call.candidates) or 'no'} candidates, exactly one is needed"
    return _unfit(call.candidates[0], book)


def _unfit(candidate: Candidate, book: RuleBook) -> str | None:
    if not candidate.person_id:
        return "the only candidate has no person id"
    allowed = book.assign.person_types
    if allowed is not None and candidate.person_type not in allowed:
        return f"the only candidate is of person type {candidate.person_type}, not among [assign] person_types"
    return None

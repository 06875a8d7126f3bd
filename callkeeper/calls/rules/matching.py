"""Applies the rules to the facts of a call, within the law: what to do. Pure functions.

The first matching live rule decides. Matching rules in shadow are recorded with what they would have done, but do not
decide. What the law forbids is held, with every reason.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from callkeeper.calls.facts import BY_VOICE, Facts, Value
from callkeeper.calls.law import forbidden, question, sentence_of
from callkeeper.calls.policies import is_named
from callkeeper.calls.quantity import quantity
from callkeeper.calls.rules.book import (
    AS_VERIFIED,
    EFFECTS,
    Between,
    Condition,
    Includes,
    InList,
    Not,
    OnChecks,
    OneOf,
    Outcome,
    Rule,
    RuleBook,
    Stage,
    Test,
)
from callkeeper.calls.trail import Result, Tried

DATE: Final = "%Y-%m-%d %H:%M:%S UTC"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The result of a rule within the law.

    ``asked`` is what the rule asks for, ``outcome`` what remains of it, ``forbidden`` the law's reasons if that is
    less. ``shadows`` are the verdicts of matching rules in shadow before the live one.
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
        shadows = ",".join([shadow.fingerprint for shadow in self.shadows])
        return f"{self.outcome}/{self.rule}/{','.join(self.forbidden)}/{self.rules}[{shadows}]"


def judge(facts: Facts, book: RuleBook, institution_key: str) -> Verdict:
    """Return what the first matching live rule asks for, as far as the law allows it.

    If an effect does not follow from that, a person is asked what the law asks, where rules do more than watch.
    """
    verdict, asking = _by_rules(facts, book, institution_key), question(facts)
    watches_only = not any(may_act(book, outcome, institution_key) for outcome in EFFECTS)
    if asking is None or verdict.outcome in EFFECTS or watches_only:
        return verdict
    return replace(verdict, outcome=Outcome.ASK, rule=asking.name, because=sentence_of(asking.name))


def _by_rules(facts: Facts, book: RuleBook, institution_key: str) -> Verdict:
    facts = book.local(facts, institution_key)
    shadows: list[Verdict] = []
    for rule in book.rules:
        # What fails most often is asked first.
        if failed_condition(rule, facts) or not (is_meant_for(rule, institution_key) and is_valid(rule, facts.at)):
            continue
        if rule.stage is Stage.SHADOW:
            shadows.append(_within_the_law(rule, facts, book, ()))
            continue
        return _within_the_law(rule, facts, book, tuple(shadows))
    return Verdict(Outcome.HOLD, "", "no rule matches", shadows=tuple(shadows), rules=book.digest)


def table(facts: Facts, book: RuleBook, institution_key: str) -> tuple[Tried, ...]:
    """Return the result of every rule, in order: matched, or which condition failed on which fact.

    It agrees with ``judge`` but gives more detail, for the trail.
    """
    facts = book.local(facts, institution_key)
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


def asks_meanwhile(facts: Facts, book: RuleBook, institution_key: str) -> bool:
    """Tell whether a rule would ask a person if the rules whose effects the law holds did not match."""
    facts = book.local(facts, institution_key)
    tried = (_try(rule, facts, book, institution_key) for rule in book.rules)
    decides = next((one for one in tried if one.result == "matched" and not one.forbidden), None)
    return decides is not None and decides.then == Outcome.ASK


def _try(rule: Rule, facts: Facts, book: RuleBook, institution_key: str) -> Tried:
    line = Tried(rule.name, rule.outcome, rule.stage, "elsewhere")
    if not is_meant_for(rule, institution_key):
        return line
    if not is_valid(rule, facts.at):
        was = f"{facts.at:{DATE}}" if facts.at is not None else None
        return Tried(rule.name, rule.outcome, rule.stage, "failed", "the date", dates_wanted(rule), was)
    if (failed := failed_condition(rule, facts)) is not None:
        name, test = failed
        return Tried(rule.name, rule.outcome, rule.stage, "failed", name, wanted(test), found(name, test, facts))
    result: Result = "shadowed" if rule.stage is Stage.SHADOW else "matched"
    return Tried(
        rule.name, rule.outcome, rule.stage, result, forbidden=_within_the_law(rule, facts, book, ()).forbidden
    )


def _within_the_law(rule: Rule, facts: Facts, book: RuleBook, shadows: tuple[Verdict, ...]) -> Verdict:
    kind = EFFECTS.get(rule.outcome)
    reasons = (
        ()
        if kind is None
        else forbidden(
            kind,
            facts,
            opt_in_required=book.require_opt_in,
            on_red_alone=rule.on_red_alone,
            against_mismatch=rule.against_mismatch,
            in_shadow=rule.stage is Stage.SHADOW,
        )
    )
    validation = facts.validation_type if rule.validation_type == AS_VERIFIED else rule.validation_type
    outcome = Outcome.HOLD if reasons else rule.outcome
    return Verdict(outcome, rule.name, rule.because, validation, reasons, shadows, rule.outcome, book.digest)


def is_meant_for(rule: Rule, institution_key: str | None) -> bool:
    """Tell whether a rule applies to an institution. None: an institution that no rule names."""
    return rule.institutions is None or institution_key in rule.institutions


def may_act(book: RuleBook, outcome: Outcome, institution_key: str) -> bool:
    """Tell whether a live rule for an institution asks for an outcome. Without one, the rules only watch."""
    return any(
        rule.outcome is outcome and rule.stage is Stage.LIVE and is_meant_for(rule, institution_key)
        for rule in book.rules
    )


def is_valid(rule: Rule, at: datetime | None) -> bool:
    """Tell whether a rule is in force at an instant. Without an instant, a rule with dates is not."""
    if rule.valid_from is None and rule.valid_until is None:
        return True
    if at is None:
        return False
    return (rule.valid_from is None or rule.valid_from <= at) and (rule.valid_until is None or at < rule.valid_until)


def next_turn(
    book: RuleBook, since: Mapping[str, datetime | None], now: datetime, institution_key: str | None
) -> datetime | None:
    """Return when time alone may next change what the rules decide for a call; None if it never does.

    ``since``: when the facts that count seconds began. Without an institution no time zone counts, nor the hour.
    """
    turns = [
        at + timedelta(seconds=turn_s) for name, at in since.items() if at is not None for turn_s in book.turns_s[name]
    ]
    hour = None if institution_key is None else book.next_hour(institution_key, now)
    return min((at for at in (*turns, *book.dates, hour) if at is not None and at > now), default=None)


def failed_condition(rule: Rule, facts: Facts) -> Condition | None:
    """Return the first condition of a rule that does not hold; None if all do."""
    # Twenty rules are applied several times for each answer, and most conditions compare a value. So these are compared
    # here, and only those that are met are looked at further.
    for condition in rule.when:
        name, test = condition
        if ((test is True or test is False) and getattr(facts, name) is not test) or not holds(condition, facts):
            return condition
    return None


def holds(condition: Condition, facts: Facts) -> bool:
    """Tell whether a condition holds for a call's facts."""
    name, test = condition
    return _met(name, test, facts) and (facts.voice_checked or not needs_voice_checked(condition))


def needs_voice_checked(condition: Condition) -> bool:
    """Tell whether a condition asks for the absence of evidence that the voice provider may still bring.

    It then holds only once the voice had its say. Until then, what was not seen is unknown.
    """
    name, test = condition
    return name in BY_VOICE and _asks_for_absence(test)


def _asks_for_absence(test: Test) -> bool:
    return not _asks_for_absence(test.test) if isinstance(test, Not) else test is False


def _met(name: str, test: Test, facts: Facts) -> bool:
    match test:
        case OnChecks(inner, least):
            return checks_meeting(name, inner, facts) >= least
        case Not(inner):
            return not _met(name, inner, facts)
        case _:
            return admits(test, getattr(facts, name))


def admits(test: Test, value: Value | tuple[str, ...]) -> bool:
    """Tell whether a value meets a test. All policy names together are one value.

    Raises:
        TypeError: The test is about a history, which a value does not have.
    """
    match test:
        case OneOf(values):
            return value in values
        case Between(least, most):
            if not isinstance(value, int):
                return False
            return (least is None or value >= least) and (most is None or value <= most)
        case Includes(patterns):
            names = value if isinstance(value, tuple) else ()
            return any(is_named(name, patterns) for name in names)
        case InList(name):
            return isinstance(value, tuple) and name in value
        case Not(inner):
            return not admits(inner, value)
        case OnChecks():
            raise TypeError("only the history of a call can meet it")
        case bool() | int() | str() | None:
            return value == test
        case _:
            assert_never(test)


def checks_meeting(name: str, test: Test, facts: Facts) -> int:
    """Return on how many checks the answers met a test."""
    history = facts.history
    match test:
        case Not(inner):
            return history.answered.bit_count() - checks_meeting(name, inner, facts)
        case Includes(patterns):
            checks = 0
            for policy, on in history.policies.items():
                if is_named(policy, patterns):
                    checks |= on
            return checks.bit_count()
        case _:
            shown = history.signs.get(name, 0).bit_count()
            unshown = history.answered.bit_count() - shown
            return (shown if admits(test, True) else 0) + (unshown if admits(test, False) else 0)


def wanted(test: Test) -> Value:
    """Return what a test requires, for a trail: the value itself if it is one."""
    match test:
        case Between(least, most):
            bounds = (("at least", least), ("at most", most))
            return " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
        case OneOf(values):
            return f"one of {', '.join(map(str, values))}"
        case Includes(patterns):
            return f"with {' or '.join(patterns)}"
        case InList(name, is_pattern):
            return f"like {name}" if is_pattern else f"in the list {name}"
        case Not(Includes(patterns)):
            return f"without {' and '.join(patterns)}"
        case Not(InList() as inner):
            return f"not {_in_words(inner)}"
        case Not(inner):
            return f"other than {_in_words(inner)}"
        case OnChecks(inner, least):
            what = "" if inner is True else f"{_in_words(inner)} "
            return f"{what}on at least {quantity(least, 'check')}"
        case _:
            return test


def _in_words(test: Test) -> str:
    value = wanted(test)
    return str(value).lower() if isinstance(value, bool) else str(value)


def found(name: str, test: Test, facts: Facts) -> Value:
    """Return what a fact was when a test failed, for a trail."""
    if isinstance(test, bool) and getattr(facts, name) is not test:
        return getattr(facts, name)  # type: ignore[no-any-return]  # the fact is a truth value, as the test is
    if _met(name, test, facts):
        return "unknown until the voice is checked"
    match test:
        case OnChecks(inner, _):
            return f"seen on {quantity(checks_meeting(name, inner, facts), 'check')}"
        case Not(inner):
            return found(name, inner, facts)
        case _:
            value = getattr(facts, name)
            return ", ".join(value) or None if isinstance(value, tuple) else value


def dates_wanted(rule: Rule) -> str:
    """Describe when a rule is in force."""
    begins = f"from {rule.valid_from:{DATE}}" if rule.valid_from is not None else ""
    ends = f"before {rule.valid_until:{DATE}}" if rule.valid_until is not None else ""
    return " and ".join(part for part in (begins, ends) if part)

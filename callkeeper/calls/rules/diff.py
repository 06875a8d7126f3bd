"""Describes the differences between two rule books. Pure functions."""

from collections.abc import Iterator

from callkeeper.calls.rules.book import Rule, RuleBook
from callkeeper.calls.rules.condition_parsing import describe_condition
from callkeeper.calls.rules.matching import dates_wanted


def changes(old: RuleBook, new: RuleBook) -> list[str]:
    """Return what a new rule book changes: first the settings, then each rule; empty if nothing."""
    return [*_settings(old, new), *_rules(old, new)]


def _settings(old: RuleBook, new: RuleBook) -> Iterator[str]:
    before = _values(old)
    yield from (f"{key}: {before[key]} -> {value}" for key, value in _values(new).items() if value != before[key])
    had = _sets(old)
    yield from (f"{key}: {_listed(had[key], has)}" for key, has in _sets(new).items() if has != had[key])
    for name in sorted(old.lists.persons.keys() & new.lists.persons.keys()):
        if old.lists.persons[name] != new.lists.persons[name]:
            yield f"[lists] {name}: other persons"
    for name in sorted(old.lists.numbers.keys() & new.lists.numbers.keys()):
        if old.lists.numbers[name] != new.lists.numbers[name]:
            yield f"[lists] {name}: other numbers"


def _values(book: RuleBook) -> dict[str, str]:
    return {
        "[checks] at": ", ".join(f"{at:g}" for at in book.schedule.at_s),
        "[checks] reserve": str(book.schedule.reserve),
        "[checks] unassigned": str(book.checks_unassigned),
        "[reads] undecided_s": f"{book.reads_undecided_s:g}",
        "[reads] decided_s": f"{book.reads_decided_s:g}",
        "[assign] automatic": str(book.assign.automatic).lower(),
        "[assign] institutions": _or_all(book.assign.institutions),
        "[assign] person_types": _or_all(book.assign.person_types),
        "[[limit]] requests_per_s": ", ".join(f"{key} {per_s:g}" for key, per_s in book.limits) or "none",
        "[history] days": str(book.history_days),
        "[[zone]]": _zones(book),
        "[consent] require_opt_in": str(book.require_opt_in).lower(),
    }


def _sets(book: RuleBook) -> dict[str, frozenset[str]]:
    return {
        "[policies] green": frozenset(book.policies.green),
        "[policies] red": frozenset(book.policies.red),
        "[policies] neutral": frozenset(book.policies.neutral),
        "[reject] on_red_alone": book.red_alone,
        "[enroll] against_mismatch": book.against_mismatch,
    }


def _or_all(names: frozenset[str] | None) -> str:
    return "all" if names is None else ", ".join(sorted(names))


def _zones(book: RuleBook) -> str:
    return ", ".join(f"{zone.key}{f' for {key}' if key else ''}" for key, zone in sorted(book.zones.items())) or "none"


def _listed(had: frozenset[str], has: frozenset[str]) -> str:
    parts = [f"with {', '.join(sorted(has - had))}" if has - had else ""]
    parts.append(f"without {', '.join(sorted(had - has))}" if had - has else "")
    return " and ".join(part for part in parts if part)


def _rules(old: RuleBook, new: RuleBook) -> Iterator[str]:
    had, has = {rule.name: rule for rule in old.rules}, {rule.name: rule for rule in new.rules}
    for name, rule in had.items():
        if name not in has:
            yield f"rule {name!r} is gone: it asked for {rule.outcome}{_aside(rule)}"
    for n, (name, rule) in enumerate(has.items()):
        if name not in had:
            place = f"behind {new.rules[n - 1].name!r}" if n else "before all others"
            yield f"rule {name!r} is new, {place}: {_when(rule)}, {rule.outcome}{_aside(rule)}"
        else:
            yield from (f"rule {name!r}: {change}" for change in _rule(had[name], rule))
    common = [name for name in had if name in has]
    order = [name for name in has if name in had]
    if common != order:
        yield f"the order changed: {', '.join(map(repr, order))}"


def _rule(old: Rule, new: Rule) -> Iterator[str]:
    before, after = set(_conditions(old)), set(_conditions(new))
    yield from (f"no longer needs {condition}" for condition in _conditions(old) if condition not in after)
    yield from (f"also needs {condition}" for condition in _conditions(new) if condition not in before)
    if old.outcome is not new.outcome:
        yield f"then {old.outcome} -> {new.outcome}"
    if old.validation_type != new.validation_type:
        yield f"validation_type {old.validation_type or 'none'} -> {new.validation_type or 'none'}"
    if old.stage is not new.stage:
        yield f"goes from {old.stage} to {new.stage}"
    if old.institutions != new.institutions:
        yield f"is for {_for(new)} instead of {_for(old)}"
    if dates_wanted(old) != dates_wanted(new):
        yield f"is in force {dates_wanted(new) or 'always'} instead of {dates_wanted(old) or 'always'}"
    if old.because != new.because:
        yield f"says {new.because!r} instead of {old.because!r}"


def _conditions(rule: Rule) -> list[str]:
    return [describe_condition(name, test) for name, test in rule.when]


def _when(rule: Rule) -> str:
    return f"when {' and '.join(_conditions(rule))}" if rule.when else "always"


def _for(rule: Rule) -> str:
    return ", ".join(sorted(rule.institutions)) if rule.institutions else "all institutions"


def _aside(rule: Rule) -> str:
    parts = [f" with {rule.validation_type}" if rule.validation_type else ""]
    parts.append(" (in shadow)" if rule.stage == "shadow" else "")
    parts.append(f", for {_for(rule)}" if rule.institutions else "")
    parts.append(f", {dates_wanted(rule)}" if dates_wanted(rule) else "")
    return "".join(parts)

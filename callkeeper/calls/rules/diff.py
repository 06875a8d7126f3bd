"""Describes the differences between two rule books. Pure functions."""

from collections.abc import Iterator

from callkeeper.calls.rules.book import Rule, RuleBook
from callkeeper.calls.rules.condition_parsing import describe_condition
from callkeeper.calls.rules.matching import dates_wanted


def changes(old: RuleBook, new: RuleBook) -> list[str]:
    """Return what a new rule book changes: first the settings, then each rule; empty if nothing."""
    return [*_settings(old, new), *_rules(old, new)]


def _settings(old: RuleBook, new: RuleBook) -> Iterator[str]:
    kept = (
        ("[checks] at", _times(old), _times(new)),
        ("[checks] reserve", str(old.schedule.reserve), str(new.schedule.reserve)),
        ("[checks] unassigned", str(old.checks_unassigned), str(new.checks_unassigned)),
        ("[reads] undecided_s", f"{old.reads_undecided_s:g}", f"{new.reads_undecided_s:g}"),
        ("[reads] decided_s", f"{old.reads_decided_s:g}", f"{new.reads_decided_s:g}"),
        ("[assign] automatic", str(old.assign.automatic).lower(), str(new.assign.automatic).lower()),
        ("[assign] institutions", _or_all(old.assign.institutions), _or_all(new.assign.institutions)),
        ("[assign] person_types", _or_all(old.assign.person_types), _or_all(new.assign.person_types)),
        ("[[limit]] requests_per_s", _limits(old), _limits(new)),
        ("[history] days", str(old.history_days), str(new.history_days)),
        ("[[zone]]", _zones(old), _zones(new)),
        ("[consent] require_opt_in", str(old.require_opt_in).lower(), str(new.require_opt_in).lower()),
    )
    yield from (f"{key}: {before} -> {after}" for key, before, after in kept if before != after)
    lists = (
        ("[policies] green", frozenset(old.policies.green), frozenset(new.policies.green)),
        ("[policies] red", frozenset(old.policies.red), frozenset(new.policies.red)),
        ("[policies] neutral", frozenset(old.policies.neutral), frozenset(new.policies.neutral)),
        ("[reject] on_red_alone", old.red_alone, new.red_alone),
        ("[enroll] against_mismatch", old.against_mismatch, new.against_mismatch),
    )
    for key, had, has in lists:
        if had != has:
            yield f"{key}: {_listed(had, has)}"
    for kind, before, after in (
        ("persons", old.lists.persons, new.lists.persons),
        ("numbers", old.lists.numbers, new.lists.numbers),
    ):
        for name in sorted(before.keys() & after.keys()):
            if before[name] != after[name]:
                yield f"[lists] {name}: other {kind}"


def _or_all(names: frozenset[str] | None) -> str:
    return "all" if names is None else ", ".join(sorted(names))


def _limits(book: RuleBook) -> str:
    return ", ".join(f"{key} {per_s:g}" for key, per_s in book.limits) or "none"


def _zones(book: RuleBook) -> str:
    return ", ".join(f"{zone.key}{f' for {key}' if key else ''}" for key, zone in sorted(book.zones.items())) or "none"


def _times(book: RuleBook) -> str:
    return ", ".join(f"{at:g}" for at in book.schedule.at_s)


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

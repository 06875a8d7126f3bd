"""Turns a parsed rules file into a ``RuleBook`` and collects every fault on the way."""

from collections.abc import Mapping
from typing import Any

from calls.facts import OTHERWISE, Policies
from calls.record import CHECK_LIMIT
from calls.rules.book import AS_VERIFIED, AssignRule, Outcome, Rule, RuleBook, Stage
from calls.rules.conditions import read_conditions
from calls.rules.patterns import overlap
from calls.rules.proofs import prove
from calls.rules.sections import Faults, Section, one_of
from calls.schedule.check_plan import Schedule, schedule_faults

PERSON_TYPES = ("Primary", "Joint", "Beneficiary", "AuthorizedSigner", "CoBorrower", "CoSigner")
"""Spec: Person match."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "checks": ("at", "reserve", "unassigned"),
    "reads": ("undecided_s", "decided_s"),
    "policies": ("green", "red", "neutral"),
    "assign": ("automatic", "person_types"),
    "consent": ("require_opt_in",),
    "rule": ("name", "when", "then", "validation_type", "because", "stage", "institutions"),
}
"""Every table of a rules file and its keys."""

FINAL_HOLD = 'the last rule must hold every call: [[rule]] name = "otherwise", then = "hold", because = "..."'


def read_book(
    table: dict[str, Any], faults: Faults, *, name: str, digest: str, owned: frozenset[str] | None
) -> RuleBook | None:
    """Return the rules of a file; None where they cannot be told. What is wrong is added to ``faults``."""
    top = Section(faults, table)
    top.only(KEYS)
    sections = {key: top.section(key, keys) for key, keys in KEYS.items() if key != "rule"}
    schedule = _schedule(sections["checks"])
    reads, consent = sections["reads"], sections["consent"]
    policies = _policies(sections["policies"])
    assign = _assign(sections["assign"])
    rules = _rules(top, owned)
    undecided_s = reads.number("undecided_s", 5.0, least=1.0)
    decided_s = reads.number("decided_s", 15.0, least=1.0)
    unassigned = sections["checks"].count("unassigned", 0, most=schedule.automatic_limit if schedule else CHECK_LIMIT)
    opt_in = consent.flag("require_opt_in", default=False)
    if schedule is None or faults.found:
        return None
    return RuleBook(
        schedule=schedule,
        policies=policies,
        assign=assign,
        rules=rules,
        digest=digest,
        name=name,
        reads_undecided_s=undecided_s,
        reads_decided_s=decided_s,
        checks_unassigned=unassigned,
        require_opt_in=opt_in,
    )


def _schedule(checks: Section) -> Schedule | None:
    at_s = checks.numbers("at", "[10, 20, 40]")
    reserve = checks.count("reserve", 2, most=CHECK_LIMIT - 1)
    if at_s is None:
        return None
    found = schedule_faults(at_s, reserve)
    for problem in found:
        checks.fault("at", problem, "see callkeeper rules docs, The schedule")
    return None if found else Schedule(at_s, reserve)


def _policies(section: Section) -> Policies:
    """Read the colours; a name must have one, whatever patterns it fits."""
    lists = {key: section.texts(key, '["Green *"]') for key in KEYS["policies"]}
    said: list[tuple[str, str]] = []
    for colour, patterns in lists.items():
        for n, pattern in enumerate(patterns):
            place = Section(section.faults, {}, (*section.path, colour))
            if set(pattern) & set("?[]"):
                place.fault(n, f"{pattern!r} holds one of ? [ ]", "the only wildcard is *")
            for other, theirs in said:
                if other != colour and overlap(pattern, theirs):
                    same = "is" if pattern == theirs else f"and {theirs!r} can mean one name, which would be"
                    place.fault(n, f"{pattern!r} {same} both {other} and {colour}", "a policy has one colour")
            said.append((colour, pattern))
    return Policies(**lists)


def _assign(section: Section) -> AssignRule:
    types = section.texts("person_types", '["Primary", "Joint"]')
    for n, kind in enumerate(types):
        if kind not in PERSON_TYPES:
            place = Section(section.faults, {}, (*section.path, "person_types"))
            place.fault(n, f"{kind!r} is no person type", one_of(PERSON_TYPES, kind))
    return AssignRule(section.flag("automatic", default=True), frozenset(types) if types else None)


def _rules(top: Section, owned: frozenset[str] | None) -> tuple[Rule, ...]:
    tables = top.table.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        top.fault("rule", "rule must be a list of tables", "write [[rule]]")
        return ()
    rules = [_rule(Section(top.faults, table, ("rule", n), "a rule"), owned) for n, table in enumerate(tables)]
    _names(top, rules)
    _final_hold(top, tables)
    prove([rule for rule in rules if rule is not None], top.faults)
    return tuple(rule for rule in rules if rule is not None)


def _names(top: Section, rules: list[Rule | None]) -> None:
    seen: dict[str, int] = {}
    for n, rule in enumerate(rules):
        if rule is not None and seen.setdefault(rule.name, rule.line) != rule.line:
            problem = f"another rule, in line {seen[rule.name]}, is called {rule.name!r} too"
            place = Section(top.faults, {}, ("rule", n), rule=repr(rule.name))
            place.fault("name", problem, "names must differ: trails refer to them")


def _final_hold(top: Section, tables: list[dict[str, Any]]) -> None:
    last = tables[-1] if tables else {}
    if (
        last.get("then") != Outcome.HOLD.value
        or last.get("when")
        or last.get("institutions")
        or last.get("stage") == "shadow"
    ):
        place = Section(top.faults, {}, ("rule", max(len(tables) - 1, 0)))
        place.fault(None, "there is no final hold" if tables else "there are no rules", FINAL_HOLD)


def _rule(section: Section, owned: frozenset[str] | None) -> Rule | None:
    faults = section.faults
    before = len(faults.found)
    name = section.table.get("name")
    label = repr(name) if isinstance(name, str) and name.strip() else f"number {int(section.path[1]) + 1}"
    rule = Section(faults, section.table, section.path, "a rule", label)
    rule.text("name", "give every rule a name of its own: trails refer to it")
    rule.only(KEYS["rule"])
    because = rule.text("because", "say in a sentence why: it is written into the trail")
    outcome = rule.choice("then", Outcome)
    stage = rule.choice("stage", Stage, Stage.LIVE)
    when = read_conditions(rule)
    validation = _validation_type(rule, outcome)
    institutions = _institutions(rule, owned)
    if len(faults.found) > before or outcome is None or stage is None:
        return None
    return Rule(
        name=str(name),
        when=when,
        outcome=outcome,
        because=because,
        validation_type=validation,
        stage=stage,
        institutions=institutions,
        line=faults.lines.find(*section.path),
    )


def _institutions(rule: Section, owned: frozenset[str] | None) -> frozenset[str] | None:
    if "institutions" not in rule.table:
        return None
    keys = rule.texts("institutions", '["cu-1"]')
    if rule.table["institutions"] == []:
        rule.fault("institutions", "institutions is empty: the rule would be for nobody", "leave it out to mean all")
    place = Section(rule.faults, {}, (*rule.path, "institutions"), rule=rule.rule)
    for n, key in enumerate(keys):
        if owned is not None and key not in owned:
            place.fault(n, f"institution {key!r} is not one of the account's", one_of(sorted(owned), key))
    return frozenset(keys)


def _validation_type(rule: Section, outcome: Outcome | None) -> str | None:
    value = rule.table.get("validation_type")
    allowed = (*OTHERWISE, AS_VERIFIED)
    if outcome is Outcome.ENROLL and value not in allowed:
        wrong = "enroll needs a validation_type" if value is None else f"validation_type cannot be {value!r}"
        rule.fault("validation_type" if value is not None else "then", wrong, one_of(allowed, value))
    if outcome in {Outcome.REJECT, Outcome.HOLD} and value is not None:
        rule.fault("validation_type", f"{outcome} takes no validation_type", "it belongs to enroll alone")
    return value if isinstance(value, str) else None

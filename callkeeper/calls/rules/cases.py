"""Cases: an institution's own examples of what its rules should decide. Pure functions.

A cases file is TOML: ``rules`` names the rules file, and every ``[[case]]`` gives facts and the expected result. Facts
that a case does not name are those of an ordinary live call (``ORDINARY``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace as with_fields

from callkeeper.calls.facts import FACTS, Facts
from callkeeper.calls.institutions import nearest
from callkeeper.calls.record import CHECK_LIMIT, History
from callkeeper.calls.rules.book import Outcome, RuleBook
from callkeeper.calls.rules.condition_parsing import read_values
from callkeeper.calls.rules.file import SHIPPED, parse_toml
from callkeeper.calls.rules.matching import Verdict, judge, table
from callkeeper.calls.rules.replay import with_colours
from callkeeper.calls.rules.toml_reader import Fault, Faults, RulesError, Section
from callkeeper.calls.statuses import FRAUD
from callkeeper.calls.story import row_of

ORDINARY = Facts.from_dict(
    {
        "allowed": True,
        "real_voice_id": True,
        "status": "CheckRiskAndAuthentication",
        "assigned": True,
        "candidates": 1,
        "person_is_candidate": True,
    }
)
"""An ordinary live call: of an active institution, assigned, with nothing known about the caller yet."""

_ORDINARY = ORDINARY.as_dict()

KEYS = (
    *("name", "institution", "at", "facts", "policies", "seen_on_checks"),
    *("expect", "rule", "validation_type", "forbidden", "shadow"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One example. Expectations that are None are not checked."""

    name: str
    line: int
    institution_key: str
    facts: Facts
    expect: Outcome
    rule: str | None = None
    validation_type: str | None = None
    forbidden: frozenset[str] | None = None
    shadow: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Cases:
    """A cases file: its rules, by name or path, and its examples."""

    rules: str
    cases: tuple[Case, ...]
    name: str = "cases"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a case: the failed expectations (none if it passed), and the result of each rule."""

    case: Case
    failures: tuple[str, ...]
    explained: tuple[str, ...]


def load_cases(path: Path) -> Cases:
    """Read a cases file. A ``rules`` path is relative to the file's folder.

    Raises:
        RulesError: The file is missing, not TOML, or has faults; all are listed.
    """
    try:
        cases = parse_cases(path.read_bytes(), name=str(path))
    except OSError as error:
        raise RulesError.unreadable(
            str(path), error.strerror or "", "name a file of cases, which names the rules that it tests"
        ) from None
    return cases if cases.rules in SHIPPED else replace(cases, rules=str(path.parent / cases.rules))


def parse_cases(text: bytes, *, name: str) -> Cases:
    """Parse the content of a cases file.

    Raises:
        RulesError: With all faults.
    """
    parsed, lines = parse_toml(text, name=name)
    faults = Faults(lines)
    top = Section(faults, parsed)
    top.only(("rules", "at", "case"))
    at = top.instant("at")
    rules = top.text("rules", f'name the rules file, or one of {", ".join(SHIPPED)}: rules = "default"')
    tables: Any = parsed.get("case", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        top.fault("case", "there are no cases", "write [[case]]")
        tables = []
    cases = [_case(Section(faults, table, ("case", n), "a case"), n, at) for n, table in enumerate(tables)]
    if faults.found:
        raise RulesError(name, faults.found)
    return Cases(rules, tuple(case for case in cases if case is not None), name)


def _case(section: Section, n: int, default_at: datetime | None) -> Case | None:
    name = section.table.get("name")
    label = repr(name) if isinstance(name, str) else f"number {n + 1}"
    case = replace(section, rule=label, noun="case")
    case.only(KEYS)
    text = case.text("name", "say in a few words what the case shows")
    expect = case.choice("expect", Outcome)
    known = read_values(case, "facts")
    at = case.instant("at") or default_at
    history = _history(case)
    if known.get("final_analysis") and known.get("ended") is False:
        case.fault("facts", "the final analysis comes after the end of the call", "leave ended out, or ended = true")
    policies = case.texts("policies", '["Green Voice"]')
    institution = case.text("institution", "a key") if "institution" in case.table else ""
    if expect is None:
        return None
    return Case(
        name=text,
        line=section.faults.lines.find(*section.path),
        institution_key=institution,
        facts=with_fields(_facts(known, history), at=at, policies=policies),
        expect=expect,
        rule=case.text("rule", "a rule's name") if "rule" in case.table else None,
        validation_type=case.text("validation_type", "a type") if "validation_type" in case.table else None,
        forbidden=frozenset(case.texts("forbidden", '["opted_out"]')) if "forbidden" in case.table else None,
        shadow=frozenset(case.texts("shadow", '["a rule"]')) if "shadow" in case.table else None,
    )


def _history(case: Section) -> History:
    """Return on how many of the call's checks something was seen, by name of a policy or a fact."""
    seen = case.table.get("seen_on_checks", {})
    if not isinstance(seen, dict):
        case.fault("seen_on_checks", "seen_on_checks must be a table", 'for example { "Zebra Device Policy" = 2 }')
        return History()
    place = case.within("seen_on_checks", seen)
    counts = {name: place.count(name, 0, most=CHECK_LIMIT) for name in seen}
    masks = {name: (1 << count) - 1 for name, count in counts.items()}
    answered = (1 << max(counts.values(), default=0)) - 1
    signs = {name: mask for name, mask in masks.items() if name in FACTS and FACTS[name].by_check}
    policies = {name: mask for name, mask in masks.items() if name not in signs}
    return History(answered=answered, policies=policies, signs=signs)


def _facts(known: Mapping[str, Any], history: History) -> Facts:
    """Return an ordinary call's facts with the given ones, and what follows from these unless it is given."""
    implied: dict[str, Any] = {"checks_used": history.answered.bit_count()}
    if "checks_left" in known:
        implied["checks_used"] = CHECK_LIMIT - known["checks_left"]
    if known.get("verified_by_desk") or known.get("validation_type") or known.get("verified"):
        implied |= {"verified": True, "validation_type": "Other"}
        implied |= {"verified_person_is_assigned": True, "verified_in_time": True}
    if known.get("final_analysis"):
        is_open = bool(known.get("voice_pending") or known.get("provider_error"))
        implied |= {"ended": True, "voice_checked": not is_open}
    if known.get("enrolled") or known.get("manual"):
        implied |= {"enrolled": True, "manual": True}
    for fraud, research in (("fraud", "research"), ("fraud_elsewhere", "research_elsewhere")):
        implied |= {research: FRAUD} if known.get(fraud) else {fraud: known.get(research) == FRAUD}
    return Facts.from_dict({**_ORDINARY, **implied, **known}, history=history)


def try_cases(cases: Cases, book: RuleBook) -> tuple[Result, ...]:
    """Apply the rules to every case.

    Raises:
        RulesError: The rules have dates, but a case does not say when it is.
    """
    undated = [case for case in cases.cases if case.facts.at is None] if book.dates else []
    if undated:
        remedy = "write at = 2027-01-31T12:00:00Z above the cases, or in the case"
        faults = [
            Fault(case.line, "the rules have dates: say when it is", remedy, repr(case.name), "case")
            for case in undated
        ]
        raise RulesError(cases.name, faults)
    return tuple(_try(case, book) for case in cases.cases)


def _try(case: Case, book: RuleBook) -> Result:
    facts = with_colours(case.facts, book.policies)
    verdict = judge(facts, book, case.institution_key)
    failures = (*_unknown_rules(case, book), *_failures(case, verdict))
    explained = tuple(_explain(facts, book, case)) if failures else ()
    return Result(case, failures, explained)


def _unknown_rules(case: Case, book: RuleBook) -> Iterator[str]:
    """Yield the names of rules that a case expects and that the rules do not have."""
    names = [rule.name for rule in book.rules]
    for name in sorted({*(case.shadow or ()), *([case.rule] if case.rule else [])}.difference(names)):
        near = nearest(name, names)
        yield f"there is no rule {name!r}" + (f"; did you mean {near!r}?" if near is not None else "")


def _failures(case: Case, verdict: Verdict) -> list[str]:
    shadows = frozenset(shadow.rule for shadow in verdict.shadows)
    compared = (
        ("outcome", case.expect.value, verdict.outcome.value),
        ("rule", case.rule, verdict.rule),
        ("validation type", case.validation_type, verdict.validation_type),
        ("the law's reasons", _set(case.forbidden), _set(frozenset(verdict.forbidden))),
        ("rules in shadow", _set(case.shadow), _set(shadows)),
    )
    return [
        f"{what}: expected {wanted}, got {was}"
        for what, wanted, was in compared
        if wanted is not None and wanted != was
    ]


def _set(names: frozenset[str] | None) -> str | None:
    return None if names is None else ", ".join(sorted(names)) or "none"


def _explain(facts: Facts, book: RuleBook, case: Case) -> list[str]:
    return [f"{row.mark} {row.rule}: {row.text}" for row in map(row_of, table(facts, book, case.institution_key))]

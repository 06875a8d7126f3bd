"""Cases: an institution's own examples of what its rules shall come to. Pure.

A cases file is TOML: ``rules`` names the rules file, every ``[[case]]`` gives facts and says what is expected. Facts that a
case does not name are those of an ordinary live call (``ORDINARY``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from msgspec.structs import replace as with_fields

from calls.facts import Colour, Facts
from calls.rules.book import Outcome, RuleBook
from calls.rules.conditions import read_conditions
from calls.rules.file import SHIPPED, parse_toml
from calls.rules.sections import Faults, RulesError, Section
from calls.rules.verdict import Verdict, judge, table
from calls.story import row_of

ORDINARY = Facts.from_dict(
    {"allowed": True, "real_voice_id": True, "assigned": True, "candidates": 1, "status": "CheckRiskAndAuthentication"}
)
"""An ordinary live call: ours to act for, assigned, nothing known of the caller yet."""

KEYS = ("name", "institution", "facts", "policies", "expect", "rule", "validation_type", "forbidden", "shadow")


@dataclass(frozen=True, slots=True)
class Case:
    """One example. Of what is expected, None is not looked at."""

    name: str
    line: int
    institution_key: str
    facts: Facts
    policies: tuple[str, ...]
    expect: Outcome
    rule: str | None = None
    validation_type: str | None = None
    forbidden: frozenset[str] | None = None
    shadow: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Cases:
    """A cases file: which rules it is about, by name or path, and its examples."""

    rules: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a case came to: how each expectation failed, and how the rules fared; nothing failed where it passed."""

    case: Case
    failures: tuple[str, ...]
    explained: tuple[str, ...]


def load_cases(path: Path) -> Cases:
    """Read a cases file. A ``rules`` path is meant from the file's own folder.

    Raises:
        RulesError: The file is missing, not TOML, or has faults; all are listed.
    """
    try:
        cases = parse_cases(path.read_bytes(), name=str(path))
    except OSError as error:
        raise RulesError.unreadable(str(path), error.strerror or "") from None
    return cases if cases.rules in SHIPPED else replace(cases, rules=str(path.parent / cases.rules))


def parse_cases(text: bytes, *, name: str) -> Cases:
    """Read a cases file's content.

    Raises:
        RulesError: With all faults.
    """
    parsed, lines = parse_toml(text, name=name)
    faults = Faults(lines)
    top = Section(faults, parsed)
    top.only(("rules", "case"))
    rules = top.text("rules", f'name the rules file, or one of {", ".join(SHIPPED)}: rules = "default"')
    tables: Any = parsed.get("case", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        top.fault("case", "there are no cases", "write [[case]]")
        tables = []
    cases = [_case(Section(faults, table, ("case", n), "a case"), n) for n, table in enumerate(tables)]
    if faults.found:
        raise RulesError(name, faults.found)
    return Cases(rules, tuple(case for case in cases if case is not None))


def _case(section: Section, n: int) -> Case | None:
    name = section.table.get("name")
    label = repr(name) if isinstance(name, str) else f"number {n + 1}"
    case = replace(section, rule=label, noun="case")
    case.only(KEYS)
    text = case.text("name", "say in a few words what the case shows")
    expect = case.choice("expect", Outcome)
    known = dict(read_conditions(case, "facts"))
    policies = case.texts("policies", '["Green Voice"]')
    institution = case.text("institution", "a key") if "institution" in case.table else ""
    if expect is None:
        return None
    return Case(
        name=text,
        line=section.faults.lines.find(*section.path),
        institution_key=institution,
        facts=_facts(known),
        policies=policies,
        expect=expect,
        rule=case.text("rule", "a rule's name") if "rule" in case.table else None,
        validation_type=case.text("validation_type", "a type") if "validation_type" in case.table else None,
        forbidden=frozenset(case.texts("forbidden", '["opted_out"]')) if "forbidden" in case.table else None,
        shadow=frozenset(case.texts("shadow", '["a rule"]')) if "shadow" in case.table else None,
    )


def _facts(known: Mapping[str, Any]) -> Facts:
    """Return an ordinary call's facts with those that are known; what follows from them is added unless it is named."""
    implied: dict[str, Any] = {}
    if known.get("verified_by_desk") or known.get("validation_type") or known.get("verified"):
        implied = {"verified": True, "validation_type": "Other", "verified_person_is_assigned": True}
    if known.get("enrolled") or known.get("manual"):
        implied |= {"enrolled": True, "manual": True}
    return Facts.from_dict({**asdict(ORDINARY), **implied, **known})


def try_cases(cases: Cases, book: RuleBook) -> tuple[Result, ...]:
    """Ask the rules about every case."""
    return tuple(_try(case, book) for case in cases.cases)


def _try(case: Case, book: RuleBook) -> Result:
    facts = _coloured(case, book)
    verdict = judge(facts, book, case.institution_key)
    failures = tuple(_failures(case, verdict))
    explained = tuple(_explain(facts, book, case)) if failures else ()
    return Result(case, failures, explained)


def _coloured(case: Case, book: RuleBook) -> Facts:
    """Add what the case's policies say in the colours of the rules."""
    colours = book.policies.colours(case.policies)
    facts = case.facts
    red = facts.red or Colour.RED in colours
    return with_fields(
        facts,
        green=(facts.green or facts.authenticated or Colour.GREEN in colours) and not red,
        red=red,
        unclassified=facts.unclassified or Colour.UNCLASSIFIED in colours,
    )


def _failures(case: Case, verdict: Verdict) -> list[str]:
    shadows = frozenset(shadow.rule for shadow in verdict.shadows)
    looked_at = (
        ("outcome", case.expect.value, verdict.outcome.value),
        ("rule", case.rule, verdict.rule),
        ("validation type", case.validation_type, verdict.validation_type),
        ("the law's reasons", _set(case.forbidden), _set(frozenset(verdict.forbidden))),
        ("rules in shadow", _set(case.shadow), _set(shadows)),
    )
    return [
        f"{what}: expected {wanted}, came to {was}"
        for what, wanted, was in looked_at
        if wanted is not None and wanted != was
    ]


def _set(names: frozenset[str] | None) -> str | None:
    return None if names is None else ", ".join(sorted(names)) or "none"


def _explain(facts: Facts, book: RuleBook, case: Case) -> list[str]:
    return [f"{row.mark} {row.rule}: {row.text}" for row in map(row_of, table(facts, book, case.institution_key))]

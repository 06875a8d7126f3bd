"""Reads the rules file, a TOML file, into a ``RuleBook``.

All faults are reported at once, and a faulty file stops the process. The file is read only once, at the start. To
change rules, deploy again.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from callkeeper.calls.policies import Policies
from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.rules.book import AS_VERIFIED, AssignRule, Outcome, Rule, RuleBook, Stage
from callkeeper.calls.rules.condition_parsing import read_conditions
from callkeeper.calls.rules.lists_and_zones import (
    Entries,
    digest_of,
    lists_asked_for,
    read_lists,
    read_zone,
    zone_faults,
)
from callkeeper.calls.rules.patterns import TooManyNames, overlap, pattern_fault
from callkeeper.calls.rules.proofs import prove
from callkeeper.calls.rules.toml_reader import Fault, Faults, Lines, RulesError, Section, one_of
from callkeeper.calls.schedule.plan import Schedule, schedule_faults
from callkeeper.calls.statuses import OTHERWISE, PERSON_TYPES

SHIPPED = ("default", "demo", "watch-only")
"""Rule books that come with the software, by name."""


def load_rules(path: str | Path | None, *, owned: frozenset[str] | None = None) -> RuleBook:
    """Read a rules file. ``None`` is the shipped cautious one; shipped ones are given by name.

    ``owned`` are the institutions that rules may name; None if unknown.

    Raises:
        RulesError: The file is missing, not TOML, or has faults; all are listed.
    """
    name = str(path) if path else "default"
    return _shipped(name, owned) if name in SHIPPED else _parsed(name, owned)


def _parsed(name: str, owned: frozenset[str] | None) -> RuleBook:
    return parse_rules(read_rules_text(name), name=name, owned=owned, folder=Path(name).parent)


_shipped = lru_cache(maxsize=8)(_parsed)
"""Parse shipped rules once: they do not change, and checking them takes longer than most commands."""


def read_rules_text(name: str) -> bytes:
    """Return the content of a rules file, or of a shipped one.

    Raises:
        RulesError: It cannot be read.
    """
    try:
        shipped = files("callkeeper.calls") / "rulebooks" / f"{name}.toml"
        return shipped.read_bytes() if name in SHIPPED else Path(name).read_bytes()
    except OSError as error:
        raise RulesError.unreadable(
            name, error.strerror or "", f"name a TOML file, or a shipped one; {one_of(SHIPPED, name)}"
        ) from None


def parse_rules(text: bytes, *, name: str, owned: frozenset[str] | None = None, folder: Path | None = None) -> RuleBook:
    """Parse the content of a rules file. ``folder`` is where its lists are.

    Raises:
        RulesError: With all faults.
    """
    table, lines = parse_toml(text, name=name)
    faults = Faults(lines)
    lists = read_lists(Section(faults, table), folder)
    digest = hashlib.sha256(text + digest_of(lists)).hexdigest()[:12]
    book = read_book(table, faults, name=name, digest=digest, owned=owned, lists=lists)
    if book is None:
        raise RulesError(name, faults.found)
    return replace(book, text=text)


def parse_kept_rules(text: bytes, *, name: str, digest: str) -> RuleBook | None:
    """Parse rules whose text was kept, to show them; None if this release finds faults in it.

    The lists were not kept: they count as empty. So these rules must decide nothing.
    """
    try:
        table, lines = parse_toml(text, name=name)
    except RulesError:
        return None
    named = table.get("lists")
    lists: Entries = dict.fromkeys(named, ()) if isinstance(named, dict) else {}
    book = read_book(table, Faults(lines), name=name, digest=digest, owned=None, lists=lists)
    return replace(book, text=text) if book is not None else None


def parse_toml(text: bytes, *, name: str) -> tuple[dict[str, object], Lines]:
    """Parse TOML, and find the line of everything in it.

    Raises:
        RulesError: It is not TOML.
    """
    try:
        decoded = text.decode("utf-8-sig").replace("\r\n", "\n")
        return tomllib.loads(decoded), Lines(decoded)
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise RulesError(name, [Fault(line, "is not UTF-8", "save the file as UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found.group(1)) if found else text.count(b"\n") + 1
        is_twice = "overwrite" in str(error) or "twice" in str(error)
        remedy = "a key or a table is given twice; every rule begins with [[rule]]" if is_twice else "see toml.io"
        raise RulesError(name, [Fault(line, f"is not TOML: {error}", remedy)]) from None


MOST_DAYS = 365

KEYS: Mapping[str, tuple[str, ...]] = {
    "checks": ("at", "reserve", "unassigned"),
    "reads": ("undecided_s", "decided_s"),
    "policies": ("green", "red", "neutral"),
    "assign": ("automatic", "institutions", "person_types"),
    "consent": ("require_opt_in",),
    "enroll": ("against_mismatch",),
    "reject": ("on_red_alone",),
    "history": ("days",),
    "limit": ("institutions", "requests_per_s"),
    "zone": ("name", "institutions"),
    "rule": (
        *("name", "when", "then", "validation_type", "because", "stage", "institutions"),
        *("valid_from", "valid_until"),
    ),
}
"""Every table of a rules file and its keys. ``[lists]`` has keys of its own choice."""

SEVERAL = ("limit", "zone", "rule")
"""Those that can be written several times: ``[[rule]]``."""

FINAL_HOLD = 'the last rule must hold every call: [[rule]] name = "otherwise", then = "hold", because = "..."'


def read_book(
    table: dict[str, Any],
    faults: Faults,
    *,
    name: str,
    digest: str,
    owned: frozenset[str] | None,
    lists: Entries = MappingProxyType({}),
) -> RuleBook | None:
    """Return the rules of a file; None if it has faults. They are added to ``faults``."""
    top = Section(faults, table)
    top.only((*KEYS, "lists"))
    sections = {key: top.section(key, keys) for key, keys in KEYS.items() if key not in SEVERAL}
    schedule = _schedule(sections["checks"])
    reads, consent = sections["reads"], sections["consent"]
    policies = _policies(sections["policies"])
    assign = _assign(sections["assign"], owned)
    red_alone = _institutions(sections["reject"], "on_red_alone", owned) or frozenset()
    against_mismatch = _institutions(sections["enroll"], "against_mismatch", owned) or frozenset()
    rules = _rules(top, owned, policies, red_alone, against_mismatch)
    limits, zones = _limits(top, owned), _zones(top, owned)
    faults.found += zone_faults(rules, zones)
    named = lists_asked_for(rules, lists, faults)
    undecided_s = reads.number("undecided_s", 8.0, least=1.0)
    decided_s = reads.number("decided_s", 60.0, least=1.0)
    unassigned = sections["checks"].count("unassigned", 0, most=schedule.automatic_limit if schedule else CHECK_LIMIT)
    opt_in = consent.flag("require_opt_in", default=False)
    history_days = sections["history"].count("days", 30, most=MOST_DAYS)
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
        is_consent_decided="require_opt_in" in consent.table,
        red_alone=red_alone,
        against_mismatch=against_mismatch,
        history_days=history_days,
        limits=tuple(sorted(limits.items())),
        lists=named,
        zones=zones,
    )


def _schedule(checks: Section) -> Schedule | None:
    at_s = checks.numbers("at", "[10, 20, 40]")
    reserve = checks.count("reserve", 2, most=CHECK_LIMIT - 1)
    if at_s is None:
        return None
    found = schedule_faults(at_s, reserve)
    for problem in found:
        checks.fault("at", problem, "see docs/rules.md, The schedule")
    return None if found else Schedule(at_s, reserve)


def _policies(section: Section) -> Policies:
    """Read the colours. A name must have only one, whatever patterns it matches."""
    lists = {key: section.texts(key, '["Green *"]') for key in KEYS["policies"]}
    seen: list[tuple[str, str]] = []
    for colour, patterns in lists.items():
        for n, pattern in enumerate(patterns):
            place = section.within(colour)
            if (problem := pattern_fault(pattern)) is not None:
                place.fault(n, problem, "the only wildcard is *")
            for other, theirs in seen:
                if other != colour and _can_mean_one(pattern, theirs):
                    same = "is" if pattern == theirs else f"and {theirs!r} can mean one name, which would be"
                    place.fault(n, f"{pattern!r} {same} both {other} and {colour}", "a policy has one colour")
            seen.append((colour, pattern))
    return Policies(**lists)


def _can_mean_one(one: str, other: str) -> bool:
    try:
        return overlap(one, other)
    except TooManyNames:
        return True


def _assign(section: Section, owned: frozenset[str] | None) -> AssignRule:
    types = section.texts("person_types", '["Primary", "Joint"]')
    for n, kind in enumerate(types):
        if kind not in PERSON_TYPES:
            place = section.within("person_types")
            place.fault(n, f"{kind!r} is no person type", one_of(PERSON_TYPES, kind))
    institutions = _institutions(section, "institutions", owned)
    return AssignRule(section.flag("automatic", default=True), institutions, frozenset(types) if types else None)


def _rules(
    top: Section,
    owned: frozenset[str] | None,
    policies: Policies,
    red_alone: frozenset[str],
    against_mismatch: frozenset[str],
) -> tuple[Rule, ...]:
    tables = _tables(top, "rule")
    if tables is None:
        return ()
    read = [_rule(Section(top.faults, table, ("rule", n), "a rule"), owned) for n, table in enumerate(tables)]
    _names(top, read)
    end = _end(top, tables)
    rules, faults = prove([rule for rule in read[:end] if rule is not None], policies, red_alone, against_mismatch)
    top.faults.found += faults
    return tuple(rules)


def _tables(top: Section, key: str) -> list[dict[str, Any]] | None:
    """Return the tables under a key of which there can be several; None, with a fault, if it holds something else."""
    tables = top.table.get(key, [])
    if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
        return tables
    top.fault(key, f"{key} must be a list of tables", f"write [[{key}]]")
    return None


def _sections(top: Section, key: str) -> Iterator[Section]:
    """Yield the same as sections, with a fault for each key that they must not have."""
    for n, table in enumerate(_tables(top, key) or ()):
        section = Section(top.faults, table, (key, n), f"a {key}")
        section.only(KEYS[key])
        yield section


def _limits(top: Section, owned: frozenset[str] | None) -> dict[str, float]:
    """Return the requests per second of institutions that have a limit."""
    found: dict[str, float] = {}
    for limit in _sections(top, "limit"):
        for key in ("institutions", "requests_per_s"):
            if key not in limit.table:
                limit.fault(None, f"a limit needs {key}")
        per_s = limit.number("requests_per_s", 1.0, least=1.0)
        for institution in _institutions(limit, "institutions", owned) or ():
            if institution in found:
                limit.fault("institutions", f"{institution!r} has two limits", "an institution has one")
            found[institution] = per_s
    return found


def _zones(top: Section, owned: frozenset[str] | None) -> dict[str, ZoneInfo]:
    """Return the time zones of institutions by key, under the empty key that of all others."""
    found: dict[str, ZoneInfo] = {}
    for section in _sections(top, "zone"):
        zone, keys = read_zone(section), _institutions(section, "institutions", owned)
        for key in ("",) if keys is None else keys:
            if key in found:
                section.fault(
                    None, f"{repr(key) if key else 'every institution'} has two zones", "an institution has one"
                )
            if zone is not None:
                found[key] = zone
    return found


def _names(top: Section, rules: list[Rule | None]) -> None:
    seen: dict[str, int] = {}
    for n, rule in enumerate(rules):
        if rule is not None and seen.setdefault(rule.name, rule.line) != rule.line:
            problem = f"another rule, in line {seen[rule.name]}, is called {rule.name!r} too"
            place = Section(top.faults, {}, ("rule", n), rule=repr(rule.name))
            place.fault("name", problem, "names must differ: trails refer to them")


def _end(top: Section, tables: list[dict[str, Any]]) -> int:
    """Return how many rules there are up to the one that holds every call, which must be the last."""
    first = next((n for n, table in enumerate(tables) if _holds_all(table)), None)
    if first is None:
        place = Section(top.faults, {}, ("rule", max(len(tables) - 1, 0)))
        place.fault(None, "there is no final hold" if tables else "there are no rules", FINAL_HOLD)
        return len(tables)
    behind = len(tables) - first - 1
    if behind:
        name = tables[first].get("name")
        place = Section(
            top.faults, {}, ("rule", first), rule=repr(name) if isinstance(name, str) else f"number {first + 1}"
        )
        never = (
            "the rule behind it is never reached" if behind == 1 else f"the {behind} rules behind it are never reached"
        )
        place.fault(None, f"it holds every call and is not the last rule: {never}", "move it to the end of the file")
    return first + 1


def _holds_all(table: dict[str, Any]) -> bool:
    narrowed = any(table.get(key) for key in ("when", "institutions", "valid_from", "valid_until"))
    return table.get("then") == Outcome.HOLD.value and not narrowed and table.get("stage") != Stage.SHADOW.value


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
    institutions = _institutions(rule, "institutions", owned)
    valid_from, valid_until = rule.instant("valid_from"), rule.instant("valid_until")
    if valid_from is not None and valid_until is not None and valid_from >= valid_until:
        rule.fault(
            "valid_until", "the rule ends before it begins: it is never in force", "a later instant than valid_from"
        )
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
        valid_from=valid_from,
        valid_until=valid_until,
    )


def _institutions(section: Section, key: str, owned: frozenset[str] | None) -> frozenset[str] | None:
    """Return the institutions in a list; None if there is no list."""
    if key not in section.table:
        return None
    keys = section.texts(key, '["cu-1"]')
    if section.table[key] == []:
        section.fault(key, f"{key} is empty: it would apply to none", "leave it out" + _LEFT_OUT.get(key, ""))
    place = section.within(key)
    for n, institution in enumerate(keys):
        if owned is not None and institution not in owned:
            problem = f"institution {institution!r} is not one of the account's"
            place.fault(n, problem, one_of(sorted(owned), institution))
    return frozenset(keys)


_LEFT_OUT = {"institutions": " to mean all"}


def _validation_type(rule: Section, outcome: Outcome | None) -> str | None:
    value = rule.table.get("validation_type")
    allowed = (*OTHERWISE, AS_VERIFIED)
    if outcome is Outcome.ENROLL and value not in allowed:
        wrong = "enroll needs a validation_type" if value is None else f"validation_type cannot be {value!r}"
        rule.fault("validation_type" if value is not None else "then", wrong, one_of(allowed, value))
    if outcome not in {Outcome.ENROLL, None} and value is not None:
        rule.fault("validation_type", f"{outcome} takes no validation_type", "it belongs to enroll alone")
    return value if isinstance(value, str) else None

"""The conditions of a rule: facts of the closed list, each with a value that it can have."""

from calls.facts import FACTS, FactMeaning, Value
from calls.record import CHECK_LIMIT
from calls.rules.book import Condition
from calls.rules.sections import Section, one_of

_KINDS = {bool: "true or false", int: "a whole number", str: "a text"}


def read_conditions(rule: Section, key: str = "when") -> tuple[Condition, ...]:
    """Return a rule's conditions; what is wrong with them is noted, each at its own line."""
    when = rule.table.get(key, {})
    if not isinstance(when, dict):
        rule.fault(key, f"{key} must be a table of facts", f"for example {key} = {{ verified = true }}")
        return ()
    place = Section(rule.faults, when, (*rule.path, key), key, rule.rule, rule.noun)
    for name, value in when.items():
        _judge_condition(place, name, value)
    return tuple(when.items())


def _judge_condition(place: Section, name: str, value: object) -> None:
    if "score" in name.lower():
        place.fault(
            name,
            f'{name!r} is a raw provider score, and raw scores are "not to be used for caller-handling decisions"'
            ' (Spec: "Vendor call")',
            'decide by policies ("metaData.vendorPolicies"): the facts green, red, unclassified',
        )
    elif name not in FACTS:
        place.fault(name, f"there is no fact {name!r}", one_of(FACTS, name))
    elif type(value) is not FACTS[name].kind:
        place.fault(
            name, f"{name} is {_KINDS[FACTS[name].kind]}, not {_shown(value)}", _allowed(name, FACTS[name], value)
        )
    elif not _can_be(name, FACTS[name], value):
        place.fault(name, f"{name} is never {_shown(value)}", _allowed(name, FACTS[name], value))


def _can_be(name: str, fact: FactMeaning, value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return 0 <= value <= _most(name)
    if fact.is_open:
        return isinstance(value, str) and value != ""
    return value in fact.values


def _most(name: str) -> float:
    return CHECK_LIMIT if name == "checks_used" else float("inf")


def _allowed(name: str, fact: FactMeaning, value: object) -> str:
    if fact.kind is bool:
        return "write true or false without quotes"
    if fact.kind is int:
        return "0 or more" if _most(name) == float("inf") else f"0 to {CHECK_LIMIT}"
    return "a text that is not empty" if fact.is_open else one_of(fact.named, value)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def describe_condition(name: str, value: Value) -> str:
    """Say a condition as it is written in a file."""
    shown = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    return f"{name} = {shown}"

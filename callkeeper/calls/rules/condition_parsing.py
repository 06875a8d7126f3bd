"""Parses and describes the conditions of a rule: each is a fact of the closed list, and a test of its value."""

import re
from collections.abc import Iterator, Mapping

from callkeeper.calls.facts import FACTS, Says, Value
from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.rules.book import Between, Condition, Includes, InList, Not, OnChecks, OneOf, Test
from callkeeper.calls.rules.patterns import pattern_fault
from callkeeper.calls.rules.toml_reader import Section, one_of, shown_value

_KINDS = {bool: "true or false", int: "a whole number", str: "a text"}

FORMS: Mapping[type, tuple[str, ...]] = {
    bool: ("not",),
    int: ("at_least", "at_most", "in", "not"),
    str: ("in", "not"),
    tuple: ("includes", "includes_any", "includes_none", "not"),
}
"""The tests for each kind of fact, besides a plain value. ``on_checks`` is added if every check shows the fact."""

LIST_FORMS: Mapping[str, tuple[str, ...]] = {"person": ("in_list", "not"), "number": ("in_list", "like", "not")}
"""The tests for facts that are names of lists."""


def forms_of(name: str) -> tuple[str, ...]:
    """Return the tests for a fact, besides a plain value."""
    fact = FACTS[name]
    forms = LIST_FORMS[name] if fact.by_list else FORMS[fact.kind]
    return (*forms, "on_checks") if fact.by_check else forms


_EXAMPLES: Mapping[type, str] = {
    bool: "{name} = true",
    int: "{name} = {{ at_least = 2 }}",
    str: '{name} = {{ in = ["{value}"] }}',
    tuple: '{name} = {{ includes = "Zebra Device Policy" }}',
}

LIST_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NAMES = (("in_list", LIST_NAME, "vip"), ("like", re.compile(r"\+?(?=.*\*)[0-9*]{2,20}"), "+1900*"))
"""How lists and patterns of numbers are written. A pattern has a wildcard: a whole number would be in every trail."""


def read_conditions(rule: Section, key: str = "when") -> tuple[Condition, ...]:
    """Return a rule's conditions. Faults are noted, each at its own line."""
    when = rule.table.get(key, {})
    if not isinstance(when, dict):
        rule.fault(key, f"{key} must be a table of facts", f"for example {key} = {{ verified = true }}")
        return ()
    place = rule.within(key, when)
    return tuple((name, test) for name, asked in when.items() for test in _tests(place, name, asked))


def read_values(case: Section, key: str) -> dict[str, Value | tuple[str, ...]]:
    """Return a case's facts, which must have plain values, but for those that name lists."""
    facts = case.table.get(key, {})
    found: dict[str, Value | tuple[str, ...]] = {}
    for name, test in read_conditions(case, key):
        if isinstance(test, InList):
            found[name] = (*found.get(name, ()), test.name)  # type: ignore[misc]  # it holds only names
        elif isinstance(facts.get(name), dict):
            place = case.within(key)
            place.fault(name, f"{name} must be a value here, not a condition", "a case says what is so of one call")
        else:
            found[name] = facts[name]
    return found


def _tests(place: Section, name: str, asked: object) -> Iterator[Test]:
    """Yield the tests of a fact. All of them must hold."""
    if "score" in name.lower():
        place.fault(
            name,
            f'{name!r} is a raw provider score, and raw scores are "not to be used for caller-handling decisions"'
            ' (Spec: "Vendor call")',
            'decide by policies ("metaData.vendorPolicies"): the facts policies, green, red, unclassified',
        )
    elif name not in FACTS:
        place.fault(name, f"there is no fact {name!r}", one_of(FACTS, name))
    elif isinstance(asked, dict):
        inner = place.within(name, asked)
        yield from _Form(inner, name, FACTS[name]).read()
    elif FACTS[name].kind is tuple:
        form = "in_list" if FACTS[name].by_list else "includes"
        remedy = f"for example {_example(name)}" if not isinstance(asked, str) else f'write {{ {form} = "{asked}" }}'
        place.fault(name, f"{name} are several names: say which are to be among them, not {shown_value(asked)}", remedy)
    elif _is_value(place, name, name, asked):
        yield asked  # type: ignore[misc]  # a value of the fact's kind


def _is_value(place: Section, key: str | int, name: str, value: object) -> bool:
    """Tell whether a fact can have a value. If not, note a fault at ``key``."""
    fact = FACTS[name]
    if type(value) is not fact.kind:
        place.fault(key, f"{name} is {_KINDS[fact.kind]}, not {shown_value(value)}", _allowed(name, value))
        return False
    if isinstance(value, str):
        can_be = value != "" if fact.is_open else value in fact.values
    else:
        can_be = isinstance(value, bool) or 0 <= value <= _most(name)  # type: ignore[operator]  # it is of the fact's kind: a number
    if not can_be:
        place.fault(key, f"{name} is never {shown_value(value)}", _allowed(name, value))
    return can_be


def _most(name: str) -> float:
    most = FACTS[name].most
    return float("inf") if most is None else most


def _allowed(name: str, value: object) -> str:
    fact = FACTS[name]
    forms = f", or a condition: {_example(name)}" if fact.kind is int else ""
    if fact.kind is bool:
        return "write true or false without quotes"
    if fact.kind is int:
        return (
            ("0 or more" if fact.most is None else f"0 to {fact.most}") + (f" {fact.unit}" if fact.unit else "") + forms
        )
    return "a text that is not empty" if fact.is_open else one_of(fact.named, value)


def _example(name: str) -> str:
    fact = FACTS[name]
    if fact.by_list:
        return f'{name} = {{ in_list = "vip" }}'
    return _EXAMPLES[fact.kind].format(name=name, value=next(iter(fact.named), "Our rule"))


class _Form:
    """Reads one condition that is more than a value: ``{ at_least = 2 }``."""

    def __init__(self, place: Section, name: str, fact: Says) -> None:
        self._place = place
        self._name = name
        self._fact = fact
        self._table = place.table

    def read(self) -> Iterator[Test]:
        """Yield the tests; none if there is a fault."""
        before = len(self._place.faults.found)
        allowed = forms_of(self._name)
        for key in self._table:
            if key not in allowed:
                self._place.fault(key, self._misplaced(key), one_of(allowed, key))
        if not self._table:
            self._place.fault(None, f"{self._name} asks for nothing", f"for example {_example(self._name)}")
        tests = list(self._tests())
        if "on_checks" in self._table and self._fact.by_check:
            tests = self._counted(tests)
        if len(self._place.faults.found) == before:
            yield from tests

    def _misplaced(self, key: str) -> str:
        if key == "on_checks" and not self._fact.by_check:
            return f"{self._name} is not shown by each check: it cannot be counted"
        if key in {"at_least", "at_most"}:
            return f"{self._name} is no number: it has no {key}"
        return f"{self._name} has no condition {key!r}"

    def _tests(self) -> Iterator[Test]:
        least, most = self._bound("at_least"), self._bound("at_most")
        if least is not None or most is not None:
            if least is not None and most is not None and least > most:
                problem = f"no number is at least {least} and at most {most}"
                self._place.fault("at_least", problem, "the smaller number belongs to at_least")
            yield Between(least, most)
        if self._fact.by_list:
            yield from self._lists()
        if "in" in self._table and "in" in FORMS[self._fact.kind]:
            values = self._list("in")
            yield OneOf(tuple(one for n, one in enumerate(values) if self._is_listed("in", n, one)))  # type: ignore[misc]
        if self._fact.kind is tuple and not self._fact.by_list:
            yield from self._policies()
        if "not" in self._table:
            yield from self._opposite()

    def _bound(self, key: str) -> int | None:
        value = self._table.get(key)
        if value is None or self._fact.kind is not int or not _is_value(self._place, key, self._name, value):
            return None
        return int(value)

    def _list(self, key: str) -> list[object]:
        value = self._table[key]
        if isinstance(value, list) and value:
            return value
        what = "is empty: nothing is in it" if value == [] else f"must be a list, not {shown_value(value)}"
        named = value if isinstance(value, str) else next(iter(self._fact.named), "Green *")
        self._place.fault(key, f"{key} {what}", f'for example {key} = ["{named}"]')
        return []

    def _is_listed(self, key: str, n: int, value: object) -> bool:
        return _is_value(self._place.within(key), n, self._name, value)

    def _lists(self) -> Iterator[Test]:
        """Yield the lists that are named, and patterns of numbers. Whether there is such a list is seen later."""
        for form, shape, example in _NAMES:
            value = self._table.get(form)
            if value is None or form not in LIST_FORMS[self._name]:
                continue
            if isinstance(value, str) and shape.fullmatch(value):
                yield InList(value, is_pattern=form == "like")
            else:
                problem = f"{form} cannot be {shown_value(value)}"
                self._place.fault(form, problem, f'for example {self._name} = {{ {form} = "{example}" }}')

    def _policies(self) -> Iterator[Test]:
        if "includes" in self._table:
            yield Includes(self._patterns("includes", [self._table["includes"]], is_list=False))
        if "includes_any" in self._table:
            yield Includes(self._patterns("includes_any", self._list("includes_any")))
        if "includes_none" in self._table:
            yield Not(Includes(self._patterns("includes_none", self._list("includes_none"))))

    def _patterns(self, key: str, values: list[object], *, is_list: bool = True) -> tuple[str, ...]:
        found = []
        for n, value in enumerate(values):
            place = self._place.within(key)
            if not isinstance(value, str) or not value:
                remedy = 'for example includes_any = ["Zebra *"]' if isinstance(value, list) else "a name in quotes"
                place.fault(n if is_list else None, f"{key} is the name of a policy, not {shown_value(value)}", remedy)
            elif (problem := pattern_fault(value)) is not None:
                place.fault(n if is_list else None, problem, "the only wildcard is *")
            else:
                found.append(value)
        return tuple(found)

    def _opposite(self) -> Iterator[Test]:
        value = self._table["not"]
        if not isinstance(value, dict):
            if self._fact.kind is tuple:
                inner = 'in_list = "vip"' if self._fact.by_list else 'includes = "Zebra *"'
                self._place.fault("not", "not takes a condition here", f"for example not = {{ {inner} }}")
            elif _is_value(self._place, "not", self._name, value):
                yield Not(value)
            return
        place = self._place.within("not", value)
        tests = list(_Form(place, self._name, self._fact).read())
        if len(tests) > 1:
            place.fault(None, "not takes one condition", "write each with a not of its own, in a rule of its own")
        yield from (Not(test) for test in tests)

    def _counted(self, tests: list[Test]) -> list[Test]:
        """Return the test that must hold on several checks."""
        least = self._table["on_checks"]
        if not isinstance(least, int) or isinstance(least, bool) or not 1 <= least <= CHECK_LIMIT:
            self._place.fault(
                "on_checks", f"on_checks is a whole number, not {shown_value(least)}", f"1 to {CHECK_LIMIT}"
            )
            return []
        if not tests and self._fact.kind is bool:
            tests = [True]
        if len(tests) != 1:
            problem = f"on_checks counts one condition, and there {'is none' if not tests else f'are {len(tests)}'}"
            self._place.fault(
                "on_checks", problem, f'for example {self._name} = {{ includes = "Zebra *", on_checks = 2 }}'
            )
            return []
        return [OnChecks(tests[0], least)]


def describe_condition(name: str, test: Test) -> str:
    """Return a condition as it is written in a file."""
    match test:
        case bool() | int() | str() | None:
            return f"{name} = {_written(test)}"
        case _:
            return f"{name} = {{ {', '.join(_parts(test))} }}"


def _parts(test: Test) -> Iterator[str]:
    match test:
        case Between(least, most):
            yield from (() if least is None else (f"at_least = {least}",))
            yield from (() if most is None else (f"at_most = {most}",))
        case OneOf(values):
            yield f"in = [{', '.join(map(_written, values))}]"
        case Includes((pattern,)):
            yield f"includes = {_written(pattern)}"
        case Includes(patterns):
            yield f"includes_any = [{', '.join(map(_written, patterns))}]"
        case InList(name, is_pattern):
            yield f"{'like' if is_pattern else 'in_list'} = {_written(name)}"
        case Not(Includes(patterns)):
            yield f"includes_none = [{', '.join(map(_written, patterns))}]"
        case Not(inner):
            plain = isinstance(inner, bool | int | str)
            yield f"not = {_written(inner)}" if plain else f"not = {{ {', '.join(_parts(inner))} }}"
        case OnChecks(inner, least):
            if not isinstance(inner, bool):
                yield from _parts(inner)
            yield f"on_checks = {least}"
        case _:
            return


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)

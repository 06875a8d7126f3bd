"""Facts as they are declared and as trails hold them, and their signature."""

import ast
import inspect
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace as with_fields

from callkeeper.calls import facts as declared
from callkeeper.calls.facts import FACTS, GROWING, Facts
from tests.unit.calls.rules.specimens import any_facts


@given(any_facts())
def test_facts_are_read_back_as_written(facts: Facts) -> None:
    """What a trail leaves out is false, none or 0: nothing is lost."""
    known = Facts.from_dict(facts.as_dict(), policies=facts.policies)
    assert {n: getattr(known, n) or None for n in FACTS} == {n: getattr(facts, n) or None for n in FACTS}


@given(any_facts(), any_facts())
def test_signature_differs_when_any_fact_but_the_checks_does(facts: Facts, other: Facts) -> None:
    """A trail gets a line for every change of facts; checks have lines of their own."""
    apart = {name: getattr(facts, name) for name in {*GROWING_OR_LOCAL, "history", "at"} - {"checks_left"}}
    same = with_fields(other, **apart) == facts
    assert (facts.signature == other.signature) == same


GROWING_OR_LOCAL = {*GROWING, "checks_used", "checks_left", "checks_answered", "hour"}
"""Facts that have lines of their own in a trail, or that follow from the time."""


@pytest.mark.parametrize("name", sorted(FACTS.keys() - GROWING_OR_LOCAL))
def test_signature_differs_when_one_fact_does(name: str) -> None:
    """Else a trail misses a change on which other rules may decide, and replay with it."""
    nothing = Facts.from_dict({})
    changed: Any = {bool: True, int: 1, str: "a", tuple: ("a",)}[FACTS[name].kind]
    assert with_fields(nothing, **{name: changed}).signature != nothing.signature


def test_facts_have_no_second_table() -> None:
    """The names of facts are written only in the class; the table for rules is derived from it."""
    tree = ast.parse(inspect.getsource(declared))
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    keys = {key.value for table in tables for key in table.keys if isinstance(key, ast.Constant)}
    assert not keys & set(FACTS)

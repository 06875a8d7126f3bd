"""Facts are declared once: name, type and meaning are in one place."""

import ast
import inspect

from callkeeper.calls import facts
from callkeeper.calls.facts import FACTS, Facts, facts_of


def test_every_fact_is_derived_by_name() -> None:
    """``facts_of`` sets every declared fact explicitly; none silently keeps its default."""
    tree = ast.parse(inspect.getsource(facts_of))
    (made,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Facts"
    ]
    assert {keyword.arg for keyword in made.keywords} == set(Facts.__struct_fields__)


def test_facts_have_no_second_table() -> None:
    """The names of facts are written only in the class; the table for rules is derived from it."""
    tree = ast.parse(inspect.getsource(facts))
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    keys = {key.value for table in tables for key in table.keys if isinstance(key, ast.Constant)}
    assert not keys & set(FACTS)

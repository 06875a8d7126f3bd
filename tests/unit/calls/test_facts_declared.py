"""Facts are declared once: what a fact is called, its type and its meaning stand in one place."""

import ast
import inspect

from calls import facts_and_colours
from calls.facts_and_colours import FACTS, Facts, facts_of


def test_every_fact_is_derived_by_name() -> None:
    """``facts_of`` gives each declared fact a value; none falls back on its default without anybody noticing."""
    tree = ast.parse(inspect.getsource(facts_of))
    (made,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Facts"
    ]
    assert {keyword.arg for keyword in made.keywords} == set(Facts.__struct_fields__)


def test_facts_have_no_second_table() -> None:
    """The names of facts are written down in the class alone: the table that rules are read by is made from it."""
    tree = ast.parse(inspect.getsource(facts_and_colours))
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    keys = {key.value for table in tables for key in table.keys if isinstance(key, ast.Constant)}
    assert not keys & set(FACTS)

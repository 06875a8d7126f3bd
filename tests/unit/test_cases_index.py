"""Every case that this software has to survive is a test: an index by number.

A: the push endpoint. B: what events mean. C: Redis, RQ, processes. D: the service. E: effects and budget. A test that proves
a case names it in its docstring.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent

LAST = {"A": 12, "B": 13, "C": 19, "D": 15, "E": 8}
"""How many cases there are of each kind, numbered from 1."""

CASES = [f"{kind}{n}" for kind, last in LAST.items() for n in range(1, last + 1)]


def docstrings_of_tests() -> Iterator[str]:
    """Return the docstring of every test function there is."""
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield ast.get_docstring(node) or ""


@pytest.fixture(scope="module")
def named() -> frozenset[str]:
    """Return every case number that a test's docstring names."""
    found = (re.findall(r"\b[A-E][0-9]{1,2}\b", docstring) for docstring in docstrings_of_tests())
    return frozenset(number for numbers in found for number in numbers)


@pytest.mark.parametrize("case", CASES)
def test_case_is_named_by_a_test(case: str, named: frozenset[str]) -> None:
    """A case that no test names is one that nobody may rely on."""
    assert case in named


def test_no_test_names_a_case_that_does_not_exist(named: frozenset[str]) -> None:
    """A number that is not in the index is a slip of the pen."""
    assert named <= set(CASES)

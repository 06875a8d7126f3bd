"""Every case of tests/CASES.md is proved by a test that names its number in its docstring."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent

CASES = set(re.findall(r"^- \*\*(\w+)\*\* ", (TESTS / "CASES.md").read_text(encoding="utf-8"), re.MULTILINE))
_CASE = r"\b[A-E][0-9]{1,2}\b"


def docstrings_of_tests() -> Iterator[str]:
    """Return the docstring of every test function in files that may name a case."""
    texts = (path.read_text() for path in TESTS.rglob("test_*.py"))
    for text in filter(re.compile(_CASE).search, texts):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield ast.get_docstring(node) or ""


def test_cases_are_those_that_tests_name() -> None:
    """A case that no test names is one that nobody may rely on; a number that is not in the list is a mistake."""
    found = (re.findall(_CASE, docstring) for docstring in docstrings_of_tests())
    assert {number for numbers in found for number in numbers} == CASES

"""tests/README.md says which harness to take: its examples are tests, and it names every part."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
README: Final = (TESTS / "README.md").read_text(encoding="utf-8")
EXAMPLES: Final = {
    "virtual_time": "integration/whole_calls/test_harness_example.py",
    "processes": "acceptance/test_harness_example.py",
    "browser": "browser/test_harness_example.py",
}
"""The harnesses, and the tests that the document shows, in its order."""

BY_ITSELF: Final = {"audit/test_secrets_of_processes.py", "integration/test_embedded.py"}
"""The first gives processes exactly the environment of a platform, the second kills the one that started them."""


def test_examples_of_the_document_are_tests() -> None:
    """Each block of Python is one of the tests above, word for word."""
    shown = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert shown == [_only_test(TESTS / path) for path in EXAMPLES.values()]


def _only_test(path: Path) -> str:
    source = path.read_text(encoding="utf-8")
    [test] = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return f"{ast.get_source_segment(source, test)}\n"


@pytest.mark.parametrize("module", sorted(path.name for path in (TESTS / "harness").glob("*.py")))
def test_document_names_every_module_of_the_harnesses(module: str) -> None:
    """Nobody has to search for what is there."""
    assert f"`{module}`" in README or f"`harness/{module}`" in README


def test_processes_are_started_in_one_way() -> None:
    """Only the harness of processes starts callkeeper in a fleet."""
    starting = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.parent.name != "harness" and "fleet.start(" in path.read_text(encoding="utf-8")
    ]
    assert set(starting) - {f"unit/{Path(__file__).name}"} == BY_ITSELF

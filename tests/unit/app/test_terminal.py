"""The one module that prints; tests/audit/test_terminal.py runs the commands on a real terminal."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from callkeeper.app.terminal import say_table

ROOT = Path(__file__).parents[3]

PRINTS: dict[str, Callable[[ast.AST], bool]] = {
    "click.echo": lambda node: isinstance(node, ast.Attribute) and node.attr in {"echo", "secho", "echo_via_pager"},
    "print": lambda node: isinstance(node, ast.Name) and node.id == "print",
    "rich.Console": lambda node: isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Console",
    "rich.Text": lambda node: isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Text",
}

NAMED = re.compile(r"\b(echo|secho|echo_via_pager|print|Console|Text)\b")
"""What a file must contain to have one of them: only such files are parsed."""


def test_everything_is_printed_by_one_module() -> None:
    """No other module prints, so every text goes through `safe`."""
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {name}"
        for path in sorted((ROOT / "callkeeper").rglob("*.py"))
        if path.name != "terminal.py" and NAMED.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        for name, is_one in PRINTS.items()
        if is_one(node)
    ]
    assert found == []


def test_table_that_is_piped_has_no_blanks_at_the_ends_of_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A table is filled up to its width, which is for people only: what is compared and searched has its texts alone."""
    say_table(("name", "state"), [("a long name", "live"), ("b", "")], width_if_piped=80)
    assert capsys.readouterr().out == "name        state\na long name live\nb\n"

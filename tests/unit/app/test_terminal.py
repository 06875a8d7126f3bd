"""The one module that prints; tests/audit/test_terminal.py runs the commands on a real terminal."""

import ast
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[3]

PRINTS: dict[str, Callable[[ast.AST], bool]] = {
    "click.echo": lambda node: isinstance(node, ast.Attribute) and node.attr in {"echo", "secho", "echo_via_pager"},
    "print": lambda node: isinstance(node, ast.Name) and node.id == "print",
    "rich.Console": lambda node: isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Console",
    "rich.Text": lambda node: isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Text",
}


def test_everything_is_printed_by_one_module() -> None:
    """No other module prints, so every text goes through `safe`."""
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {name}"
        for path in sorted((ROOT / "callkeeper").rglob("*.py"))
        if path.name != "terminal.py"
        for node in ast.walk(ast.parse(path.read_text()))
        for name, is_one in PRINTS.items()
        if is_one(node)
    ]
    assert found == []

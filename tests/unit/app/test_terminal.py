"""The one module that prints; tests/audit/test_terminal.py runs the commands on a real terminal."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from callkeeper.app.commands.calls import story_table
from callkeeper.app.terminal import say_table, terminal_console
from callkeeper.calls.story import Line, Meaning, Row, Story, Tone

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
    say_table(("name", "state"), [("a long name", "live"), ("b", "")])
    assert capsys.readouterr().out == "name        state\na long name live\nb\n"


def test_table_is_as_wide_as_its_cells(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal that is too narrow, its own line breaks are easier to read than columns that are cut or left out."""
    monkeypatch.setenv("COLUMNS", "20")
    row = ("c:cu-1:a-long-id.0.settled", "connection refused " * 9, "12 ms")
    say_table(("message id", "result", "took"), [row])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["message", "id", "result", "took"],
        " ".join(row).split(),
    ]


def test_long_line_of_a_story_stays_indented(capsys: pytest.CaptureFixture[str]) -> None:
    """What explains a line of the story stands to the right of it, also where it needs several lines."""
    words = "one two three four " * 8
    line = Line(1.0, Tone.DECIDED, "decided", (Row("+", "a rule", words),), meanings=(Meaning("a_name", words),))
    terminal_console(width_if_piped=60).print(story_table(Story("", (line,), ""), with_rows=True))
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "1.0 s decided"
    assert len(rest) > 4
    assert {len(each) - len(each.lstrip()) for each in rest} == {len("1.0 s ") + 4}

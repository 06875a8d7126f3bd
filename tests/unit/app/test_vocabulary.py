"""The vocabulary of log events agrees with the source code."""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from callkeeper.app.vocabulary import ALWAYS, EVENTS, LIBRARY_MESSAGE

ROOT = Path(__file__).parents[3]
PACKAGES = ("receiver", "workers", "callkeeper")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


class LogCall(NamedTuple):
    """One place that logs."""

    place: str
    event: str | None
    keys: frozenset[str]


@cache
def log_calls() -> tuple[LogCall, ...]:
    """Find every call such as ``log.info("name", key=...)`` in our packages."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return tuple(
        log_call(path, node)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and is_log_method(node.func)
    )


def log_call(path: Path, node: ast.Call) -> LogCall:
    """Return what is known of a place that logs."""
    name = node.args[0] if node.args else None
    return LogCall(
        f"{path.relative_to(ROOT)}:{node.lineno}",
        str(name.value) if isinstance(name, ast.Constant) else None,
        frozenset(keyword.arg for keyword in node.keywords if keyword.arg),
    )


def is_log_method(function: ast.expr) -> bool:
    """Tell whether an expression is ``log.info``, ``self._log.warning``, ``tools.log.error`` and the like."""
    if not (isinstance(function, ast.Attribute) and function.attr in LEVELS):
        return False
    owner = function.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name.lstrip("_") in {"log", "logger"}


def test_vocabulary_knows_every_event_that_is_logged() -> None:
    """Every place that logs uses a literal name of the vocabulary, with keys that it allows."""
    strange = [
        call
        for call in log_calls()
        if call.event not in EVENTS or call.keys - EVENTS[call.event].keys - ALWAYS - {"exc_info"}
    ]
    assert strange == []


def test_vocabulary_holds_nothing_that_is_never_logged() -> None:
    """A name that no code uses any more leaves the list: what it promises would not come."""
    assert set(EVENTS) - {call.event for call in log_calls()} == {LIBRARY_MESSAGE}


@pytest.mark.parametrize(
    "word", ["phone", "person", "name", "ssn", "birth", "password", "token", "secret", "header", "body", "notes"]
)
def test_vocabulary_has_no_personal_keys(word: str) -> None:
    """Promise 6: no key is meant for what must not be logged."""
    assert [key for event in EVENTS.values() for key in event.keys | ALWAYS if word in key] == []

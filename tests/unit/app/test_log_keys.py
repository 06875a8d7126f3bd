"""The keys of log lines agree with the source code."""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from callkeeper.app.logs import KEYS

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


def test_every_line_has_a_literal_name_and_allowed_keys() -> None:
    """A name that is computed could hold anything, and a key that is not allowed would be left out."""
    assert [call for call in log_calls() if call.event is None or call.keys - KEYS - {"exc_info"}] == []


def test_no_key_is_allowed_that_is_never_logged() -> None:
    """What no code uses any more leaves the list."""
    of_every_line = {"event", "level", "timestamp", "process", "trace", "dropped"}
    computed = {"field", "library", "message"} | {"at_ms", "before_hash", "before_n", "signature"}
    used = {key for call in log_calls() for key in call.keys}
    assert KEYS - used == of_every_line | computed


@pytest.mark.parametrize(
    "word", ["phone", "person", "name", "ssn", "birth", "password", "token", "secret", "header", "body", "notes"]
)
def test_no_key_is_personal(word: str) -> None:
    """Promise 6: no key is meant for what must not be logged."""
    assert [key for key in KEYS if word in key] == []

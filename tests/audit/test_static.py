"""Bandit finds nothing in the code except lines that state a reason, and the exceptions listed here."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("receiver", "workers", "callkeeper", "sandbox")

REASON: Final = re.compile(r"# noqa: S\d{3}")
"""The comment of a line that ruff's equivalent rule accepts. It states the reason."""

_DEMO: Final = "sandbox/callkeeper_sandbox/demo"

HERE: Final[Mapping[tuple[str, str], str]] = {
    ("B311", "callkeeper/service/tracing.py"): "draws the ids of requests in traces, which are no secret",
    ("B404", f"{_DEMO}/embedded_redis.py"): "starts the embedded Redis; the line that does so states its reason",
    ("B404", f"{_DEMO}/guard.py"): "starts a shell that waits; the line that does so states its reason",
    ("B404", f"{_DEMO}/fleet.py"): "starts our own processes; the line that does so states its reason",
}
"""Accepted findings of bandit that ruff has no rule for."""


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """Return bandit's findings without a reason on their lines."""
    command = [sys.executable, "-m", "bandit", "-q", "-f", "json", "-r", *PACKAGES]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  (our own)
    results: list[dict[str, Any]] = json.loads(answer.stdout)["results"]
    assert len(results) > 10, "bandit found almost nothing: it probably did not run"
    return [issue for issue in results if not REASON.search(_code(issue))]


def _code(issue: dict[str, Any]) -> str:
    lines = (ROOT / issue["filename"]).read_text().splitlines()
    return "\n".join(lines[number - 1] for number in issue["line_range"])


def place(issue: dict[str, Any]) -> tuple[str, str]:
    """Return the kind of an issue and its file."""
    return issue["test_id"], issue["filename"].removeprefix("./")


def test_linter_finds_nothing_that_has_no_reason(found: list[dict[str, Any]]) -> None:
    """Every finding is an exception that is listed here."""
    assert [(place(issue), issue["issue_text"]) for issue in found if place(issue) not in HERE] == []


def test_linter_finds_every_exception(found: list[dict[str, Any]]) -> None:
    """Every exception listed here is still found, so that it cannot hide a new finding."""
    assert set(HERE) - set(map(place, found)) == set()

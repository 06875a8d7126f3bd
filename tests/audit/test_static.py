"""What a linter for holes finds in the code: nothing but what has its reason, on its line or here."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("receiver", "desk", "workers", "calls", "reseller", "sandbox", "callkeeper")

REASON: Final = re.compile(r"# noqa: S\d{3}")
"""ruff asks the same questions; a line that answers one says why."""

HERE: Final[Mapping[tuple[str, str], str]] = {
    ("B404", "callkeeper/embedded.py"): "starts the embedded Redis; how is judged on the line that does",
    ("B404", "callkeeper/fleet.py"): "starts our own processes; how is judged on the line that does",
}
"""What bandit finds and ruff does not ask for."""


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """Return what was found and has no reason on its line."""
    command = [sys.executable, "-m", "bandit", "-q", "-f", "json", "-r", *PACKAGES]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  (our own)
    results: list[dict[str, Any]] = json.loads(answer.stdout)["results"]
    assert len(results) > 10, "the linter has looked"
    return [issue for issue in results if not REASON.search(_code(issue))]


def _code(issue: dict[str, Any]) -> str:
    lines = (ROOT / issue["filename"]).read_text().splitlines()
    return "\n".join(lines[number - 1] for number in issue["line_range"])


def place(issue: dict[str, Any]) -> tuple[str, str]:
    """Return the kind of an issue and its file."""
    return issue["test_id"], issue["filename"].removeprefix("./")


def test_linter_finds_nothing_that_has_no_reason(found: list[dict[str, Any]]) -> None:
    """Whatever is found is mended, or says why it stays."""
    assert [(place(issue), issue["issue_text"]) for issue in found if place(issue) not in HERE] == []


def test_linter_finds_every_exception(found: list[dict[str, Any]]) -> None:
    """An exception that is not needed any more goes: nothing new hides behind it."""
    assert set(HERE) - set(map(place, found)) == set()

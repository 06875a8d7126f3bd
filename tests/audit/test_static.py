"""What a linter for holes finds in the code: nothing but what is listed here, each with its reason."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("receiver", "desk", "workers", "calls", "reseller", "sandbox", "callkeeper")

ASSERTS: Final = "says what the type checker cannot know; nothing that comes from outside is judged by an assert"
NAMES: Final = "a name or a word of the specification that reads like a credential, and is none"
OWN_PROCESSES: Final = "starts our own interpreter or the embedded Redis with arguments of ours, without a shell"
DRAWN: Final = "a sample or a jitter that has to be spread, not secret"
OWN_TEMPLATES: Final = "marks what our own escaping templates have written; every line says so"

EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    **dict.fromkeys(
        [
            *(("B101", "callkeeper/cli.py"), ("B101", "calls/rules/lines.py"), ("B101", "desk/board/call_page.py")),
            *(("B101", "desk/bodies.py"), ("B101", "desk/openapi.py"), ("B101", "reseller/bounded.py")),
            ("B101", "reseller/conversation.py"),
        ],
        ASSERTS,
    ),
    **dict.fromkeys(
        [
            *(("B105", "callkeeper/cli.py"), ("B105", "reseller/enumerations.py"), ("B105", "sandbox/access.py")),
            *(("B105", "sandbox/faults.py"), ("B105", "sandbox/records.py")),
        ],
        NAMES,
    ),
    **dict.fromkeys(
        [
            *(("B404", "callkeeper/embedded.py"), ("B404", "callkeeper/fleet.py"), ("B404", "workers/crashpoints.py")),
            *(("B603", "callkeeper/embedded.py"), ("B603", "callkeeper/fleet.py"), ("B603", "workers/crashpoints.py")),
        ],
        OWN_PROCESSES,
    ),
    **dict.fromkeys(
        [
            *(("B311", "calls/schedule/fit.py"), ("B311", "calls/store.py"), ("B311", "sandbox/faults.py")),
            ("B311", "sandbox/scenario.py"),
        ],
        DRAWN,
    ),
    **dict.fromkeys([("B704", "desk/board/board.py"), ("B704", "desk/board/painter.py")], OWN_TEMPLATES),
    ("B104", "callkeeper/commands/web.py"): "a platform's router reaches a process from outside of its machine",
    ("B113", "workers/sink.py"): "the deadline is around the whole exchange, from the name to the answer",
}


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], str]:
    """Return what was found: the kind and the file, with the first line of the code."""
    command = [sys.executable, "-m", "bandit", "-q", "-f", "json", "-r", *PACKAGES]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  (our own)
    results = json.loads(answer.stdout)["results"]
    return {(issue["test_id"], issue["filename"].removeprefix("./")): issue["issue_text"] for issue in results}


def test_linter_finds_nothing_that_has_no_reason(found: dict[tuple[str, str], str]) -> None:
    """Whatever is found is mended, or listed with the reason why it stays."""
    assert {place: text for place, text in found.items() if place not in EXCEPTIONS} == {}


def test_linter_finds_every_exception(found: dict[tuple[str, str], str]) -> None:
    """An exception that is not needed any more goes: nothing new hides behind it."""
    assert set(EXCEPTIONS) - set(found) == set()

"""Which test of this folder keeps which part of the service's document."""

import ast
import re
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
HEADINGS = (
    "What the service does",
    "Resources and their fields",
    "Base response",
    "Token response",
    "User token response",
    "Queue entry",
    "Person match",
    "Phone call record",
    "Research case",
    "Vendor event",
    "Vendor call",
    "Institution",
    "Core config",
    "VPN config",
    "Other shapes",
    "Call activity status",
    "States and transitions, row 1",
    "States and transitions, row 2",
    "States and transitions, row 3",
    "States and transitions, row 4",
    "Polling stop rule",
    "Endpoints 4",
    "Endpoints 5",
    "Endpoints 6",
    "Endpoints 7",
    "Endpoints 8",
    "Endpoints 9",
    "Endpoints 10",
    "Endpoints 11",
    "Endpoints 12",
    "Queue query",
    "Rules per operation 1",
    "Rules per operation 2",
    "Rules per operation 3",
    "Rules per operation 4",
    "Rules per operation 5",
    "Rules per operation 6",
    "Authentication, access token",
    "Authentication, service account",
    "Authentication, reseller",
    "Authentication, rule 1",
    "Authentication, rule 2",
    "Authentication, rule 3",
    "Authentication, rule 4",
    "Events",
    "Events, types",
    "Events, payload",
    "Events, rule 1",
    "Events, rule 2",
    "Events, rule 3",
    "Errors 1",
    "Errors 2",
    "Errors 3",
    "Limits",
)
"""The parts of the document that can be kept, in its order.

Left out: what is said to be not shown, Authentication rule 5 (onboarding), Events rule 4 (internal), and Versioning, of
which nothing can be observed but the paths; endpoints 1 to 3 are in the token responses and the queue query.
"""


def index() -> dict[str, list[str]]:
    """Return the tests of each part, read from the docstrings of this folder."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for heading in _headings(ast.get_docstring(node) or ""):
                    found[heading].append(f"{path.stem}::{node.name}")
    return found


def _headings(docstring: str) -> list[str]:
    named = re.search(r"^Spec: (.+?)\.$", docstring, re.MULTILINE | re.DOTALL)
    return [" ".join(heading.split()) for heading in named[1].split(";")] if named else []


def test_every_part_of_the_document_has_a_test() -> None:
    """Each part of the document is named by a test, and no test names a part that does not exist."""
    assert set(index()) == set(HEADINGS)

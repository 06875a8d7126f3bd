"""docs/assumptions.md lists what the code assumes of the service."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("receiver", "workers", "callkeeper")


def test_document_lists_every_assumption() -> None:
    """Each ``Assumed:`` in the code has a line, and each line has its mark: a new one cannot be forgotten."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    marks = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("Assumed:") for path in files}
    lines = (ROOT / "docs/assumptions.md").read_text(encoding="utf-8").splitlines()
    listed = Counter(found[1] for line in lines if (found := re.match(r"- `([\w/]+\.py)`: ", line)))
    assert dict(listed) == {file: count for file, count in marks.items() if count}

"""docs/operations.md as a page of the board. Alarms link to its sections, also where there is no internet access."""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

_PLACES: Final = (
    files("callkeeper.desk.board") / "operations.md",
    Path(__file__).parents[3] / "docs" / "operations.md",
)
"""The file's place in the wheel, and in the repository."""


class RunbookSection(NamedTuple):
    """A heading, the text below it as it is written, and the anchor by which alarms link to it."""

    level: int
    heading: str
    text: str
    anchor: str


@cache
def runbook() -> list[RunbookSection]:
    """Return the document in sections."""
    text = next(place for place in _PLACES if place.is_file()).read_text(encoding="utf-8")
    parts = re.findall(r"^(#{1,6}) (.+)\n((?:(?!#{1,6} ).*\n?)*)", text, re.MULTILINE)
    return [RunbookSection(len(marks), heading, below.strip("\n"), anchor(heading)) for marks, heading, below in parts]


def anchor(heading: str) -> str:
    """Return the anchor of a heading, the same as where the repository is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")

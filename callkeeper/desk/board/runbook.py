"""docs/operations.md as a page of the board. Alarms link to its sections, also where there is no internet access."""

import re
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PLACES: Final = (
    files("callkeeper.desk.board") / "operations.md",
    Path(__file__).parents[3] / "docs" / "operations.md",
)
"""The file's place in the wheel, and in the repository."""


@cache
def runbook() -> str:
    """Return the document as markup. Links to other documents become text, because those are not served."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(next(place for place in _PLACES if place.is_file()).read_text(encoding="utf-8"))
    for heading, words in pairwise(tokens):
        if heading.type == "heading_open":
            heading.attrSet("id", anchor(words.content))
    for token in tokens:
        if token.type in {"table_open", "fence", "code_block"}:
            token.attrSet("tabindex", "0")  # a narrow window scrolls them, and so must the keyboard
        _unlink(token.children or [])
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _unlink(tokens: list[Token]) -> None:
    is_served = True
    for token in tokens:
        if token.type == "link_open":
            is_served = str(token.attrGet("href")).startswith("#")
        if token.type in {"link_open", "link_close"} and not is_served:
            token.tag, token.attrs = "span", {}


def anchor(heading: str) -> str:
    """Return the anchor of a heading, the same as where the repository is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")

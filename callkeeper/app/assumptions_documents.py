"""Writes docs/assumptions.md and docs/survey.md from the list of assumptions.

``python -m callkeeper.app.assumptions_documents assumptions`` prints the first, with ``survey`` the second.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from importlib.resources import files
from textwrap import wrap

from callkeeper.calls.assumptions import Assumption, SeenBy, assumptions, groups, variants
from callkeeper.service.asking import MOST, PLAN

OTHERS = "Others"
"""The group of assumptions that are not about the service's answers. It stands last."""


def assumptions_document() -> str:
    """Return the whole of docs/assumptions.md."""
    parts = {
        "groups": "\n\n".join(
            f"## {name}\n\n{_items(map(_line, of_it))}" for name, of_it in groups().items() if name != OTHERS
        ),
        "contradictions": _items(f"{words} (`{id_}`)," for id_, words in _contradictions())[:-1] + ".",
        "others": _items(map(_line, groups()[OTHERS])),
    }
    return _filled("assumptions_document.md", parts)


def _line(one: Assumption) -> str:
    where = ", ".join(f"`{module}`" for module in one.where)
    otherwise = f" Otherwise: {one.otherwise}." if one.otherwise else ""
    return f"`{one.id}` ({where}): {one.text}.{otherwise}"


def _contradictions() -> Sequence[tuple[str, str]]:
    return [(one.id, each.words) for one in assumptions().values() for each in one.answers if not each.holds]


def survey_document() -> str:
    """Return the whole of docs/survey.md."""
    named = sorted(variants().items())
    rows = [
        f"| `{name}` | `{one.id}` | {one.seen_by(answer)} | {'holds' if answer.holds else 'contradicted'} |"
        for name, (one, answer) in named
    ]
    unseen = [
        f"`{name}`: {answer.never or one.never}."
        for name, (one, answer) in named
        if one.seen_by(answer) is SeenBy.NOTHING
    ]
    header = ["| variant | assumption | seen by | with it, the assumption |", "|---|---|---|---|"]
    plan = [f"`{each.request}`, {each.most} at most: {each.shows}." for each in PLAN]
    parts = {
        "variants": "\n".join([*header, *rows]),
        "unseen": _items(unseen),
        "plan": _items(plan),
        "most": str(MOST),
    }
    return _filled("survey_document.md", parts)


def _filled(template: str, parts: dict[str, str]) -> str:
    text = (files("callkeeper.app") / template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found.group(1)], text)


def _items(texts: Iterable[str]) -> str:
    """Return a list in Markdown, in lines of less than 120 characters."""
    return "\n".join(
        line
        for text in texts
        for line in wrap(
            text, 116, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    )


if __name__ == "__main__":
    sys.stdout.write({"assumptions": assumptions_document, "survey": survey_document}[sys.argv[1]]())

"""Writes docs/assumptions.md and docs/survey.md from the list of assumptions.

``python -m callkeeper.app.assumptions_documents assumptions`` prints the first, with ``survey`` the second.
"""

import sys

from callkeeper.app.documents import filled, items
from callkeeper.calls.assumptions import Assumption, SeenBy, assumptions, groups, variants
from callkeeper.service.survey_questions import MOST, PLAN

OTHERS = "Others"
"""The group of assumptions that are not about the service's answers. It stands last."""


def assumptions_document() -> str:
    """Return the whole of docs/assumptions.md."""
    contradictions = [(one.id, each.words) for one in assumptions().values() for each in one.answers if not each.holds]
    parts = {
        "groups": "\n\n".join(
            f"## {name}\n\n{items(map(_line, of_it))}" for name, of_it in groups().items() if name != OTHERS
        ),
        "contradictions": items(f"{words} (`{id_}`)," for id_, words in contradictions)[:-1] + ".",
        "others": items(map(_line, groups()[OTHERS])),
    }
    return filled("assumptions_document.md", parts)


def _line(one: Assumption) -> str:
    where = ", ".join(f"`{module}`" for module in one.where)
    otherwise = f" Otherwise: {one.otherwise}." if one.otherwise else ""
    return f"`{one.id}` ({where}): {one.text}.{otherwise}"


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
        "unseen": items(unseen),
        "plan": items(plan),
        "most": str(MOST),
    }
    return filled("survey_document.md", parts)


if __name__ == "__main__":
    sys.stdout.write({"assumptions": assumptions_document, "survey": survey_document}[sys.argv[1]]())

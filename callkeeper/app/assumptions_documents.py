"""Writes docs/assumptions.md and docs/survey.md from the list of assumptions.

``python -m callkeeper.app.assumptions_documents assumptions`` prints the first, with ``survey`` the second.
"""

import sys
from collections.abc import Iterable, Mapping

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
    otherwise = f" Otherwise: {one.otherwise}." if one.otherwise else ""
    return f"`{one.id}`: {one.text}.{otherwise}"


def survey_document() -> str:
    """Return the whole of docs/survey.md."""
    named = [(name, one, answer) for name, (one, answer) in sorted(variants().items())]
    handled: dict[SeenBy, dict[str, list[str]]] = {seen_by: {} for seen_by in SeenBy}
    unseen: dict[str, list[str]] = {}
    contradictions = []
    for name, one, answer in named:
        seen_by = one.seen_by(answer)
        if not answer.holds:
            only = f", only by `{seen_by}`" if seen_by is SeenBy.ASKED else ""
            contradictions.append(f"`{name}`: `{one.id}`{only}")
        elif seen_by is SeenBy.NOTHING:
            unseen.setdefault(answer.never or one.never, []).append(name)
        else:
            handled[seen_by].setdefault(one.id, []).append(name)
    parts = {
        "contradictions": items(contradictions),
        "traffic": _by_assumption(handled[SeenBy.TRAFFIC]),
        "asked": _by_assumption(handled[SeenBy.ASKED]),
        "unseen": items(f"{_names(names)}: {why}." for why, names in unseen.items()),
        "plan": items(f"`{each.request}`, {each.most} at most: {each.shows}." for each in PLAN),
        "most": str(MOST),
    }
    return filled("survey_document.md", parts)


def _by_assumption(handled: Mapping[str, list[str]]) -> str:
    return items(f"`{id_}`: {_names(names)}" for id_, names in sorted(handled.items()))


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write({"assumptions": assumptions_document, "survey": survey_document}[sys.argv[1]]())

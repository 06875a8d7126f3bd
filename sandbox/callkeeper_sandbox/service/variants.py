"""Variants: other answers to open questions of the document, by name. `callkeeper_sandbox.service.questions` lists them.

The usual answer to a question is the default of `Options`. Variants of different questions can be combined.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from callkeeper_sandbox.service.faults import Fault
from callkeeper_sandbox.service.options import Options
from callkeeper_sandbox.service.question import THE_LAST, Question, Variant
from callkeeper_sandbox.service.questions import QUESTIONS

VARIANTS: Mapping[str, tuple[Question, Variant]] = {
    variant.name: (question, variant) for question in QUESTIONS for variant in question.variants
}
"""Every variant by its name, with the question that it answers."""


class VariantError(ValueError):
    """Invalid variants. The message says why, and names a valid one."""


@dataclass(frozen=True)
class Choice:
    """The options and faults of a set of variants."""

    options: Options = field(default_factory=Options)
    faults: tuple[Fault, ...] = ()


def choose(names: Iterable[str]) -> Choice:
    """Combine variants.

    Raises:
        VariantError: A name is unknown, or two answer the same question.
    """
    options: dict[str, Any] = {}
    faults: list[Fault] = []
    answered: dict[str, str] = {}
    for name in names:
        question, variant = _find(name)
        other = answered.setdefault(question.question, name)
        if other != name:
            raise VariantError(f"{other} and {name} answer the same question: {question.question}")
        options |= variant.options
        faults += variant.faults
    return Choice(Options(**options), tuple(faults))


def _find(name: str) -> tuple[Question, Variant]:
    if name in VARIANTS:
        return VARIANTS[name]
    nearest = difflib.get_close_matches(name, VARIANTS, n=1)
    hint = f"the nearest is {nearest[0]}" if nearest else "GET /control/variants lists them"
    raise VariantError(f"no variant is called {name!r}; {hint}")


def aimed(faults: Iterable[Fault], last_key: str | None) -> list[Fault]:
    """Return copies of faults. Those of the last institution get its key."""
    return [
        replace(fault, institution_key=last_key if fault.institution_key == THE_LAST else fault.institution_key)
        for fault in faults
    ]


def listed() -> list[dict[str, Any]]:
    """Return all questions with their variants."""
    return [
        {
            "heading": asked.heading,
            "question": f"{asked.question}?",
            "usual": asked.usual,
            "variants": {variant.name: variant.answer for variant in asked.variants},
        }
        for asked in QUESTIONS
    ]

"""Sets of variants that together contain every pair of variants of different questions."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from callkeeper_sandbox.service.question import Question
from callkeeper_sandbox.service.questions import QUESTIONS
from callkeeper_sandbox.service.variants import VARIANTS

PASSING = frozenset(
    {
        "What does a 401 mean, and was the request carried out",
        "How many requests are answered",
        "Are there other HTTP statuses",
        "How long does an answer take",
    }
)
"""Questions about failures of single requests."""

TROUBLE = PASSING | {"Is the service's clock right"}
"""Questions of which a set answers at most one."""

assert {question.question for question in QUESTIONS} >= TROUBLE

Pair = frozenset[str]


def calmed(names: Iterable[str]) -> list[str]:
    """Leave out variants with failures: no call would settle."""
    return [name for name in names if VARIANTS[name][0].question not in PASSING]


def covering_sets(questions: Sequence[Question] = QUESTIONS) -> list[list[str]]:
    """Return sets of variants, at most one per question and one with trouble, that cover every possible pair.

    Greedy: each set begins with a missing pair. Of every other question it takes the variant that adds most pairs.
    """
    question_of = {variant.name: question.question for question in questions for variant in question.variants}
    missing = set(_pairs(question_of, question_of))
    sets = []
    while missing:
        names = sorted(min(missing, key=sorted))
        for question in questions:
            fitting = [v.name for v in question.variants if _fits(v.name, names, question_of)]
            gains = {name: sum(frozenset({name, other}) in missing for other in names) for name in fitting}
            best = max(fitting, key=gains.__getitem__, default=None)
            if best is not None and gains[best]:
                names.append(best)
        missing -= set(_pairs(names, question_of))
        sets.append(names)
    return sets


def _pairs(names: Iterable[str], question_of: dict[str, str]) -> Iterable[Pair]:
    return (frozenset(pair) for pair in combinations(names, 2) if _fits(pair[0], [pair[1]], question_of))


def _fits(name: str, names: Iterable[str], question_of: dict[str, str]) -> bool:
    asked = question_of[name]
    others = {question_of[other] for other in names}
    return asked not in others and not (asked in TROUBLE and others & TROUBLE)

"""The sets of variants under which the main job and the model are tested."""

from itertools import combinations

from callkeeper_sandbox.service.questions import QUESTIONS
from tests.covering import TROUBLE, covering_sets

QUESTION_OF = {variant.name: question.question for question in QUESTIONS for variant in question.variants}


def may_be_together(one: str, other: str) -> bool:
    """Tell whether two variants may be in one set: they answer different questions, and at most one is trouble."""
    questions = {QUESTION_OF[one], QUESTION_OF[other]}
    return len(questions) == 2 and not questions <= TROUBLE


def test_every_pair_of_variants_is_in_a_set() -> None:
    """Two variants that may be together are together in at least one set."""
    together = {frozenset(pair) for names in covering_sets() for pair in combinations(names, 2)}
    assert together == {frozenset(pair) for pair in combinations(QUESTION_OF, 2) if may_be_together(*pair)}


def test_every_set_adds_a_pair() -> None:
    """No set has only pairs that earlier sets have."""
    seen: set[frozenset[str]] = set()
    for names in covering_sets():
        pairs = {frozenset(pair) for pair in combinations(names, 2)}
        assert pairs - seen
        seen |= pairs

"""Tests of numbers of things in words."""

import pytest

from callkeeper.calls.quantity import quantity


@pytest.mark.parametrize(
    ("count", "noun", "plural", "words"),
    [(0, "call", "", "0 calls"), (1, "call", "", "1 call"), (2, "call is", "calls are", "2 calls are")],
)
def test_quantity(count: int, noun: str, plural: str, words: str) -> None:
    """Only one has the singular."""
    assert quantity(count, noun, plural) == words

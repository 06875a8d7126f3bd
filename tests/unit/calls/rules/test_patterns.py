"""Patterns of policy names."""

from fnmatch import fnmatchcase

import pytest

from callkeeper.calls.rules.patterns import TooManyNames, kinds_of_names, overlap, pattern_fault


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [("Green*", "*Manual*", True), ("Green*", "Red*", False), ("A", "A", True), ("*a", "*b", False), ("*", "x", True)],
)
def test_overlap_means_that_one_name_matches_both(one: str, other: str, do: bool) -> None:
    """The same in either order."""
    assert overlap(one, other) is overlap(other, one) is do


def test_each_class_has_a_name_that_matches_exactly_its_patterns() -> None:
    """Checked by another matcher than the one that made the classes."""
    patterns = ("Green*", "*Manual*", "Green Manual")
    kinds = kinds_of_names(patterns)
    assert frozenset() in kinds
    assert frozenset(patterns) in kinds
    for fits, name in kinds.items():
        assert {pattern for pattern in patterns if fnmatchcase(name, pattern)} == fits


def test_patterns_with_other_signs_are_refused() -> None:
    """Only a star has a meaning."""
    assert pattern_fault("Green ?") == "'Green ?' holds one of ? [ ]"
    assert pattern_fault("Green*") is None


def test_too_many_combinations_are_refused_before_they_take_long() -> None:
    """Twelve patterns that each may begin anywhere are more than can be followed."""
    with pytest.raises(TooManyNames):
        kinds_of_names(tuple(f"*{chr(97 + n)}*{chr(98 + n)}*" for n in range(14)))

"""Lists of persons and phone numbers."""

import pytest

from callkeeper.calls.person_lists import NamedLists, Numbers, digits_and_stars

NUMBERS = Numbers.of(["+1 900 555 0100", "+1800*"])


@pytest.mark.parametrize(
    "number", ["19005550100", "sip:19005550100@10.2.3.4", "1 (900) 555-0100 x7", "+18005550199", "1800"]
)
def test_number_is_found_in_any_notation(number: str) -> None:
    """Only digits count, and a star stands for any of them."""
    assert NUMBERS.hold(number)


@pytest.mark.parametrize(
    "number",
    ["", "withheld", "*", "sip:alice@19.0.0.1", "190055501", "190055501001", "+44 1800 1"],
)
def test_withheld_or_other_number_is_in_no_list(number: str) -> None:
    """A number without digits never is, and a pattern matches from the beginning."""
    assert not NUMBERS.hold(number)


def test_lists_are_named_for_a_member_and_a_number() -> None:
    """Every list that holds it, in order; none for nobody."""
    lists = NamedLists({"staff": frozenset({"p-1"}), "vip": frozenset({"p-1", "p-2"})}, {"bad": NUMBERS})
    assert lists.of_person("p-1") == ("staff", "vip")
    assert lists.of_person(None) == ()
    assert lists.of_number("1800 1") == ("bad",)
    assert lists.of_number(None) == ()
    assert digits_and_stars("+1 900\u0661*") == "1900*"

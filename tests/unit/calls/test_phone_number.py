"""Phone numbers: their digits, and which are the same."""

import pytest

from callkeeper.calls.phone_number import digits_of, same_number


@pytest.mark.parametrize(
    ("text", "digits"), [("+1 (202) 555-0147", "12025550147"), ("020\u0661 x", "020"), ("withheld", ""), ("", "")]
)
def test_digits_are_those_of_ascii(text: str, digits: str) -> None:
    """What people write between them is left out, and digits of other scripts are no digits."""
    assert digits_of(text) == digits


def test_numbers_are_compared_in_any_notation() -> None:
    """The configured country fills in what is not typed."""
    assert same_number("020 7946 0958", "+44 20 7946 0958", "GB")
    assert not same_number("020 7946 0958", "+44 20 7946 0958", "US")

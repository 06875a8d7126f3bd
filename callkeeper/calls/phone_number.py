"""Phone numbers in any notation: their digits, and which are the same."""

import re
from typing import Final

COMPARED: Final = 6
"""Two notations of one number end in the same digits, this many. Otherwise parsing is skipped."""

_NO_DIGITS: Final = re.compile("[^0-9]+")


def number_of(text: str, country: str) -> str | None:
    """Return a complete phone number as digits with its country code; None if it is not one.

    ``country``: that of a number without a country code, in two letters.
    """
    import phonenumbers  # noqa: PLC0415  (its tables are large; only searches need them)

    try:
        parsed = phonenumbers.parse(text, country)
    except phonenumbers.NumberParseException:
        return None
    return phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)[1:]


def same_number(one: str, other: str, country: str) -> bool:
    """Tell whether two texts are the same phone number. Incomplete numbers are compared by their digits."""
    return _canonical(one, country) == _canonical(other, country)


def _canonical(text: str, country: str) -> str:
    return number_of(text, country) or digits_of(text)


def digits_of(text: str) -> str:
    """Return the ASCII digits of a text."""
    return _NO_DIGITS.sub("", text)

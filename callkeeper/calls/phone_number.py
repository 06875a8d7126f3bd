"""Phone numbers in any notation: their digits, and which are the same."""

import re
from functools import lru_cache
from typing import Final

COMPARED: Final = 6
"""Two notations of one number end in the same digits, this many. Otherwise parsing is skipped."""

_NUMBER: Final = re.compile(
    r"(?:tel:|(?P<sip>sips?:)(?=[^@]*@))?"
    r"(?P<number>\+?[0-9().\-/\s]*)"
    r"(?:(?:;|,|\#|x|ext\.?|extn|extension)[=:.,\s]*[0-9]{1,9}\s*(?=[;@]|$))?"
    r"(?P<host>;.*|@.*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)

_WITHHELD: Final = re.compile("(?:[0-9]{0,3}(?:266696687|7378742833|86282452253)|1?(?:2562533|8656696))")
"""How telephone networks write anonymous, restricted, unavailable, blocked and unknown, in the letters of a keypad, also
with a country code."""


@lru_cache(maxsize=4096)
def _number_in(text: str) -> str:
    """Return the digits of the number that a text is, without its extension, and the plus sign before them, if any.

    Empty if it is none: a number that is withheld, a name, an address without a number. An address (``tel:``, ``sip:``)
    is the number before its parameters and its host.
    """
    found = _NUMBER.fullmatch(text.strip().removeprefix("<").removesuffix(">"))
    if found is None or ("@" in (found["host"] or "") and not found["sip"]):
        return ""
    digits = re.sub("[^0-9]", "", found["number"])
    if _WITHHELD.fullmatch(digits):
        return ""
    return f"+{digits}" if "+" in found["number"] and digits else digits


def digits_of(text: str) -> str:
    """Return the digits of the phone number that a text is, without its extension; empty if it is none."""
    return _number_in(text).removeprefix("+")


def number_of(text: str, country: str) -> str | None:
    """Return a complete phone number as digits with its country code; None if it is not one.

    ``country``: that of a number without a country code, in two letters.
    """
    import phonenumbers  # noqa: PLC0415  (its tables are large; only searches need them)

    try:
        parsed = phonenumbers.parse(_number_in(text), country)
    except phonenumbers.NumberParseException:
        return None
    return phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)[1:]


def same_number(one: str, other: str, country: str) -> bool:
    """Tell whether two texts are the same phone number. Incomplete numbers are compared by their digits."""
    digits = digits_of(one)
    return bool(digits) and (number_of(one, country) or digits) == (number_of(other, country) or digits_of(other))

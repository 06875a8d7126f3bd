"""Phone numbers: their digits, and which are the same."""

import pytest

from callkeeper.calls.phone_number import digits_of, same_number

DIGITS = {
    "+1 (202) 555-0147": "12025550147",
    "202.555.0147": "2025550147",
    "0147": "0147",
    "+12025550147 x12": "12025550147",
    "2025550147,12": "2025550147",
    "202-555-0147 ext. 12": "2025550147",
    "tel:+12025550147;ext=12": "12025550147",
    "+12025550147;phone-context=+1": "12025550147",
    "sip:+12025550147@10.20.30.40:5060": "12025550147",
    "<SIPS:2025550147;ext=12@gw1.example.test;user=phone>": "2025550147",
    "sip:anonymous@10.20.30.40:5060": "",
    "sip:10.20.30.40:5060": "",
    "alice2@19.0.0.1": "",
    "2025550147@19.0.0.1": "",
    "020\u0661": "",
    "1-800-FLOWERS": "",
    "withheld": "",
    "+266696687": "",
    "+17378742833": "",
    "+44266696687": "",
    "0086282452253": "",
    "12562533": "",
    "": "",
}


@pytest.mark.parametrize(("text", "digits"), DIGITS.items(), ids=DIGITS)
def test_digits_are_those_of_the_number_alone(text: str, digits: str) -> None:
    """Neither an extension nor a gateway's address is part of it. A name or a withheld number is none."""
    assert digits_of(text) == digits


def test_two_texts_without_a_number_are_not_the_same_number() -> None:
    """Two callers who withhold their number have nothing in common."""
    assert not same_number("sip:anonymous@10.20.30.40", "sip:anonymous@10.20.30.40", "US")
    assert same_number("sip:+12025550147@10.20.30.40", "(202) 555-0147 x3", "US")


def test_numbers_are_compared_in_any_notation() -> None:
    """The configured country fills in what is not typed."""
    assert same_number("020 7946 0958", "+44 20 7946 0958", "GB")
    assert not same_number("020 7946 0958", "+44 20 7946 0958", "US")

"""Lists of persons and phone numbers, kept in files beside the rules. Facts and trails hold the names of lists only."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate

from callkeeper.calls.phone_number import digits_of


def digits_and_stars(phone_number: str) -> str:
    """Return the digits of a phone number or a pattern, and its wildcards."""
    return "".join(one for one in phone_number if one == "*" or (one.isascii() and one.isdigit()))


@dataclass(frozen=True, slots=True)
class Numbers:
    """Phone numbers and patterns of them. ``*`` matches any digits; everything else but digits is left out."""

    whole: frozenset[str]
    patterns: re.Pattern[str] | None

    @classmethod
    def of(cls, entries: Iterable[str]) -> "Numbers":
        """Read numbers and patterns as people write them: ``+1 900 555 0100``, ``+1900*``."""
        digits = {digits_and_stars(entry) for entry in entries}
        patterns = sorted(entry for entry in digits if "*" in entry)
        return cls(frozenset(digits), re.compile("|".join(map(translate, patterns))) if patterns else None)

    def hold(self, phone_number: str) -> bool:
        """Tell whether a number is among them. What is no number never is."""
        digits = digits_of(phone_number)
        if not digits:
            return False
        return digits in self.whole or (self.patterns is not None and self.patterns.match(digits) is not None)


@dataclass(frozen=True, slots=True)
class NamedLists:
    """The lists that rules ask about, by name. An inline pattern of numbers is a list with the pattern as its name."""

    persons: Mapping[str, frozenset[str]] = field(default_factory=dict)
    numbers: Mapping[str, Numbers] = field(default_factory=dict)

    def of_person(self, person_id: str | None) -> tuple[str, ...]:
        """Return the names of the lists that hold a member."""
        return tuple(name for name, entries in self.persons.items() if person_id in entries)

    def of_number(self, phone_number: str | None) -> tuple[str, ...]:
        """Return the names of the lists and the patterns that a phone number is in."""
        return tuple(name for name, entries in self.numbers.items() if entries.hold(phone_number or ""))


NO_LISTS = NamedLists()

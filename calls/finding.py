"""What an operator types to find calls, and which calls it means. Pure.

One line holds any number of words; a call has to match every one of them. What a word can be is decided by its looks, and
one that can be several things matches as any of them: ``4711`` are digits of a phone number, or the beginning of an id.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

import phonenumbers

from calls.record import Call

FEWEST_DIGITS: Final = 3
"""Fewer digits say nothing of a number."""

FEWEST_LETTERS: Final = 4
"""From so many letters on a word is taken as the beginning of an id."""

AROUND: Final = timedelta(minutes=5)

_COMPARED: Final = 6
"""Two notations of one number end alike by so many digits: what does not is not parsed."""

LONGEST: Final = 256
"""Characters that are read of a query."""

_TIME: Final = re.compile(r"(?:around |about |at )?(?<!\d)([01]?\d|2[0-3]):([0-5]\d)(?::[0-5]\d)?(?!\d)", re.IGNORECASE)
_DATE: Final = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_PHONE: Final = re.compile(r"\+?\(?\d[\d ().\-/]*\d")


def number_of(text: str, country: str) -> str | None:
    """Return a whole phone number as digits with its country's code; None if it is none.

    Args:
        text: In any notation.
        country: Two letters: where a number without a country's code belongs.
    """
    try:
        parsed = phonenumbers.parse(text, country)
    except phonenumbers.NumberParseException:
        return None
    return phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)[1:]


def same_number(one: str, other: str, country: str) -> bool:
    """Tell whether two notations stand for one number; one that is none is compared by its digits."""
    return _canonical(one, country) == _canonical(other, country)


def _canonical(text: str, country: str) -> str:
    return number_of(text, country) or digits_of(text)


def digits_of(text: str) -> str:
    """Return the digits of a text."""
    return "".join(letter for letter in text if letter.isascii() and letter.isdigit())


@dataclass(frozen=True, slots=True)
class CallQuery:
    """What is looked for.

    ``words`` are compared with names, ids, institutions and states; ``numbers`` with phone numbers, whole or their end, and
    with ids; ``around`` is an instant, or ``at`` a time of any day in ``zone``. ``id_prefix``
    begins the voice id or the alternate id.
    """

    words: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    around: datetime | None = None
    at: time | None = None
    zone: tzinfo | None = None
    country: str = "US"
    id_prefix: str = ""

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is looked for."""
        return not (self.words or self.numbers or self.around or self.at or self.id_prefix)

    def matches(self, call: Call, *, name: str = "", state: str = "") -> bool:
        """Tell whether a call is meant.

        Args:
            call: The call.
            name: Its institution's.
            state: The words by which its state is shown.
        """
        return (
            all(self._is_number(call, number) or _is_id(call, number) for number in self.numbers)
            and self._is_time(call)
            and all(_is_word(call, word, name, state) for word in self.words)
            and any((each or "").startswith(self.id_prefix) for each in (call.voice_id, call.alternate_id))
        )

    def _is_number(self, call: Call, typed: str) -> bool:
        known, digits = call.phone_number or "", digits_of(typed)
        if not known or len(digits) < FEWEST_DIGITS:
            return False
        is_end = digits_of(known).endswith(digits)
        return is_end or (
            digits_of(known)[-_COMPARED:] == digits[-_COMPARED:] and same_number(known, typed, self.country)
        )

    def _is_time(self, call: Call) -> bool:
        if self.around is None and self.at is None:
            return True
        began = call.started_at or call.first_seen_at or call.hinted_at
        if began is None:
            return False
        if self.around is not None:
            return abs(began - self.around) <= AROUND
        assert self.at is not None  # noqa: S101  (one of the two is there)
        local = began.astimezone(self.zone)
        typed = datetime.combine(local.date(), self.at, local.tzinfo)
        day = timedelta(days=1)
        return min(abs(local - each) for each in (typed, typed - day, typed + day)) <= AROUND


def _is_word(call: Call, word: str, name: str, state: str) -> bool:
    """Tell whether a word is in the institution's name or key, a person's name, or the state, or begins an id."""
    people = " ".join(candidate.name for candidate in call.candidates)
    return any(word in text.casefold() for text in (name, call.institution_key, people, state)) or _is_id(call, word)


def _is_id(call: Call, word: str) -> bool:
    ids = (call.voice_id, call.alternate_id, call.person_id, *(candidate.person_id for candidate in call.candidates))
    known = [each.casefold() for each in ids if each]
    return word in known or (len(word) >= FEWEST_LETTERS and any(each.startswith(word) for each in known))


def parse_query(text: str, *, country: str, zone: tzinfo | None) -> CallQuery:
    """Read what was typed.

    Args:
        text: Words, a number in any notation, ids, ``10:40`` or ``2026-11-22 10:40``.
        country: Of numbers without a country's code.
        zone: Of the times that are typed.
    """
    text = text[:LONGEST]
    around, at, text = _instant(text, zone)
    numbers: list[str] = []

    def take(found: re.Match[str]) -> str:
        begin, end = found.span()
        is_alone = (begin == 0 or text[begin - 1].isspace()) and (end == len(text) or text[end].isspace())
        if not is_alone:
            return found[0]
        numbers.append(found[0].strip())
        return " "

    rest = _PHONE.sub(take, text)
    return CallQuery(tuple(word.casefold() for word in rest.split()), tuple(numbers), around, at, zone, country)


def _instant(text: str, zone: tzinfo | None) -> tuple[datetime | None, time | None, str]:
    """Take a time of day, and a date beside it, out of a query."""
    typed, day = _TIME.search(text), _DATE.search(text)
    if typed is None:
        return None, None, text
    at = time(int(typed[1]), int(typed[2]))
    if day is None:
        return None, at, text.replace(typed[0], " ")
    try:
        on = date(int(day[1]), int(day[2]), int(day[3]))
    except ValueError:
        return None, at, text.replace(typed[0], " ")
    rest = text.replace(day[0], " ").replace(typed[0], " ")
    return datetime.combine(on, at, zone), None, rest

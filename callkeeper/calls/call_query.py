"""Parses what an operator types to find calls, and tells which calls match. Pure functions.

A query holds any number of words, and a call must match all of them. The form of a word decides what it may be. If it
may be several things, any of them counts: ``4711`` may be the end of a phone number or the beginning of an id.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

from callkeeper.calls.record import Call

FEWEST_DIGITS: Final = 3
"""Fewer digits do not select phone numbers."""

FEWEST_LETTERS: Final = 4
"""A word of at least this many letters may be the beginning of an id."""

YEARS: Final = range(1970, 9999)
"""Years of which an instant can be compared in any time zone."""

AROUND: Final = timedelta(minutes=5)

COMPARED: Final = 6
"""Two notations of one number end in the same digits, this many. Otherwise parsing is skipped."""

LONGEST: Final = 256
"""How many characters of a query are read."""

_TIME: Final = re.compile(r"(?:around |about |at )?(?<!\d)([01]?\d|2[0-3]):([0-5]\d)(?::[0-5]\d)?(?!\d)", re.IGNORECASE)
_DATE: Final = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_PHONE: Final = re.compile(r"\+?\(?\d[\d ().\-/]*\d")


TERMS: Final = ("outcome", "status", "person", "operator", "rule", "digest")
"""What the archive finds calls by, beside numbers, names, ids and times: ``rule:"new device"``, ``operator:agent-7``."""

_TERM: Final = re.compile(rf'(?<!\S)({"|".join(TERMS)}):(?:"([^"]+)"|(\S+))', re.IGNORECASE)


def number_of(text: str, country: str) -> str | None:
    """Return a complete phone number as digits with its country code; None if it is not one.

    Args:
        text: In any notation.
        country: Two letters: the country of a number without a country code.
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
    """Return the digits of a text."""
    return "".join(letter for letter in text if letter.isascii() and letter.isdigit())


@dataclass(frozen=True, slots=True)
class CallQuery:
    """What to look for.

    ``words`` match names, ids, institutions and states. ``numbers`` match phone numbers, whole or their end, and ids.
    ``around`` is an instant, or ``at`` a time of any day in ``zone``. ``id_prefix`` begins the voice id or the
    alternate id. ``since``: calls that began then or later. ``institution_key``: calls of that institution.
    ``terms``: kinds and values of `TERMS`, which only the archive knows.
    """

    words: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()
    around: datetime | None = None
    at: time | None = None
    zone: tzinfo | None = None
    country: str = "US"
    id_prefix: str = ""
    since: datetime | None = None
    institution_key: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == CallQuery(zone=self.zone, country=self.country)

    def matches(self, call: Call, *, name: str = "", state: str = "") -> bool:
        """Tell whether a call matches, apart from ``terms``: the archive tests them.

        Args:
            call: The call.
            name: The name of its institution.
            state: The text that its state is shown as.
        """
        return (
            self.institution_key in {None, call.institution_key}
            and self._is_recent(call)
            and all(self._is_number(call, number) or _is_id(call, number) for number in self.numbers)
            and self._is_time(call)
            and all(_is_word(call, word, name, state) for word in self.words)
            and any((each or "").startswith(self.id_prefix) for each in (call.voice_id, call.names.alternate_id))
        )

    def _is_number(self, call: Call, typed: str) -> bool:
        known, digits = call.names.phone_number or "", digits_of(typed)
        if not known or len(digits) < FEWEST_DIGITS:
            return False
        is_end = digits_of(known).endswith(digits)
        return is_end or (
            digits_of(known)[-COMPARED:] == digits[-COMPARED:] and same_number(known, typed, self.country)
        )

    def _is_recent(self, call: Call) -> bool:
        began = call.life.began_at
        return self.since is None or (began is not None and began >= self.since)

    def _is_time(self, call: Call) -> bool:
        if self.around is None and self.at is None:
            return True
        began = call.life.began_at
        if began is None:
            return False
        if self.around is not None:
            return abs(began - self.around) <= AROUND
        assert self.at is not None  # noqa: S101  (one of the two is set)
        local = began.astimezone(self.zone)
        typed = datetime.combine(local.date(), self.at, local.tzinfo)
        day = timedelta(days=1)
        return min(abs(local - each) for each in (typed, typed - day, typed + day)) <= AROUND


def _is_word(call: Call, word: str, name: str, state: str) -> bool:
    """Tell whether a word is part of the institution's name or key, a person's name or the state, or begins an id."""
    people = " ".join(candidate.name for candidate in call.seen.candidates)
    return any(word in text.casefold() for text in (name, call.institution_key, people, state)) or _is_id(call, word)


def _is_id(call: Call, word: str) -> bool:
    ids = (
        call.voice_id,
        call.names.alternate_id,
        call.seen.person_id,
        *(candidate.person_id for candidate in call.seen.candidates),
    )
    known = [each.casefold() for each in ids if each]
    return word in known or (len(word) >= FEWEST_LETTERS and any(each.startswith(word) for each in known))


def parse_query(text: str, *, country: str, zone: tzinfo | None) -> CallQuery:
    """Parse a query.

    Args:
        text: Words, a number in any notation, ids, ``10:40`` or ``2026-11-22 10:40``.
        country: The country of numbers without a country code.
        zone: The time zone of times.
    """
    text = text[:LONGEST]
    terms = tuple(_term(kind.lower(), whole or word) for kind, whole, word in _TERM.findall(text))
    text = _TERM.sub(" ", text)
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
    words = tuple(word.casefold() for word in rest.split())
    return CallQuery(words, tuple(numbers), terms, around, at, zone, country)


def _term(kind: str, value: str) -> tuple[str, str]:
    return kind, value.casefold() if kind in {"outcome", "status", "person"} else value


def _instant(text: str, zone: tzinfo | None) -> tuple[datetime | None, time | None, str]:
    """Take a time of day, and a date if there is one, out of a query."""
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
    if on.year not in YEARS:
        return None, at, text.replace(typed[0], " ")
    rest = text.replace(day[0], " ").replace(typed[0], " ")
    return datetime.combine(on, at, zone), None, rest

"""Parses what an operator types to find calls, and tells which calls match. Pure functions.

A query holds any number of words, and a call must match all of them. The form of a word decides what it may be. If it
may be several things, any of them counts: ``4711`` may be the end of a phone number or the beginning of an id.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

from callkeeper.calls.phone_number import COMPARED, digits_of, same_number
from callkeeper.calls.record import Call, Phase, Reason
from callkeeper.calls.trail import Entry

FEWEST_DIGITS: Final = 3
"""Fewer digits do not select phone numbers."""

FEWEST_LETTERS: Final = 4
"""A word of at least this many letters may be the beginning of an id."""

YEARS: Final = range(1970, 9999)
"""Years of which an instant can be compared in any time zone."""

AROUND: Final = timedelta(minutes=5)

LONGEST: Final = 256
"""How many characters of a query are read."""

_TIME: Final = re.compile(r"(?:around |about |at )?(?<!\d)([01]?\d|2[0-3]):([0-5]\d)(?::[0-5]\d)?(?!\d)", re.IGNORECASE)
_DATE: Final = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_PHONE: Final = re.compile(r"\+?\(?\d[\d ().\-/]*\d")


TERMS: Final = ("outcome", "status", "person", "operator", "rule", "digest")
"""What calls are found by, beside numbers, names, ids and times: ``rule:"new device"``, ``operator:agent-7``."""

_IN_TRAIL: Final = frozenset({"person", "operator", "rule", "digest"})
"""Terms that a call's record does not tell, or not wholly: its trail does."""

OPEN: Final = "open"
"""A state that every call has that is not settled."""

SETTLED: Final = "settled"
NEEDS_PERSON: Final = "needs-person"
"""A state that a call has beside others while it waits for a person."""

FILTERS: Final = ("state", "institution", "outcome", "rule", "policy", "operator", "since", "until")
"""The filters of a list of calls, as addresses and options name them. None of them is about a member."""

_TERM: Final = re.compile(rf'(?<!\S)({"|".join(TERMS)}):(?:"([^"]+)"|(\S+))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CallQuery:
    """What to look for.

    ``words`` match names, ids, institutions and states. ``numbers`` match phone numbers, whole or their end, and ids.
    ``around`` is an instant, or ``at`` a time of any day in ``zone``. ``id_prefix`` begins the voice id or the
    alternate id. ``since``: calls that began then or later; ``until``: before then. ``institution_key``: calls of that
    institution. ``state``: the state that is shown, or `OPEN`, `SETTLED`, `NEEDS_PERSON`. ``policy``: applied now, or
    before. ``terms``: kinds and values of `TERMS`.
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
    until: datetime | None = None
    institution_key: str | None = None
    state: str = ""
    policy: str = ""

    @property
    def needs_trail(self) -> bool:
        """Tell whether calls are found by what only their trails tell."""
        return any(kind in _IN_TRAIL for kind, _ in self.terms)

    @property
    def is_empty(self) -> bool:
        return self == CallQuery(zone=self.zone, country=self.country)

    def matches(self, call: Call, *, name: str = "", state: str = "", states: Collection[str] = ()) -> bool:
        """Tell whether a call matches, apart from ``terms``; see ``has_terms``.

        ``name`` is that of its institution, ``state`` the text that its state is shown as, and ``states`` the names of
        that and of what else it can be filtered by.
        """
        return (
            self.institution_key in {None, call.institution_key}
            and (not self.state or self.state in states)
            and self._is_within(call)
            and self._has_policy(call)
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

    def has_terms(self, call: Call, trail: Sequence[Entry] = ()) -> bool:
        """Tell whether a call has all ``terms``. The trail is read only if the query needs it."""
        return not self.terms or set(self.terms) <= set(search_terms(call, trail))

    def _is_within(self, call: Call) -> bool:
        if self.since is None and self.until is None:
            return True
        began = call.life.began_at
        if began is None:
            return False
        return (self.since is None or began >= self.since) and (self.until is None or began < self.until)

    def _has_policy(self, call: Call) -> bool:
        if not self.policy:
            return True
        wanted, now = self.policy.casefold(), call.seen.reading.policies if call.seen.reading else ()
        return any(name.casefold() == wanted for name in (*now, *call.seen.history.policies))

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


def members_of(call: Call, trail: Iterable[Entry]) -> set[str]:
    """Return the members whom a call names: candidates, whoever stood on it, and whom people and effects named."""
    said, ledger, trail = call.statements, call.ledger, tuple(trail)
    words = (said.identity, said.shown_identity, said.distrusted, said.assign_wish)
    named = (call.seen, *call.seen.candidates, *words, ledger.assign, ledger.enroll, ledger.reject, *trail)
    stood = {one.member for one in (said.distrusted, *trail) if one is not None and one.member}
    return stood | {one.person_id for one in named if one is not None and one.person_id}


def spellings_of(person_id: str, members: Iterable[str]) -> set[str]:
    """Return which of some ids are a member's, in any capitals, as searches and legal holds compare them."""
    return {one for one in members if one.casefold() == person_id.casefold()}


def search_terms(call: Call, trail: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """Yield a call's search terms, without those of personal values."""
    yield "outcome", str(call.life.reason or call.life.phase)
    if call.seen.reading is not None and call.seen.reading.status:
        yield "status", call.seen.reading.status.casefold()
    for person_id in members_of(call, trail):
        yield "person", person_id.casefold()
    for line in trail:
        if line.operator and line.what == "said":
            yield "operator", line.operator
        if line.what == "decided" and line.rule:
            yield "rule", line.rule
        if line.rules:
            yield "digest", line.rules


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

    Words, a number in any notation, ids, ``10:40`` or ``2026-11-22 10:40`` in ``zone``. ``country`` is that of numbers
    without a country code.
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


class FilterWrong(ValueError):
    """A filter or a typed term has a value that it cannot have.

    ``name`` is the filter, or ``q`` for what was typed. The message says what it may be.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(problem)
        self.name = name


def filtered(
    query: CallQuery, filters: Mapping[str, str], *, state_named: Callable[[str], str], now: datetime
) -> CallQuery:
    """Return a query with the `FILTERS` of an address or a command added; empty ones count as not given.

    ``state_named`` returns the state of a typed word, or raises FilterWrong. Spans such as ``24h`` count back from ``now``.

    Raises:
        FilterWrong: A value is none of those that its filter or its term can have.
    """
    given = {name: text for name in FILTERS if (text := filters.get(name, "").strip())}
    if given.get("outcome") not in {None, *Reason}:
        raise FilterWrong("outcome", f"must be one of {', '.join(Reason)}")
    for kind, value in query.terms:
        if kind == "outcome" and value not in {*Reason, *Phase}:
            raise FilterWrong("q", f"outcome:{value}: an outcome must be one of {', '.join([*Reason, *Phase])}")
    terms = tuple((kind, given[kind]) for kind in ("outcome", "rule", "operator") if kind in given)
    return replace(
        query,
        terms=(*query.terms, *terms),
        since=_instant_of("since", given, now) or query.since,
        until=_instant_of("until", given, now) or query.until,
        institution_key=given.get("institution") or query.institution_key,
        state=state_named(given["state"]) if "state" in given else query.state,
        policy=given.get("policy") or query.policy,
    )


_SPAN: Final = re.compile(r"(\d{1,5})([mhd])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}


def parse_span(text: str) -> timedelta | None:
    """Read a length of time such as ``30m``, ``24h`` or ``7d``; None if it is none."""
    span = _SPAN.fullmatch(text)
    return timedelta(**{_UNITS[span[2]]: int(span[1])}) if span else None


def _instant_of(name: str, given: Mapping[str, str], now: datetime) -> datetime | None:
    """Return the instant that a filter names: ``24h`` before now, or a date with or without a time, UTC by default."""
    text = given.get(name)
    if text is None:
        return None
    if span := parse_span(text):
        return now - span
    try:
        at = datetime.fromisoformat(text)
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise FilterWrong(
            name, "must be a time such as 2026-11-22T10:40 (UTC), or a span such as 30m, 24h, 7d"
        ) from None
    if at.year not in YEARS:
        raise FilterWrong(name, "must be a year from 1970 on")
    return at


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

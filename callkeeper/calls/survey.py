"""The survey: what traffic says of each assumption about the service. Pure functions of what was seen.

``Survey.parse`` reads what `add_figures.lua` keeps. ``rows_of`` judges each assumption: it holds, it is contradicted, or
nothing was seen yet. ``contradictions`` are what nobody has acknowledged: an incident, once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from callkeeper.calls.assumptions import Assumption, OtherAnswer, SeenBy, assumptions
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.quantity import quantity
from callkeeper.service.open_questions import USUAL

KNOWN_FIELD = "known|"
"""The beginning of the fields that hold since when people know of the contradictions of an institution, or of all."""


MOST_PLACES: Final = 8
"""How many institutions are kept of each answer. An answer is about the service, which is one for all of them: those that
follow are counted, and are not told of by themselves. Three hundred would stop Redis for 34 ms a second, and pushes may
name any number."""


class Sight(msgspec.Struct, frozen=True):
    """How one answer was seen.

    ``at`` are institutions where it was seen, with the first time of each; no more than `MOST_PLACES` are kept.
    """

    n: int
    first: float
    last: float
    shape: str = ""
    at: dict[str, float] = {}

    @property
    def times(self) -> str:
        """Return how often it was seen, in words."""
        return quantity(self.n, "time")

    def where(self, may_see: Callable[[str], bool] = lambda _: True) -> str:
        """Return where it was seen, to follow how often; of the institutions only those that may be seen."""
        names = ", ".join(key for key in sorted(self.at) if may_see(key))
        others = ", and perhaps at others" if len(self.at) >= MOST_PLACES else ""
        return f"{f' at {names}' if names else ''}{others}"

    @property
    def first_at(self) -> datetime:
        return instant(self.first)

    @property
    def last_at(self) -> datetime:
        return instant(self.last)


_SIGHT = msgspec.json.Decoder(Sight)


@dataclass(frozen=True, slots=True)
class Survey:
    """What was seen, by assumption and answer, and since when people know of contradictions, by institution."""

    seen: Mapping[str, Mapping[str, Sight]] = field(default_factory=dict)
    known_ms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, stored: Mapping[bytes, bytes]) -> "Survey":
        """Read what is stored. What another release wrote in another form is left out."""
        seen: dict[str, dict[str, Sight]] = {}
        known_ms: dict[str, float] = {}
        for name, value in stored.items():
            text = name.decode(errors="replace")
            try:
                if text.startswith(KNOWN_FIELD):
                    known_ms[text.removeprefix(KNOWN_FIELD)] = float(value)
                    continue
                sight = _SIGHT.decode(value)
            except (msgspec.MsgspecError, ValueError):
                continue
            assumption, _, answer = text.partition("|")
            seen.setdefault(assumption, {})[answer] = sight
        return cls(seen, known_ms)

    def named(self) -> list[str]:
        """Return the names of the sandbox's variants that behave as the service was seen to behave."""
        return sorted(answer.name for one in assumptions().values() for answer, _ in self.others(one) if answer.variant)

    def others(self, one: Assumption) -> list[tuple[OtherAnswer, Sight]]:
        """Return the answers that count and are not the usual one, in the order of the list."""
        sights = self.seen.get(one.id, {})
        counted = []
        for answer in one.answers:
            sight = sights.get(answer.name)
            is_hidden = (answer.only and USUAL in sights) or any(name in sights for name in answer.unless)
            if sight is not None and sight.n >= answer.least and not is_hidden:
                counted.append((answer, sight))
        return counted

    def usual(self, one: Assumption) -> Sight | None:
        """Return how the usual answer was seen."""
        return self.seen.get(one.id, {}).get(USUAL)


def exported(survey: Survey) -> str:
    """Return a file of variants for ``callkeeper sandbox --like``. It holds names of our own lists only."""
    usual = sorted(one.id for one in assumptions().values() if survey.usual(one) is not None and not survey.others(one))
    lines = [
        "# Written by callkeeper service survey. No data about people.",
        "format = 1",
        "",
        "[variants]",
        f"seen = {_listed(survey.named())}",
        f"usual = {_listed(usual)}",
        "",
    ]
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return "[]" if not names else "[\n" + "".join(f'  "{name}",\n' for name in names) + "]"


class SurveyVerdict(StrEnum):
    """What traffic says of an assumption."""

    HOLDS = "holds"
    CONTRADICTED = "contradicted"
    NOT_SEEN = "not yet seen"
    CANNOT_BE_SEEN = "cannot be seen"


VERDICTS = (SurveyVerdict.CONTRADICTED, SurveyVerdict.HOLDS, SurveyVerdict.NOT_SEEN, SurveyVerdict.CANNOT_BE_SEEN)
"""The verdicts in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class SurveyRow:
    """One assumption, what was seen of it, and the verdict."""

    assumption: Assumption
    verdict: SurveyVerdict
    usual: Sight | None
    others: Sequence[tuple[OtherAnswer, Sight]]

    @property
    def id(self) -> str:
        return self.assumption.id

    @property
    def state(self) -> str:
        """Return the verdict for a certificate: ``holds``, ``contradicted`` or ``not_seen``."""
        known = self.verdict in {SurveyVerdict.HOLDS, SurveyVerdict.CONTRADICTED}
        return self.verdict.value if known else "not_seen"

    @property
    def text(self) -> str:
        """Return what the service does instead; the assumption, if nothing contradicts it."""
        return "; ".join(answer.words for answer, _ in self.contradicting) or self.assumption.text

    @property
    def contradicting(self) -> list[tuple[OtherAnswer, Sight]]:
        return [(answer, sight) for answer, sight in self.others if not answer.holds]

    @property
    def hint(self) -> str:
        """Return what would show it, or why nothing does."""
        one = self.assumption
        match one.seen_by():
            case SeenBy.NOTHING:
                return one.never
            case SeenBy.ASKED:
                return "callkeeper service survey --ask"
            case _:
                return one.shown_by


def rows_of(survey: Survey) -> list[SurveyRow]:
    """Return what was seen of each assumption."""
    return [_row(survey, one) for one in assumptions().values()]


def _row(survey: Survey, one: Assumption) -> SurveyRow:
    usual, others = survey.usual(one), survey.others(one)
    if any(not answer.holds for answer, _ in others):
        verdict = SurveyVerdict.CONTRADICTED
    elif usual is not None or others:
        verdict = SurveyVerdict.HOLDS
    else:
        verdict = SurveyVerdict.CANNOT_BE_SEEN if one.seen_by() is SeenBy.NOTHING else SurveyVerdict.NOT_SEEN
    return SurveyRow(one, verdict, usual, others)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A contradiction of an assumption at one institution, or at none in particular, that nobody knows yet."""

    assumption: Assumption
    answer: OtherAnswer
    sight: Sight
    institution_key: str
    since: datetime


def contradictions(survey: Survey) -> Iterator[Contradiction]:
    """Yield the contradictions that nobody has acknowledged since they were first seen."""
    for one in assumptions().values():
        for answer, sight in survey.others(one):
            for key, first in (sight.at or {"": sight.first}).items() if not answer.holds else ():
                known_ms = max((survey.known_ms[place] for place in {key, ""} if place in survey.known_ms), default=0.0)
                if first > known_ms:
                    yield Contradiction(one, answer, sight, key, instant(first))

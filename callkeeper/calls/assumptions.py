"""What callkeeper assumes of the service where its document is silent: the list of `assumptions.toml`, checked when read.

The list is in one place. The code that relies on an assumption has a mark with its identifier, observers name it with the
answer that they saw, docs/assumptions.md and docs/survey.md are made from it, and the survey shows what was seen.
"""

import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files

import msgspec

from callkeeper.service.open_questions import USUAL


class SeenBy(StrEnum):
    """How an answer of the service is seen."""

    TRAFFIC = "traffic"
    ASKED = "survey --ask"
    NOTHING = "nothing"


class OtherAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer of the service that is not the usual one.

    Attributes:
        name: Its name; that of the sandbox's variant that gives it, if there is one.
        words: What the service does.
        holds: Whether the assumption holds with it.
        least: How often it must be seen before it counts.
        only: Whether it counts only if the usual answer was never seen.
        unless: It does not count if one of these was seen.
        variant: Whether a variant of the sandbox has this name.
        asked: Whether only ``survey --ask`` sees it.
        never: Why nothing shows it.
    """

    name: str
    words: str
    holds: bool = True
    least: int = 1
    only: bool = False
    unless: tuple[str, ...] = ()
    variant: bool = True
    asked: bool = False
    never: str = ""


class Assumption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One assumption.

    Attributes:
        id: Its identifier.
        group: The heading of docs/assumptions.md that it stands under.
        spec: The heading of the service's document.
        where: The modules that have its mark.
        text: What is assumed.
        test: The test of what callkeeper does.
        otherwise: What happens if it is wrong.
        setting: What answers it, if anything does.
        shown_by: What has to happen for traffic to show it.
        asked: Whether only ``survey --ask`` sees it.
        never: Why nothing shows it.
        answers: The other answers.
    """

    id: str
    group: str
    where: tuple[str, ...]
    text: str
    test: str
    spec: str = ""
    otherwise: str = ""
    setting: str = ""
    shown_by: str = "calls"
    asked: bool = False
    never: str = ""
    answers: tuple[OtherAnswer, ...] = ()

    def seen_by(self, answer: OtherAnswer | None = None) -> SeenBy:
        """Return how the assumption, or one answer, is seen."""
        if self.never or (answer is not None and answer.never):
            return SeenBy.NOTHING
        is_asked = self.asked or (answer is not None and answer.asked)
        return SeenBy.ASKED if is_asked else SeenBy.TRAFFIC

    def answer(self, name: str) -> OtherAnswer | None:
        """Return an answer by its name; None for the usual one and for one of another release."""
        return next((each for each in self.answers if each.name == name), None)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    assumption: tuple[Assumption, ...]


@cache
def assumptions() -> Mapping[str, Assumption]:
    """Return every assumption by its identifier, in the order of the document."""
    text = (files("callkeeper.calls") / "assumptions.toml").read_text(encoding="utf-8")
    listed = msgspec.convert(tomllib.loads(text), _File).assumption
    return {one.id: one for one in listed}


def variants() -> Mapping[str, tuple[Assumption, OtherAnswer]]:
    """Return the answers that variants of the sandbox give, by their names."""
    return {each.name: (one, each) for one in assumptions().values() for each in one.answers if each.variant}


def is_known(assumption: str, answer: str) -> bool:
    """Tell whether there is such an answer to such an assumption."""
    one = assumptions().get(assumption)
    return one is not None and (answer == USUAL or one.answer(answer) is not None)


def groups() -> Mapping[str, Sequence[Assumption]]:
    """Return the assumptions by their headings."""
    found: dict[str, list[Assumption]] = {}
    for one in assumptions().values():
        found.setdefault(one.group, []).append(one)
    return found

"""What the names of policies say about a caller: the colours that a rules file gives them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache


class Colour(StrEnum):
    """What the name of a policy says about the caller."""

    GREEN = "green"
    RED = "red"
    NEUTRAL = "neutral"
    UNCLASSIFIED = "unclassified"


MANUAL_GREEN = "Green Manual Authentication"
"""The policy that an enroll applies: green because of a person, not because of the voice. Spec: States, row enroll."""

_MANUAL = MANUAL_GREEN.casefold()


def canonical_policy(text: str) -> str:
    """Return a policy's name without outer blanks; ``Green Manual Authentication`` also if a suffix follows.

    Assumed (`policy-colour`): a version or a note behind that name does not make it a result of the voice.
    """
    name = text.strip()
    return MANUAL_GREEN if name.casefold().startswith(_MANUAL) else name


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether a policy's name matches one of the patterns, in capitals or small letters."""
    folded = name.casefold()
    return any(fnmatchcase(folded, pattern.casefold()) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Policies:
    """The colours of policies, by name or pattern (``*`` matches anything).

    Assumed (`policy-colour`): names of green and red policies begin with the colour, as the one name in the Spec does.
    """

    green: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()

    def colour(self, name: str) -> Colour:
        """Classify a policy. Red wins over green. A name that no pattern matches stays unclassified.

        ``Green Manual Authentication`` is always green, whatever the patterns say (Assumed (`enroll-applies-policy`):
        an enroll applies it).
        """
        return _colour(self, name)

    def colours(self, names: Iterable[str]) -> frozenset[Colour]:
        return frozenset([self.colour(name) for name in names])


@lru_cache(maxsize=4096)
def _colour(policies: Policies, name: str) -> Colour:
    """Classify a policy once: patterns are slow, and every answer names the same few policies."""
    if name == MANUAL_GREEN:
        return Colour.GREEN
    for colour, patterns in (
        (Colour.RED, policies.red),
        (Colour.GREEN, policies.green),
        (Colour.NEUTRAL, policies.neutral),
    ):
        if is_named(name, patterns):
            return colour
    return Colour.UNCLASSIFIED

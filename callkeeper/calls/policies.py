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
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return colour
    return Colour.UNCLASSIFIED

"""The provider's policies by colour. A call's policies are known by name only (Spec: Vendor call, last sentence)."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Colour(StrEnum):
    """What a policy's name says about the caller."""

    GREEN = "green"
    RED = "red"
    NEUTRAL = "neutral"
    UNCLASSIFIED = "unclassified"


MANUAL_GREEN = "Green Manual Authentication"
"""The policy that an enroll applies: green by a person's word, not by the voice. Spec: States, row enroll."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The colours of policies, by name or pattern (``*`` stands for anything).

    Assumed: names of green and red policies begin with the colour, as the one name in the Spec does.
    """

    green: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()

    def colour(self, name: str) -> Colour:
        """Classify a policy; red wins over green, and a name that no pattern covers is never guessed.

        ``Green Manual Authentication`` is green by its meaning, whatever the patterns say (Assumed: an enroll applies it).
        """
        if name == MANUAL_GREEN:
            return Colour.GREEN
        for colour, patterns in (
            (Colour.RED, self.red),
            (Colour.GREEN, self.green),
            (Colour.NEUTRAL, self.neutral),
        ):
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                return colour
        return Colour.UNCLASSIFIED

    def colours(self, names: Iterable[str]) -> frozenset[Colour]:
        """Return the colours that a call's policies have."""
        return frozenset(self.colour(name) for name in names)

"""Patterns of policy names, in which ``*`` matches anything: which patterns can one name match at once?"""

from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

MOST_STATES: Final = 4_000
"""How many states are followed while names are classified. More would take seconds."""

ANY_OTHER: Final = "\N{REPLACEMENT CHARACTER}"
"""Represents every letter that occurs in no pattern."""

_Places = frozenset[int]
"""The possible positions in a pattern after reading the beginning of a name. Empty: the name does not match."""


class TooManyNames(Exception):
    """The patterns have more combinations than can be examined."""


def pattern_fault(pattern: str) -> str | None:
    """Return what is wrong with a pattern; None if nothing is."""
    return f"{pattern!r} holds one of ? [ ]" if set(pattern) & set("?[]") else None


def overlap(one: str, other: str) -> bool:
    """Tell whether any name matches both patterns."""
    return any({one, other} <= fits for fits in kinds_of_names((one, other)))


@lru_cache(maxsize=256)
def kinds_of_names(patterns: tuple[str, ...]) -> Mapping[frozenset[str], str]:
    """Classify all possible names by the patterns that they match. Return each class with its shortest name.

    All patterns are followed letter by letter at once, so no class is missed.

    Raises:
        TooManyNames: That would take too long.
    """
    patterns = tuple(sorted(set(patterns)))
    letters = [*sorted(set("".join(patterns)) - {"*"}), ANY_OTHER]
    start = tuple(_after_stars(pattern, {0}) for pattern in patterns)
    seen: set[tuple[_Places, ...]] = set()  # without the start: no name is empty, and a longer one may lead back to it
    ahead = deque([(start, "")])
    kinds: dict[frozenset[str], str] = {}
    while ahead:
        state, name = ahead.popleft()
        if name:
            fits = frozenset(p for p, places in zip(patterns, state, strict=True) if len(p) in places)
            kinds.setdefault(fits, name)
        for letter in letters:
            after = tuple(_read(p, places, letter) for p, places in zip(patterns, state, strict=True))
            if after not in seen:
                seen.add(after)
                ahead.append((after, name + letter))
        if len(seen) > MOST_STATES:
            raise TooManyNames
    return kinds


def _read(pattern: str, places: _Places, letter: str) -> _Places:
    """Return the positions after one more letter."""
    ahead = {n if pattern[n] == "*" else n + 1 for n in places if n < len(pattern) and pattern[n] in {"*", letter}}
    return _after_stars(pattern, ahead)


def _after_stars(pattern: str, places: Iterable[int]) -> _Places:
    """Add the positions after stars, which may match nothing."""
    found = set(places)
    for n in range(len(pattern)):
        if n in found and pattern[n] == "*":
            found.add(n + 1)
    return frozenset(found)

"""Patterns of policy names, in which ``*`` stands for anything: which of them one name can fit at once."""

from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

MOST_STATES: Final = 4_000
"""Of what is followed at once while names are sorted; more than this takes seconds."""

ANY_OTHER: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands in a name for every letter that no pattern has."""

_Places = frozenset[int]
"""Where in a pattern one can be after reading the beginning of a name; none means that the name does not fit."""


class TooManyNames(Exception):
    """The patterns can be combined in more ways than can be looked at."""


def pattern_fault(pattern: str) -> str | None:
    """Say what is wrong with a pattern; None if nothing is."""
    return f"{pattern!r} holds one of ? [ ]" if set(pattern) & set("?[]") else None


def overlap(one: str, other: str) -> bool:
    """Tell whether any name fits both patterns."""
    return any({one, other} <= fits for fits in kinds_of_names((one, other)))


@lru_cache(maxsize=256)
def kinds_of_names(patterns: tuple[str, ...]) -> Mapping[frozenset[str], str]:
    """Sort all names there can be by the patterns that they fit: each kind, and the shortest name of that kind.

    All patterns are followed letter by letter at once, so no kind is missed.

    Raises:
        TooManyNames: That would take too long.
    """
    patterns = tuple(sorted(set(patterns)))
    letters = [*sorted(set("".join(patterns)) - {"*"}), ANY_OTHER]
    start = tuple(_after_stars(pattern, {0}) for pattern in patterns)
    seen: set[tuple[_Places, ...]] = set()  # not yet the beginning: no name is empty, and a longer one may lead there
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
    """Return where one can be after one more letter."""
    ahead = {n if pattern[n] == "*" else n + 1 for n in places if n < len(pattern) and pattern[n] in {"*", letter}}
    return _after_stars(pattern, ahead)


def _after_stars(pattern: str, places: Iterable[int]) -> _Places:
    """Add the places behind stars, which may stand for nothing."""
    found = set(places)
    for n in range(len(pattern)):
        if n in found and pattern[n] == "*":
            found.add(n + 1)
    return frozenset(found)

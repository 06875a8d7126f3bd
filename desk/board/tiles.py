"""The figures of the board: a number, what it means, and how it went in the last hour. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Part:
    """One of several numbers beneath a tile's own: a word and a number."""

    word: str
    number: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure. ``course``: one value a minute, the newest last; ``told``: the course in words, for who cannot see it."""

    title: str
    number: str
    meaning: str
    course: Sequence[float] = ()
    told: str = ""
    parts: Sequence[Part] = field(default_factory=tuple)


def seconds(value: float | None) -> str:
    """Say a measured length of time in few letters."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"

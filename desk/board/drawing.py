"""Small drawings as paths of SVG: the bar of 20 checks, shares, the course of the last hour. Pure.

A path is geometry and no style, so that the page needs no inline style for a width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calls.record import CHECK_LIMIT

CELL: Final = 4
"""Width of one check with the gap after it."""


def cells(first: int, last: int) -> str:
    """Return the path of the checks ``first`` to ``last``, counted from 1."""
    return "".join(f"M{(n - 1) * CELL} 0h3v8h-3z" for n in range(first, min(last, CHECK_LIMIT) + 1))


@dataclass(frozen=True, slots=True)
class Bar:
    """One piece of a bar of shares, in percent of its width."""

    x: float
    width: float


def bars(counts: Sequence[int]) -> list[Bar]:
    """Return the pieces of a bar, side by side."""
    total, x, found = sum(counts) or 1, 0.0, []
    for count in counts:
        width = 100 * count / total
        found.append(Bar(round(x, 2), round(max(width - 0.4, 0.4), 2)))
        x += width
    return found


def line(values: Sequence[float], *, width: float = 120, height: float = 28) -> str:
    """Return the path of a course: the newest value at the right, 0 at the bottom, gaps drawn as 0."""
    if not values:
        return ""
    top = max(*values, 1e-9)
    step = width / max(len(values) - 1, 1)
    points = [f"{n * step:.1f} {height - 1 - (height - 3) * value / top:.1f}" for n, value in enumerate(values)]
    return "M" + "L".join(points)


def area(values: Sequence[float], *, width: float = 120, height: float = 28) -> str:
    """Return the path of the area beneath a course."""
    course = line(values, width=width, height=height)
    return f"{course}L{width:g} {height:g}L0 {height:g}z" if course else ""

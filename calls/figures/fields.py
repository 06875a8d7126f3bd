"""How a figure is named in Redis: ``name|label|label`` for a counter, with ``|bucket`` or ``|sum`` after it for a histogram.

Everything is an integer, so that Redis can add: sums are kept in millionths.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

from calls.figures.catalogue import FIGURES, Figure

SUM: Final = "sum"
_MILLION: Final = 1_000_000


def field_name(name: str, labels: Sequence[str], part: str | None = None) -> str:
    """Return the field of a counter, or of one part of a histogram."""
    parts = [name, *(quote(label, safe=" /:.,+") for label in labels)]
    return "|".join(parts if part is None else [*parts, part])


def parse_field(field: str) -> tuple[Figure, tuple[str, ...], str | None] | None:
    """Return figure, labels and part; None for a field that this version does not know."""
    name, *parts = field.split("|")
    figure = FIGURES.get(name)
    if figure is None or len(parts) != len(figure.labels) + bool(figure.bounds):
        return None
    part = parts.pop() if figure.bounds else None
    return figure, tuple(map(unquote, parts)), part


def scaled(value: float) -> int:
    """Return a sum as stored."""
    return round(value * _MILLION)


def unscaled(stored: int) -> float:
    """Return a stored sum as it was measured."""
    return stored / _MILLION

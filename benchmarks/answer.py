"""The result of a benchmark: tables for a document, and the same figures for a program."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.spread import Spread

Cell = str | int | float | Spread


@dataclass(frozen=True, slots=True)
class Table:
    """Figures with a heading. ``note`` explains them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def as_markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.title, "", _line(self.columns), _line(["---", *("---:" for _ in self.columns[1:])])]
        lines += [_line(map(_told, row)) for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

    def as_document(self) -> dict[str, object]:
        """Return the figures by column, for a program."""
        return {
            "title": self.title,
            "rows": [dict(zip(self.columns, map(_recorded, row), strict=True)) for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a benchmark found, and the promises that did not hold."""

    question: str
    tables: tuple[Table, ...]
    broken: tuple[str, ...] = ()


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _recorded(cell: Cell) -> object:
    return {"median": cell.median, "rounds": cell.values} if isinstance(cell, Spread) else cell


def _told(cell: Cell) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)

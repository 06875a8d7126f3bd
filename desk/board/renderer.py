"""Writes the pieces of the board as markup. The only renderer: pages and the stream are made of them.

A second one in the browser would have to know every state as well. *Measured* in four seconds with 2,000 live calls, 100
changes a second: 27 ms of scripting with 24 lines an institution, 154 ms with 400.

Bars and courses are SVG paths: the content policy forbids style attributes, and a path is geometry, not style.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

import jinja2
from markupsafe import Markup

from calls.record import CHECK_LIMIT
from calls.rules.book import RuleBook
from desk.board.alarms import Alarm
from desk.board.frame import Frame, Group
from desk.board.rows import LiveCall, row_of

FOLDED_AFTER: Final = 24
"""Lines that the board shows of one institution; the others are counted, and a page of their own shows them."""

LISTED: Final = 400
"""Lines that the page of one institution shows."""

STATIC: Final = files("desk.board") / "static"

Order = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class View:
    """What one page shows at one moment: markup by slot, and for each list its slots in order, outer lists first.

    ``marks``: what tells whether a slot's markup has changed, where that is not the markup itself.
    """

    now: datetime
    html: Mapping[str, str]
    order: Order
    marks: Mapping[str, str] = field(default_factory=dict)


class Renderer:
    """Writes pieces, and remembers lines that have not changed."""

    def __init__(self, base: str, book: RuleBook) -> None:
        """Prepare to write.

        Args:
            base: Where the board is mounted, without the last slash.
            book: The rules that the workers go by.
        """
        self.base = base
        self._book = book
        self.static = static_address(base)
        self._environment = _environment(base)
        self._pieces: Any = self._environment.get_template("pieces.html").module
        self._rows: dict[str, tuple[LiveCall, str]] = {}
        self._views: dict[str | None, tuple[Frame, View]] = {}

    def page(self, template: str, **context: Any) -> str:
        """Write a whole page."""
        return self._environment.get_template(template).render(**context)

    def piece(self, name: str, *arguments: Any) -> str:
        """Write one piece, a macro of ``pieces.html``."""
        return str(getattr(self._pieces, name)(*arguments)).strip()

    def view(self, frame: Frame, only: str | None = None) -> View:
        """Write what the board shows, or what the page of one institution shows; once, however many look at it."""
        known = self._views.get(only)
        if known is not None and known[0] is frame:
            return known[1]
        view = self._write(frame, only)
        self._views = {key: pair for key, pair in self._views.items() if pair[0] is frame} | {only: (frame, view)}
        return view

    def _write(self, frame: Frame, only: str | None) -> View:
        html: dict[str, str] = {
            "status": self.piece("status", frame),
            "pauses": self.piece("pauses", frame.context.pauses, frame.known),
            "alarms": self.piece("alarms", _alarms_for(frame.alarms, only), frame.context.now),
            "figures": self.piece("figures", frame.tiles) if only is None else "",
            "settled": self.piece("settled", frame.settled),
        }
        groups = [group for group in frame.groups if only in {None, group.key}]
        order: dict[str, tuple[str, ...]] = {"groups": tuple(group.slot for group in groups)}
        marks: dict[str, str] = {}
        limit = FOLDED_AFTER if only is None else LISTED
        for group in groups:
            calls = group.calls[:limit]
            head = self.piece("group_head", group, len(calls), only is not None)
            lines = {live.slot: self._row(live) for live in calls}
            html[f"{group.slot}-head"] = head
            html[group.slot] = self.piece("group", group, Markup(head))  # noqa: S704  (our own template wrote it)
            marks[group.slot] = "once"  # its head and its lines are slots of their own
            html.update(lines)
            order[f"{group.slot}-rows"] = tuple(lines)
        self._forget(frame)
        return View(frame.context.now, html, order, marks)

    def _row(self, live: LiveCall) -> str:
        known = self._rows.get(live.slot)
        if known is not None and known[0] is live:
            return known[1]
        markup = self.piece("row", row_of(live.call, self._book, live.state))
        self._rows[live.slot] = (live, markup)
        return markup

    def _forget(self, frame: Frame) -> None:
        """Drop the lines of calls that are over, once they are many."""
        if len(self._rows) > 2 * frame.live + 1000:
            alive = {live.slot for group in frame.groups for live in group.calls}
            self._rows = {slot: known for slot, known in self._rows.items() if slot in alive}


def _alarms_for(alarms: Sequence[Alarm], only: str | None) -> list[Alarm]:
    """Return the alarms of a page: an institution's own shows those of others to nobody."""
    return [alarm for alarm in alarms if only is None or alarm.institution_key in {"", only}]


def groups_in(view: View, frame: Frame) -> list[tuple[Group, Markup, list[Markup]]]:
    """Return each group of a view with the markup of its head and of its lines: what a whole page is made of."""
    by_slot = {group.slot: group for group in frame.groups}
    return [
        (
            by_slot[slot],
            Markup(view.html[f"{slot}-head"]),  # noqa: S704  (our own template wrote it)
            [Markup(view.html[line]) for line in view.order[f"{slot}-rows"]],  # noqa: S704
        )
        for slot in view.order["groups"]
    ]


def static_address(base: str) -> Mapping[str, str]:
    """Return the addresses of the board's files; each changes with its content, so that browsers may keep them."""
    return {
        path.name: f"{base}/static/{path.name}?{sha256(path.read_bytes()).hexdigest()[:12]}"
        for path in STATIC.iterdir()
        if path.is_file()
    }


@cache
def _environment(base: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("desk.board"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        base=base,
        drawing={"cells": cells, "bars": bars, "line": line, "area": area},
        limit=CHECK_LIMIT,
        static=static_address(base),
    )
    environment.filters.update(ms=_ms, clock=_clock)
    return environment


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S")


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

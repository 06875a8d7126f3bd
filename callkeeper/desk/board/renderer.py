"""Renders the pieces of the board as markup. Pages and the stream both consist of these pieces.

There is no second renderer in the browser, because it would have to know every state as well. *Measured* in four
seconds with 2,000 live calls and 100 changes a second: 27 ms of scripting with 24 lines an institution, 154 ms with
400.

Bars and courses are SVG paths, because the content policy forbids style attributes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from datetime import datetime
from functools import cache
from hashlib import sha256
from heapq import nlargest
from importlib.resources import files
from typing import Any, Final

import jinja2
from markupsafe import Markup
from redis.exceptions import ResponseError
from starlette.requests import Request
from starlette.responses import HTMLResponse

from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.store.writable import REFUSALS, hindrance, refusal_in
from callkeeper.desk.access.rights import Person
from callkeeper.desk.access.visitor import Visitor, visitor_of
from callkeeper.desk.board.alarms import Alarm, merged
from callkeeper.desk.board.audience import Institutions, frame_for
from callkeeper.desk.board.form_handlers import FormRefused
from callkeeper.desk.board.frame import Frame
from callkeeper.desk.board.groups import Group, precedence
from callkeeper.desk.board.rows import LiveCall, row_of
from callkeeper.desk.signed_tokens import FORM_FIELD

FOLDED_AFTER: Final = 24
"""Lines that the board shows of one institution; the others are counted, and a page of their own shows them."""

LISTED: Final = 400
"""Lines that the page of one institution shows."""

ALARMS_SHOWN: Final = 6
"""How many alarms a page shows; it says where the others are."""

ALARMS_ON_PHONE: Final = 3
"""How many a phone shows, by the rule for ``.alarm`` in ``board.css``."""

DIRECT: Final = 10
"""With up to this many institutions the board shows the calls of each; with more, the calls to look at first."""

FIRST_SHOWN: Final = 12
"""How many calls to look at first the board shows then."""

INSTITUTIONS_SHOWN: Final = 30
"""How many lines of institutions a large installation shows unfolded, unless more have trouble."""

_MEMORISED: Final = 5000
"""How many rendered pieces are kept."""

STATIC: Final = files("callkeeper.desk.board") / "static"

Order = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class View:
    """What one page shows at one moment: markup by slot, and for each list its slots in order, outer lists first.

    ``marks``: what tells whether a slot's markup has changed, where that is not the markup itself. ``said``: what screen
    readers are told when it changes: the open alarms, or the state of a call.
    """

    now: datetime
    html: Mapping[str, str]
    order: Order
    marks: Mapping[str, str] = field(default_factory=dict)
    said: str = ""


class Renderer:
    """Renders pieces, and caches lines that have not changed."""

    def __init__(self, base: str, book: RuleBook, *, sees_people: bool = True) -> None:
        self.base = base
        self.sees_people = sees_people
        self._book = book
        self.static = static_address(base)
        self._environment = _environment(base, sees_people)
        self._pieces: Any = self._environment.get_template("pieces.html").module
        self._written: dict[tuple[str, str], tuple[object, str]] = {}
        self._views: dict[tuple[str | None, Institutions], tuple[Frame, View]] = {}

    def page(self, template: str, **context: Any) -> str:
        return self._environment.get_template(template).render(**context)

    def piece(self, name: str, *arguments: Any) -> str:
        """Write one piece, a macro of ``pieces.html``."""
        return str(getattr(self._pieces, name)(*arguments)).strip()

    def view(self, frame: Frame, only: str | None = None, institutions: Institutions = None) -> View:
        """Render the board, or the page of one institution. Done once, however many people look at it."""
        page = only, institutions
        known = self._views.get(page)
        if known is not None and known[0] is frame:
            return known[1]
        view = self._write(frame_for(frame, institutions), only, links_rules=institutions is None)
        self._views = {key: pair for key, pair in self._views.items() if pair[0] is frame} | {page: (frame, view)}
        return view

    def _write(self, frame: Frame, only: str | None, *, links_rules: bool) -> View:
        html: dict[str, str] = {
            "status": self.piece("status", frame, frame.context.pushes.sample_of(only), links_rules),
            "pauses": self.piece("pauses", frame.context.pauses, frame.known),
        }
        order: dict[str, tuple[str, ...]] = {}
        marks: dict[str, str] = {}
        alarms = self._alarms_for(frame.alarms, only)
        self._write_alarms(frame, alarms, only, html, order)
        if only is None:
            self._write_overview(frame, html, order)
        if only is not None or is_direct(frame):
            self._write_groups(frame, only, html, order, marks)
        else:
            self._write_first(frame, html, order)
        return View(frame.context.now, html, order, marks, _said(alarms))

    def _write_alarms(
        self,
        frame: Frame,
        alarms: Sequence[Alarm],
        only: str | None,
        html: dict[str, str],
        order: dict[str, tuple[str, ...]],
    ) -> None:
        html["alarms-head"] = self.piece("alarms_head", alarms)
        html["alarms-rest"] = self.piece("alarms_rest", alarms, _choices(frame, only), True, only or "")
        said: set[str] = set()
        for alarm in alarms[:ALARMS_SHOWN]:
            html[alarm.slot] = self._once("alarm", alarm.slot, (alarm, alarm.advice in said))
            said.add(alarm.advice)
        order["alarms-list"] = tuple(alarm.slot for alarm in alarms[:ALARMS_SHOWN])

    def _write_overview(self, frame: Frame, html: dict[str, str], order: dict[str, tuple[str, ...]]) -> None:
        tiles = {f"t-{n}": tile for n, tile in enumerate(frame.tiles)}
        html |= {slot: self._once("tile", slot, tile, slot) for slot, tile in tiles.items()}
        order["figures"] = tuple(tiles)
        html["live-head"] = self.piece("live_head", frame)
        rows = frame.institutions
        quiet = [] if is_direct(frame) else [row for row in rows if row.is_quiet]
        awake = rows if is_direct(frame) else [row for row in rows if not row.is_quiet]
        shown = [row for n, row in enumerate(awake) if n < INSTITUTIONS_SHOWN or row.has_trouble]
        others = [row for n, row in enumerate(awake) if n >= INSTITUTIONS_SHOWN and not row.has_trouble]
        html |= {row.slot: self._once("institution", row.slot, row) for row in awake}
        html |= {f"q{row.slot}": self._once("quiet", row.slot, row) for row in quiet}
        html["institutions-head"] = self.piece("institutions_head", rows)
        html["others-head"] = self.piece("others_head", others)
        html["quiet-head"] = self.piece("quiet_head", quiet)
        order["institutions-rows"] = tuple(row.slot for row in shown)
        order["others-rows"] = tuple(row.slot for row in others)
        order["quiet-rows"] = tuple(f"q{row.slot}" for row in quiet)

    def _write_first(self, frame: Frame, html: dict[str, str], order: dict[str, tuple[str, ...]]) -> None:
        """Render the calls to look at first: first those that need a person, then by their state; none is decided."""
        calls = (live for group in frame.groups for live in group.calls if not live.state.is_decided)
        first = nlargest(FIRST_SHOWN, calls, key=lambda live: (live.state.for_person, *precedence(live)))
        names = {group.key: group.name for group in frame.groups}
        for live in first:
            html[live.slot] = self._once("brief", live.slot, live, names[live.call.institution_key])
        order["first-rows"] = tuple(live.slot for live in first)

    def _write_groups(
        self,
        frame: Frame,
        only: str | None,
        html: dict[str, str],
        order: dict[str, tuple[str, ...]],
        marks: dict[str, str],
    ) -> None:
        """Render the calls of each institution that has some, or of the one whose page it is."""
        groups = [group for group in frame.groups if (group.calls if only is None else group.key == only)]
        order["groups"] = tuple(group.slot for group in groups)
        limit = FOLDED_AFTER if only is None else LISTED
        for group in groups:
            calls = group.calls[:limit]
            head = self.piece("group_head", group, len(calls), only is not None)
            lines = {live.slot: self._row(live, is_named=only is not None) for live in calls}
            html[f"{group.slot}-head"] = head
            html[f"{group.slot}-decided-head"] = self.piece("decided_head", group)
            html[group.slot] = self.piece("group", group, Markup(head), only is not None)  # noqa: S704  (our own template wrote it)
            marks[group.slot] = "once"  # its heads and its lines are slots of their own
            html.update(lines)
            order[f"{group.slot}-rows"] = tuple(live.slot for live in calls if not live.state.is_decided)
            order[f"{group.slot}-decided-rows"] = tuple(live.slot for live in calls if live.state.is_decided)

    def _once(self, piece: str, slot: str, value: object, *more: object) -> str:
        """Render a piece, unless it was rendered from an equal value before."""
        known = self._written.get((piece, slot))
        if known is not None and (known[0] is value or known[0] == value):
            return known[1]
        return self._keep(piece, slot, value, self.piece(piece, value, *more))

    def _row(self, live: LiveCall, *, is_named: bool) -> str:
        piece = "named row" if is_named else "row"
        known = self._written.get((piece, live.slot))
        if known is not None and known[0] is live:
            return known[1]
        return self._keep(
            piece, live.slot, live, self.piece("row", row_of(live.call, self._book, live.state), is_named)
        )

    def _keep(self, piece: str, slot: str, value: object, markup: str) -> str:
        if len(self._written) >= _MEMORISED:
            self._written.clear()  # most of them are of calls that are over
        self._written[piece, slot] = (value, markup)
        return markup

    def _alarms_for(self, alarms: Sequence[Alarm], only: str | None) -> list[Alarm]:
        """Return the alarms of a page. The page of an institution leaves out those of others."""
        shown = [alarm for alarm in alarms if only is None or alarm.institution_key in {"", only}]
        return merged(
            shown if self.sees_people else [with_fields(alarm, where=alarm.institution_key) for alarm in shown]
        )


class Renderers:
    """The renderers for people who see members' data and for those who do not; answers requests with pages."""

    def __init__(self, base: str, book: RuleBook, *, now: Callable[[], datetime]) -> None:
        """Prepare to write. ``now`` returns the present, aware UTC; the others are those of `Renderer`."""
        self.base = base
        self._renderers = {sees: Renderer(base, book, sees_people=sees) for sees in (True, False)}
        self._now = now

    def of(self, person: Person | None) -> Renderer:
        """Return the renderer for a person; for None that of pages without data."""
        return self._renderers[person is not None and person.sees_people]

    def page(
        self,
        request: Request,
        template: str,
        status: int = 200,
        *,
        problem: FormRefused | str | None = None,
        page_address: str = "",
        headers: Mapping[str, str] | None = None,
        **context: Any,
    ) -> HTMLResponse:
        """Answer with a page for the visitor. If it shows why a form was refused, that has the status.

        ``page_address`` is the page's own: the browser shows it then, because the form's cannot be opened or reloaded.
        """
        visitor = visitor_of(request)
        status, page_address = (problem.status, page_address) if isinstance(problem, FormRefused) else (status, "")
        renderer = self.of(visitor.person)
        context |= {"visitor": visitor, "problem": str(problem or ""), "page_address": page_address}
        page = renderer.page(template, now=self._now(), **context)
        return HTMLResponse(page, status, headers)

    def denied(self, visitor: Visitor, words: str) -> HTMLResponse:
        """Return the page that says to a visitor why an address is not for them."""
        page = self.of(visitor.person).page("nothing.html", now=self._now(), visitor=visitor, words=words)
        return HTMLResponse(page, 403)

    def away(self, error: Exception) -> HTMLResponse:
        """Return the page that is shown while Redis is unreachable, or refuses. It holds no data, so anybody may see it."""
        refusal = REFUSALS[refusal_in(error)] if isinstance(error, ResponseError) else None
        page = self.of(None).page("away.html", now=self._now(), visitor=None, why=hindrance(error), refusal=refusal)
        return HTMLResponse(page, 503, {"Retry-After": "5"})


def is_direct(frame: Frame) -> bool:
    """Tell whether the board shows the calls of each institution."""
    return len(frame.institutions) <= DIRECT


def _choices(frame: Frame, only: str | None) -> int:
    """Count the calls of a page that wait until a person has chosen the caller."""
    groups = (group for group in frame.groups if only in {None, group.key})
    return sum(live.waits_for_choice for group in groups for live in group.calls)


def groups_in(view: View, frame: Frame) -> list[tuple[Group, Markup, list[Markup], list[Markup]]]:
    """Return each group of a view with the markup of its head and of its lines, for a whole page.

    The lines of decided calls are separate.
    """
    by_slot = {group.slot: group for group in frame.groups}
    return [
        (
            by_slot[slot],
            Markup(view.html[f"{slot}-head"]),  # noqa: S704  (our own template wrote it)
            [Markup(view.html[line]) for line in view.order[f"{slot}-rows"]],  # noqa: S704  (likewise)
            [Markup(view.html[line]) for line in view.order[f"{slot}-decided-rows"]],  # noqa: S704  (likewise)
        )
        for slot in view.order.get("groups", ())
    ]


def sifted(view: View, frame: Frame, text: str) -> View:
    """Return a view with only the institutions whose name, key or state has a text, as the page's script shows them."""
    wanted = text.casefold()
    said = {row.slot: f"{row.name} {row.key} {row.state.word}".casefold() for row in frame.institutions}
    lists = ("institutions-rows", "others-rows", "quiet-rows")
    kept = {name: tuple(slot for slot in view.order[name] if wanted in said[slot.removeprefix("q")]) for name in lists}
    return with_fields(view, order={**view.order, **kept})


def static_address(base: str) -> Mapping[str, str]:
    """Return the addresses of the board's files. Each changes with its content, so browsers can cache it."""
    return {
        path.name: f"{base}/static/{path.name}?{sha256(path.read_bytes()).hexdigest()[:12]}"
        for path in STATIC.iterdir()
        if path.is_file()
    }


@cache
def _environment(base: str, sees_people: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("callkeeper.desk.board"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        base=base,
        sees_people=sees_people,
        field=FORM_FIELD,
        drawing={"cells": cells, "bars": bars, "line": line, "area": area},
        limit=CHECK_LIMIT,
        alarms_shown=ALARMS_SHOWN,
        alarms_on_phone=ALARMS_ON_PHONE,
        static=static_address(base),
    )
    environment.filters.update(ms=_ms, clock=_clock, dated=_dated)
    return environment


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S")


def _dated(at: datetime) -> str:
    """Return an instant as commands print it, with its year."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


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


def line(values: Sequence[float]) -> str:
    """Return the path of a course, 120 by 28: the newest value at the right, 0 at the bottom, gaps drawn as 0."""
    if not values:
        return ""
    top = max(*values, 1e-9)
    step = 120 / max(len(values) - 1, 1)
    points = [f"{n * step:.1f} {27 - 25 * value / top:.1f}" for n, value in enumerate(values)]
    return "M" + "L".join(points)


def area(values: Sequence[float]) -> str:
    """Return the path of the area beneath a course."""
    course = line(values)
    return f"{course}L120 28L0 28z" if course else ""


def _said(alarms: Sequence[Alarm]) -> str:
    """Return the number of open alarms and the first one, for screen readers."""
    open_ones = [alarm for alarm in alarms if not alarm.known]
    n = sum(alarm.calls for alarm in open_ones)
    return f"{n} {'needs' if n == 1 else 'need'} a person: {open_ones[0].title}" if open_ones else ""

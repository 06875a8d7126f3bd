"""Bins, axes and bars of plots over time. Pure: numbers in, positions and words out; the template draws them.

Widths are percentages and heights pixels, so a plot fills its card and its text is never scaled. Hours are those of UTC,
in which they are summed up. In a zone that is half an hour off, bins begin at half past.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import groupby
from math import ceil, floor, log10
from typing import Final

from callkeeper.calls.metrics.hourly import Sums

TOP: Final = 18
"""Pixels above the highest tick, for the value that is pointed at."""

HEIGHT: Final = 96
"""Pixels between the lowest and the highest tick."""

FLOOR: Final = TOP + HEIGHT
_WEEK: Final = timedelta(days=7)
_EDGE: Final = 4
"""How much of the width, in percent, a label needs on each side of its middle."""

INTERVALS: Final = 4
"""How many intervals between ticks there are at most."""


@dataclass(frozen=True, slots=True)
class PlotSpan:
    """A period that plots show. ``hours`` is the length of a bin; ``labelled``: which bins have a label, by local time."""

    title: str
    days: int
    hours: int
    unit: str
    label: str
    labelled: Callable[[datetime, int], bool]


SPANS: Final[Mapping[str, PlotSpan]] = {
    "day": PlotSpan("Day", 1, 1, "an hour", "%H:%M", lambda at, _: at.hour % 3 == 0),
    "week": PlotSpan("Week", 7, 3, "in 3 hours", "%a %-d", lambda at, _: at.hour < 3),
    "month": PlotSpan("Month", 30, 24, "a day", "%-d %b", lambda _, n: n % 4 == 0),
    "quarter": PlotSpan("90 days", 90, 24, "a day", "%-d %b", lambda at, _: at.day in {1, 15}),
}


YEAR: Final = PlotSpan("Year", 364, 168, "a week", "%-d %b", lambda _, n: n % 8 == 0)
"""Weeks of UTC, from the archive."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A part of the period, in local time. ``is_open``: it is not over. ``is_known``: sums were kept in it."""

    begin: datetime
    end: datetime
    sums: Sums
    is_open: bool = False
    is_known: bool = True

    @property
    def words(self) -> str:
        """Return when it was: ``Thu 26 Nov 2026 09:00 to 10:00``, or the day alone."""
        if self.end - self.begin == _WEEK:
            return f"Week of {self.begin:%a %-d %b %Y}"
        if self.begin.hour == self.end.hour == 0 and self.begin.minute == 0:
            return f"{self.begin:%a %-d %b %Y}"
        return f"{self.begin:%a %-d %b %Y %H:%M} to {self.end:%H:%M}"


def period_of(span: PlotSpan, now: datetime, zone: tzinfo, back: int = 0) -> tuple[datetime, datetime]:
    """Return begin and end of a period: the last 24 hours, or whole local days and the current one; or ``back`` before."""
    if span.hours == 1:
        end = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1) - timedelta(days=back)
        return end - timedelta(days=1), end
    midnight = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if span is YEAR:
        midnight += timedelta(days=6 - midnight.weekday())
    end = midnight + timedelta(days=1 - back * span.days)
    return end - timedelta(days=span.days), end  # the same local time on another day, also if its clock was changed


def bins_of(
    span: PlotSpan, by_hour: Mapping[datetime, Sums], now: datetime, zone: tzinfo, since: datetime | None
) -> list[Bin]:
    """Return the bins of hours, or of days for a year, oldest first. ``since``: when the first sum was kept; None: never."""

    def place(pair: tuple[datetime, Sums]) -> object:
        local = pair[0].astimezone(zone)
        if span is YEAR:
            return local.isocalendar()[:2]
        return pair[0] if span.hours == 1 else (local.date(), local.hour // span.hours)

    found, least = [], timedelta(days=1) if span is YEAR else timedelta(hours=1)
    for _, pairs in groupby(sorted(by_hour.items(), key=lambda pair: pair[0]), place):
        hours, sums = list(pairs), Sums()
        for _, hour in hours:
            sums.add(hour)
        begin, end = hours[0][0], hours[-1][0] + least
        found.append(
            Bin(
                begin.astimezone(zone),
                end.astimezone(zone),
                sums,
                is_open=end > now,
                is_known=since is not None and end > since,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class PlotBar:
    """A bar, in percent of the width and in pixels. ``mark`` is where a line across it is drawn, if there is one."""

    x: float
    width: float
    hit_x: float
    hit_width: float
    y: float
    height: float
    words: str
    is_open: bool
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis: at which percent or pixel, and its label. ``is_minor``: there is no room for it on a phone."""

    at: float
    label: str
    is_minor: bool = False
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot. ``words`` describe it for people who do not see it; ``unknown``: percent of the width without records."""

    name: str
    slot: str
    number: str
    meaning: str
    unit: str
    words: str
    bars: Sequence[PlotBar]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    unknown: float = 0.0
    tone: str = "busy"


def nice_step(most: float, *, whole: bool) -> float:
    """Return the distance of ticks: 1, 2 or 5 times a power of ten, so that at most `INTERVALS` reach ``most``."""
    if most <= 0:
        return 1.0
    power = 10.0 ** floor(log10(most / INTERVALS))
    step = next(times * power for times in (1, 2, 5, 10) if times * power * INTERVALS >= most * (1 - 1e-9))
    return max(step, 1.0) if whole else step


def y_ticks(most: float, *, whole: bool) -> tuple[float, list[Tick]]:
    """Return the value at the top of the axis, and its ticks from zero on."""
    step = nice_step(most, whole=whole)
    intervals = max(1, ceil(most / step - 1e-9))
    top = intervals * step
    return top, [Tick(FLOOR - HEIGHT * n / intervals, _plain(n * step)) for n in range(intervals + 1)]


def x_ticks(span: PlotSpan, bins: Sequence[Bin]) -> list[Tick]:
    """Return the labels of the time axis: where a bin begins, or in the middle of a day that is one bin."""
    middle = 0.5 if span.hours >= 24 else 0.0
    labelled = [n for n, each in enumerate(bins) if span.labelled(each.begin, n)]
    at = [round(100 * (n + middle) / len(bins), 3) for n in labelled]
    return [
        Tick(place, bins[n].begin.strftime(span.label), nth % 2 == 1, "start" if place < _EDGE else "middle")
        for nth, (n, place) in enumerate(zip(labelled, at, strict=True))
        if place <= 100 - _EDGE
    ]


def bars_of(
    bins: Sequence[Bin],
    values: Sequence[float | None],
    top: float,
    words: Sequence[str],
    marks: Sequence[float | None] = (),
) -> Iterator[PlotBar]:
    """Yield a bar for each bin of which something is known; one without a value has no height."""
    width = 100 / max(len(bins), 1)
    for n, (each, value) in enumerate(zip(bins, values, strict=True)):
        if each.is_known:
            height = HEIGHT * (value or 0.0) / top
            shown = round(max(height, 1.0) if value else 0.0, 1)
            mark = marks[n] if marks else None
            yield PlotBar(
                round((n + 0.12) * width, 2),
                round(0.76 * width, 2),
                round(n * width, 2),
                round(width, 2),
                round(FLOOR - shown, 1),
                shown,
                f"{each.words}: {words[n]}{' so far' if each.is_open else ''}",
                each.is_open,
                None if mark is None else round(FLOOR - HEIGHT * mark / top, 1),
            )


def unknown_share(bins: Sequence[Bin]) -> float:
    """Return for how much of the period nothing was recorded, in percent: always its oldest part."""
    return round(100 * sum(not each.is_known for each in bins) / max(len(bins), 1), 3)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"

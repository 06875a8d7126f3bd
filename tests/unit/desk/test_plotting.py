"""Plots over time: nice axes from zero, bins in local time, and values that can be read."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.metrics.hourly import SLOTS, Slot, Sums
from callkeeper.desk.board.plots_page import plots_of, seconds
from callkeeper.desk.board.plotting import (
    FLOOR,
    INTERVALS,
    SPANS,
    TOP,
    YEAR,
    Bin,
    bins_of,
    nice_step,
    period_of,
    y_ticks,
)

DENVER = ZoneInfo("America/Denver")
NOW = datetime(2026, 11, 26, 9, 40, tzinfo=UTC)
HOUR = timedelta(hours=1)


def sums(**numbers: int) -> Sums:
    """Return the sums of an hour."""
    found = Sums()
    for name, n in numbers.items():
        found.numbers[Slot[name.upper()]] = n
    return found


def hours(begin: datetime, end: datetime) -> dict[datetime, Sums]:
    """Return an hour with one call for each hour of a period."""
    first = begin.astimezone(UTC)
    n = int((end.astimezone(UTC) - first) / HOUR)
    return {first + HOUR * at: sums(started=1, authenticated=1) for at in range(n)}


def bins(name: str, now: datetime = NOW, zone: tzinfo = UTC, back: int = 0) -> list[Bin]:
    """Return the bins of a period in which one call began in each hour."""
    begin, end = period_of(SPANS[name], now, zone, back)
    return bins_of(SPANS[name], hours(begin, end), now, zone, datetime(2020, 1, 1, tzinfo=UTC))


@given(st.integers(0, 2**24))
def test_axis_of_counts_begins_at_zero_and_covers_everything(most: int) -> None:
    """Ticks are whole numbers, 1, 2 or 5 times a power of ten apart, at most four intervals, none of them superfluous."""
    top, ticks = y_ticks(most, whole=True)
    labels = [int(tick.label.replace(",", "")) for tick in ticks]
    step = labels[1]
    assert labels == [step * n for n in range(len(labels))]
    assert len(ticks) <= INTERVALS + 1
    assert top >= most > top - step or most == 0
    assert re.fullmatch(r"[125]0*", str(step))
    assert (ticks[0].at, ticks[-1].at) == (FLOOR, TOP)


@pytest.mark.parametrize(("most", "step"), [(0, 1), (0.3, 0.1), (3, 1), (4.1, 2), (19, 5), (30, 10), (81, 50)], ids=str)
def test_axis_of_seconds_has_nice_steps(most: float, step: float) -> None:
    """Seconds may have steps below one."""
    assert nice_step(most, whole=False) == pytest.approx(step)


def test_day_is_the_last_24_hours() -> None:
    """A day ends with the current hour, which is open; each hour is a bin of its own."""
    found = bins("day")
    assert (len(found), found[-1].begin, found[-1].is_open, found[-2].is_open) == (
        24,
        NOW.replace(minute=0),
        True,
        False,
    )
    assert found[-1].words == "Thu 26 Nov 2026 09:00 to 10:00"


@pytest.mark.parametrize(("name", "n"), [("week", 56), ("month", 30), ("quarter", 90)])
def test_longer_spans_are_whole_local_days(name: str, n: int) -> None:
    """They begin at local midnight, and their bins are as long as they say."""
    found = bins(name, zone=DENVER)
    assert (len(found), found[0].begin.hour, found[-1].begin.date().isoformat()) == (n, 0, "2026-11-26")
    assert {each.sums[Slot.STARTED] for each in found} <= {SPANS[name].hours, SPANS[name].hours + 1}  # one hour twice


def test_days_on_which_clocks_change_have_all_their_hours() -> None:
    """The day with 25 hours has 25, the one with 23 has 23; the hour that happens twice is two bins of a day."""
    autumn = {each.begin.date().isoformat(): each.sums[Slot.STARTED] for each in bins("month", zone=DENVER)}
    assert (autumn["2026-10-31"], autumn["2026-11-01"]) == (24, 25)
    spring = bins("week", datetime(2027, 3, 15, 3, tzinfo=UTC), DENVER)
    assert sum(each.sums[Slot.STARTED] for each in spring) == 7 * 24 - 1
    twice = bins("day", datetime(2026, 11, 1, 12, tzinfo=UTC), DENVER)
    assert (len(twice), [each.begin.hour for each in twice].count(1)) == (24, 2)


def test_year_is_weeks_of_utc() -> None:
    """52 weeks from Monday to Sunday, the current one last and open; sums are by the day."""
    begin, end = period_of(YEAR, NOW, UTC)
    days = {begin + timedelta(days=n): sums(started=1) for n in range((end - begin).days)}
    found = bins_of(YEAR, days, NOW, UTC, begin)
    assert (len(found), {each.sums[Slot.STARTED] for each in found}) == (52, {7})
    assert (found[-1].words, found[-1].is_open) == ("Week of Mon 23 Nov 2026", True)
    assert period_of(YEAR, NOW, UTC, 1)[1] == begin
    assert [plot.slot for plot in plots_of(YEAR, found)][-1] == "undecided"


def test_earlier_periods_follow_one_another() -> None:
    """The period before ends where this one begins."""
    for name, span in SPANS.items():
        for back in (0, 1):
            this, before = period_of(span, NOW, DENVER, back), period_of(span, NOW, DENVER, back + 1)
            assert before[1].astimezone(UTC) == this[0].astimezone(UTC), name


def test_zone_with_half_an_hour_begins_at_half_past() -> None:
    """Sums are by the hour of UTC; the axis tells the true local time of them."""
    found = bins("day", zone=ZoneInfo("Asia/Kolkata"))
    assert found[-1].words == "Thu 26 Nov 2026 14:30 to 15:30"


def test_nothing_is_drawn_before_the_first_record() -> None:
    """Time in which nothing was recorded has no bars, so that it cannot be taken for time without calls."""
    begin, end = period_of(SPANS["day"], NOW, UTC)
    found = bins_of(SPANS["day"], hours(begin, end), NOW, UTC, NOW - 6 * HOUR)
    [started, *_] = plots_of(SPANS["day"], found)
    assert started.unknown == pytest.approx(100 * 17 / 24, abs=0.01)
    assert len(started.bars) == 7
    assert plots_of(SPANS["day"], bins_of(SPANS["day"], {}, NOW, UTC, None))[0].number == "0"


def test_plots_say_their_numbers_in_words() -> None:
    """Whoever does not see a plot hears its total and its peak; each bar says when and how many; the open one so far."""
    day = hours(*period_of(SPANS["day"], NOW, UTC))
    day[NOW.replace(minute=0) - 2 * HOUR] = sums(started=1200, rejected=3, authenticated=9)
    plots = {plot.name: plot for plot in plots_of(SPANS["day"], bins_of(SPANS["day"], day, NOW, UTC, NOW - 48 * HOUR))}
    assert (
        plots["Started"].words
        == "Started: 1,223 in this period. At most 1,200 an hour, Thu 26 Nov 2026 07:00 to 08:00."
    )
    assert plots["Started"].bars[-3].words == "Thu 26 Nov 2026 07:00 to 08:00: 1,200"
    assert plots["Started"].bars[-1].words.endswith("1 so far")
    assert plots["Rejected"].meaning == "8.6 % of 35 settled"


def test_bars_stand_on_the_floor_and_end_at_their_value() -> None:
    """A bar of the highest tick ends there; a small value is still a pixel; nothing is no bar."""
    day = {NOW.replace(minute=0) - n * HOUR: sums(started=value) for n, value in enumerate((4000, 1, 0))}
    [started, *_] = plots_of(SPANS["day"], bins_of(SPANS["day"], day, NOW, UTC, NOW - 48 * HOUR))
    assert [(bar.y, bar.height) for bar in reversed(started.bars)] == [(TOP, FLOOR - TOP), (FLOOR - 1, 1), (FLOOR, 0)]


def test_delay_is_drawn_as_median_and_tail() -> None:
    """The bar is the median, the mark the 95th of a hundred; an hour without a result has neither."""
    slow = Sums([0] * (SLOTS - 4) + [9, 0, 1, 0])
    day = {NOW.replace(minute=0) - HOUR: slow, NOW.replace(minute=0): Sums()}
    *_, delay = plots_of(SPANS["day"], bins_of(SPANS["day"], day, NOW, UTC, NOW - 48 * HOUR))
    assert (delay.number, delay.bars[1].mark, delay.bars[1].height) == ("6.2 s", None, 0)
    assert delay.bars[0].mark is not None
    assert delay.bars[0].words.endswith("median 6.2 s, p95 22.5 s")
    assert (seconds(30.0), seconds(None)) == ("over 30 s", "-")

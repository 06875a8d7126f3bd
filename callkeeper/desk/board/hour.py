"""The figures of the last hour as tiles. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.catalogue import Figure
from callkeeper.calls.metrics.snapshot import Minute, Spread


@dataclass(frozen=True, slots=True)
class TileDetail:
    """One of the smaller numbers of a tile: a word and a number."""

    word: str
    number: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure. ``course``: one value a minute, the newest last; ``course_words``: the same for screen readers."""

    title: str
    number: str
    meaning: str
    course: Sequence[float] = ()
    course_words: str = ""
    parts: Sequence[TileDetail] = field(default_factory=tuple)

    @property
    def hint(self) -> str:
        return _HINTS[self.title]


def seconds(value: float | None) -> str:
    """Return a duration as a short text."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


_LIVE = "Live calls"
GAP = "Gap before the result"
_HINTS = {
    _LIVE: "Calls that have begun and are not settled yet.",
    "Pushes received": "Push events that the service sent us; a lost one had not come when its call was settled.",
    GAP: "Time between the check that showed a result and the check before: no result waited longer.",
    "Decisions of rules": "Decisions that live rules made about calls, and the rules that decided most often.",
    "Service answers in": "Time until the service has answered one of our requests.",
    "Checks spent": "Checks of voices that the service was asked for; a call has 20 of them.",
}
"""What each tile counts, in a sentence."""

RULES_SHOWN = 3


def tiles_of(minutes: Sequence[Minute], live: int) -> list[Tile]:
    """Return the tiles of an hour; ``live``: how many calls are live now."""
    return [
        _live(minutes, live),
        _pushes(minutes),
        _detection(minutes),
        _decisions(minutes),
        _service(minutes),
        _budget(minutes),
    ]


def with_live(tiles: Sequence[Tile], live: int) -> list[Tile]:
    """Return the tiles with the number of calls that are live now: the rest is as old as the reading of the hour."""
    return [replace(tile, number=str(live)) if tile.title == _LIVE else tile for tile in tiles]


def _live(minutes: Sequence[Minute], live: int) -> Tile:
    """The number of live calls is counted back from now: without those found since, and with those settled since."""
    found, settled = _course(minutes, figure.CALLS_FOUND), _course(minutes, figure.CALLS_SETTLED)
    grown = [came - went for came, went in zip(found, settled, strict=True)]
    course = [max(0.0, live - later) for later in accumulate(reversed(grown[1:]), initial=0.0)][::-1]
    return Tile(
        _LIVE,
        str(live),
        "now",
        course,
        f"in the last hour up to {max(course, default=0):.0f}",
        (TileDetail("found", f"{sum(found):.0f}"), TileDetail("settled", f"{sum(settled):.0f}")),
    )


def _pushes(minutes: Sequence[Minute]) -> Tile:
    course = _course(minutes, figure.PUSHES)
    lost = sum(_course(minutes, figure.PUSHES_LOST, type="CallStart"))
    settled = sum(_course(minutes, figure.CALLS_SETTLED))
    refused = sum(_course(minutes, figure.PUSHES_REFUSED))
    parts = (
        TileDetail("lost", f"{lost:.0f} of {settled:.0f}", is_bad=settled >= 10 and lost > settled / 2),
        TileDetail("delay p95", seconds(_spread(minutes, figure.PUSH_LAG).quantile(0.95))),
        TileDetail("refused", f"{refused:.0f}", is_bad=refused > 0),
    )
    return Tile("Pushes received", f"{sum(course):.0f}", "in an hour", course[:-1], _described(course), parts)


def _detection(minutes: Sequence[Minute]) -> Tile:
    lag = _spread(minutes, figure.DETECTION_LAG)
    course = [minute.figures.spread(figure.DETECTION_LAG).mean or 0.0 for minute in minutes]
    late = _spread(minutes, figure.CHECK_LATE).quantile(0.95)
    parts = (TileDetail("p95", seconds(lag.quantile(0.95))), TileDetail("checks late p95", seconds(late)))
    course_words = f"mean of a minute, at most {seconds(max(course, default=0))}"
    return Tile(GAP, seconds(lag.quantile(0.5)), "median", course, course_words, parts)


def _decisions(minutes: Sequence[Minute]) -> Tile:
    course = _course(minutes, figure.DECISIONS, stage="live")
    by_rule: Counter[tuple[str, ...]] = Counter()
    for minute in minutes:
        by_rule.update(dict(minute.figures.rows(figure.DECISIONS)))
    shown = [pair for pair in by_rule.most_common() if pair[0][0] != "none"][:RULES_SHOWN]
    parts = [TileDetail(_rule(*labels), str(n)) for labels, n in shown]
    return Tile("Decisions of rules", f"{sum(course):.0f}", "in an hour", course[:-1], _described(course), parts)


def _rule(rule: str, stage: str, outcome: str) -> str:
    return f"{rule}: {outcome}" if stage == "live" else f"{rule}: would {outcome} (shadow)"


def _service(minutes: Sequence[Minute]) -> Tile:
    spread = _spread(minutes, figure.SERVICE_SECONDS)
    course = [minute.figures.spread(figure.SERVICE_SECONDS).mean or 0.0 for minute in minutes]
    requests = sum(_course(minutes, figure.SERVICE_REQUESTS))
    errors = requests - sum(_course(minutes, figure.SERVICE_REQUESTS, outcome="answered"))
    parts = (
        TileDetail("p95", seconds(spread.quantile(0.95))),
        TileDetail("requests", f"{requests:.0f}"),
        TileDetail("errors", f"{errors:.0f}", is_bad=errors > 0),
    )
    course_words = f"mean of a minute, at most {seconds(max(course, default=0))}"
    return Tile("Service answers in", seconds(spread.quantile(0.5)), "median", course, course_words, parts)


def _budget(minutes: Sequence[Minute]) -> Tile:
    course = _course(minutes, figure.CHECKS)
    mean = _spread(minutes, figure.CHECKS_SPENT).mean
    early, spent = _course(minutes, figure.BUDGET_SPENT, when="early"), _course(minutes, figure.BUDGET_SPENT)
    parts = (
        TileDetail("a call", "-" if mean is None else f"{mean:.1f} of 20"),
        TileDetail("budgets spent", f"{sum(spent):.0f}"),
        TileDetail("early", f"{sum(early):.0f}", is_bad=sum(early) > 0),
    )
    return Tile("Checks spent", f"{sum(course):.0f}", "in an hour", course[:-1], _described(course), parts)


def _course(minutes: Sequence[Minute], of: Figure, **labels: str) -> list[float]:
    return [float(minute.figures.count(of, **labels)) for minute in minutes]


def _spread(minutes: Sequence[Minute], of: Figure) -> Spread:
    whole = Spread.empty(of)
    for minute in minutes:
        whole.add(minute.figures.spread(of))
    return whole


def _described(course: Sequence[float]) -> str:
    """Describe a course in words. The drawing ends before the current minute."""
    return (
        f"up to {max(course, default=0):.0f} a minute in the last hour, {course[-1] if course else 0:.0f} in this one"
    )

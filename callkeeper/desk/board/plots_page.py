"""The page of plots: what calls did over a day, a week, a month, of one institution or of all. Read from hourly sums."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, tzinfo
from typing import Final
from urllib.parse import urlencode

from redis.asyncio import Redis
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from callkeeper.calls.metrics.hourly import EVERYWHERE, HOURS_KEPT_S, HourlySums, Hours, Slot, Sums
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.store.queries import Queries
from callkeeper.desk.access.visitor import may_see, visitor_of
from callkeeper.desk.archived_calls import ArchivedCalls, archived_days
from callkeeper.desk.board.hour import GAP
from callkeeper.desk.board.plotting import (
    SPANS,
    YEAR,
    Bin,
    Plot,
    PlotSpan,
    bars_of,
    bins_of,
    period_of,
    unknown_share,
    x_ticks,
    y_ticks,
)
from callkeeper.desk.board.renderer import Renderers
from callkeeper.desk.quotas import AGAIN_S, QuotaUsed, SearchTurns
from callkeeper.service.endpoints import is_institution_key

SERIES: Final[tuple[tuple[Slot, str, str, str], ...]] = (
    (Slot.STARTED, "Started", "calls that the service confirmed", "busy"),
    (Slot.AUTHENTICATED, "Authenticated", "", "good"),
    (Slot.ENROLLED, "Enrolled", "", "good"),
    (Slot.REJECTED, "Rejected", "", "bad"),
    (Slot.RED, "Red policy", "not rejected", "bad"),
    (Slot.UNDECIDED, "Undecided", "no result, or nobody was assigned", "idle"),
    (Slot.PROVIDER_ERRORS, "Provider errors", "checks whose answer named one", "warn"),
)
"""Each plot of a number: its slot, name, meaning and colour."""

YEARS_BACK: Final = 9
"""How many years before the present one can be shown."""

_RESULTS: Final = frozenset({Slot.AUTHENTICATED, Slot.ENROLLED, Slot.REJECTED, Slot.RED, Slot.UNDECIDED})


ARCHIVED: Final = tuple(row for row in SERIES if row[0] is not Slot.PROVIDER_ERRORS)
"""What the archive knows."""


def plots_of(span: PlotSpan, bins: Sequence[Bin]) -> list[Plot]:
    """Return the plots of a period."""
    whole = Sums()
    for each in bins:
        whole.add(each.sums)
    if span is YEAR:
        return [_counted(span, bins, whole, *row) for row in ARCHIVED]
    return [*(_counted(span, bins, whole, *row) for row in SERIES), _delays(span, bins, whole)]


def _counted(span: PlotSpan, bins: Sequence[Bin], whole: Sums, slot: Slot, name: str, meaning: str, tone: str) -> Plot:
    values = [each.sums[slot] for each in bins]
    most = max(values, default=0)
    top, ticks = y_ticks(most, whole=True)
    share = f"{100 * whole[slot] / whole.settled:.1f} % of {whole.settled:,} settled" if whole.settled else ""
    peak = f" At most {most:,} {span.unit}, {bins[values.index(most)].words}." if most else ""
    return Plot(
        name=name,
        slot=slot.name.lower(),
        number=f"{whole[slot]:,}",
        meaning=", ".join(filter(None, (meaning, share if slot in _RESULTS else ""))),
        unit=f"{'checks' if slot is Slot.PROVIDER_ERRORS else 'calls'} {span.unit}",
        words=f"{name}: {whole[slot]:,} in this period.{peak}",
        bars=list(bars_of(bins, values, top, [f"{value:,}" for value in values])),
        x_ticks=x_ticks(span, bins),
        y_ticks=ticks,
        unknown=unknown_share(bins),
        tone=tone,
    )


def _delays(span: PlotSpan, bins: Sequence[Bin], whole: Sums) -> Plot:
    medians, tails = ([each.sums.delay(share) for each in bins] for share in (0.5, 0.95))
    top, ticks = y_ticks(max((tail or 0.0 for tail in tails), default=0.0), whole=False)
    words = [f"median {seconds(median)}, p95 {seconds(tail)}" for median, tail in zip(medians, tails, strict=True)]
    return Plot(
        name=GAP,
        slot="delay",
        number=seconds(whole.delay(0.5)),
        meaning=f"median, p95 {seconds(whole.delay(0.95))}",
        unit="seconds; bar: median, line: p95",
        words=f"{GAP}: median {seconds(whole.delay(0.5))}, p95 {seconds(whole.delay(0.95))} in this period.",
        bars=list(bars_of(bins, medians, top, words, tails)),
        x_ticks=x_ticks(span, bins),
        y_ticks=ticks,
        unknown=unknown_share(bins),
    )


def seconds(value: float | None) -> str:
    """Return a delay as a short text. The buckets end at 30 s."""
    return "-" if value is None else "over 30 s" if value >= 30 else f"{value:.1f} s"


class PlotsPage:
    """Answers one request each."""

    def __init__(
        self,
        redis: Redis,
        queries: Queries,
        book: RuleBook,
        renderers: Renderers,
        turns: SearchTurns,
        *,
        now: Callable[[], datetime],
        archive: ArchivedCalls | None = None,
    ) -> None:
        """Put the parts together. ``book`` has the time zones. A year is shown where there is an ``archive``."""
        self._queries = queries
        self._hours = HourlySums(redis, keys=queries.keys)
        self._archive = archive
        self._spans = {**SPANS, "year": YEAR} if archive is not None else SPANS
        self._zones = book.zones
        self._renderers = renderers
        self._turns = turns
        self._now = now
        self._address = f"{renderers.base}/plots"

    def routes(self) -> list[Route]:
        return [Route(self._address, self.show)]

    async def show(self, request: Request) -> Response:
        """Show the plots of a period, of one institution or of all that the visitor may see."""
        person, now = visitor_of(request).person, self._now()
        key = request.query_params.get("institution", EVERYWHERE)
        known = await self._queries.institutions()
        is_missing = known.is_list_stored and known.problem(key) is not None
        if key and (not may_see(request, key) or is_missing or not is_institution_key(key)):
            raise HTTPException(404)
        asked_span = request.query_params.get("span", "")
        name = asked_span if asked_span in self._spans else "day"
        span = self._spans[name]
        zone = UTC if span is YEAR else self._zone(key)
        most = YEARS_BACK if span is YEAR else int(HOURS_KEPT_S / 86400 / span.days) - 1
        back = min(_back(request), most)
        begin, end = period_of(span, now, zone, back)
        asked = [key] if key or person.institutions is None else sorted(person.institutions)
        try:  # the archive holds a thread for seconds, and pushes and logins need threads too
            async with self._turns.turn(person.id) if span is YEAR else nullcontext():
                hours = await self._between(span, begin.astimezone(UTC), end.astimezone(UTC), asked)
        except QuotaUsed as used:
            return PlainTextResponse(f"{used}\n", 429, {"Retry-After": str(AGAIN_S)})
        is_away, hours = hours is None, hours or Hours({}, None)
        bins = bins_of(span, hours.by_hour, now, zone, hours.since)
        names = known.visible(person.may_see).names

        def address(span: str = name, back: int = 0) -> str:
            wanted = {"institution": key, "span": span, "back": back or ""}
            query = urlencode({field: value for field, value in wanted.items() if value})
            return f"{self._address}?{query}"

        return self._renderers.page(
            request,
            "plots.html",
            plots=plots_of(span, bins),
            bins=bins,
            series=ARCHIVED if span is YEAR else SERIES,
            is_archived=span is YEAR,
            is_away=is_away,
            seconds=seconds,
            begin=begin.astimezone(zone),
            end=end.astimezone(zone),
            zone=getattr(zone, "key", "UTC"),
            spans={each: (span_of.title, address(each), each == name) for each, span_of in self._spans.items()},
            earlier=address(back=back + 1) if back < most else "",
            later=address(back=back - 1) if back else "",
            span=name,
            key=key,
            title=known.names.get(key)
            or key
            or ("all institutions" if person.institutions is None else "your institutions"),
            names=sorted(names.items(), key=lambda pair: (pair[1] or pair[0]).casefold()),
            since=hours.since.astimezone(zone) if hours.since else None,
        )

    async def _between(
        self, span: PlotSpan, begin: datetime, end: datetime, institutions: Sequence[str]
    ) -> Hours | None:
        """Return the sums of a period; None if the archive does not answer."""
        if span is not YEAR or self._archive is None:
            return await self._hours.between(begin, end, institutions)
        return await archived_days(self._archive, begin, end, None if EVERYWHERE in institutions else institutions)

    def _zone(self, key: str) -> tzinfo:
        """Return the time zone that the rules give an institution, or else all; UTC if they give none."""
        return self._zones.get(key) or self._zones.get(EVERYWHERE) or UTC


def _back(request: Request) -> int:
    """Return how many periods before the present one are asked for."""
    asked = request.query_params.get("back", "")
    return int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 3 else 0

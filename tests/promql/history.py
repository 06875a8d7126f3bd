"""Scrapes, one after the other, as Prometheus would keep them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from tests.promql.syntax import Matcher, Selector

Labels = frozenset[tuple[str, str]]
Scrape = dict[tuple[str, Labels], float]

RESCRAPED = "up"


@dataclass
class History:
    """What was scraped when, in seconds. A series that is not in a scrape has ended there."""

    scrapes: list[tuple[float, Scrape]] = field(default_factory=list)

    def record(self, at_s: float, text: str | None) -> None:
        """Keep a scrape; None for one that failed."""
        scrape: Scrape = {(RESCRAPED, frozenset({("job", "callkeeper")})): 0.0 if text is None else 1.0}
        for family in text_string_to_metric_families(text or ""):
            for sample in family.samples:
                scrape[sample.name, frozenset(sample.labels.items())] = sample.value
        self.scrapes.append((at_s, scrape))

    def at(self, selector: Selector, now_s: float) -> dict[Labels, float]:
        """Return the series that a selector names, as of the last scrape."""
        last = [scrape for at_s, scrape in self.scrapes if at_s <= now_s][-1:]
        return {labels: value for scrape in last for labels, value in _chosen(selector, scrape)}

    def over(self, selector: Selector, now_s: float) -> dict[Labels, list[tuple[float, float]]]:
        """Return the series that a selector names, over its range."""
        assert selector.range_s is not None, "a range is needed"
        series: dict[Labels, list[tuple[float, float]]] = {}
        for at_s, scrape in self.scrapes:
            if now_s - selector.range_s <= at_s <= now_s:
                for labels, value in _chosen(selector, scrape):
                    series.setdefault(labels, []).append((at_s, value))
        return series


def _chosen(selector: Selector, scrape: Scrape) -> Iterator[tuple[Labels, float]]:
    for (name, labels), value in scrape.items():
        if name == selector.name and all(_holds(matcher, dict(labels)) for matcher in selector.matchers):
            yield labels, value


def _holds(matcher: Matcher, labels: dict[str, str]) -> bool:
    value = labels.get(matcher.label, "")
    is_equal = value == matcher.value if "~" not in matcher.sign else re.fullmatch(matcher.value, value) is not None
    return is_equal is not matcher.sign.startswith("!")

"""The hits of each rule: how often it decided, or would have decided, today, in seven days and in four weeks.

A hit is a verdict in a trail. A call has several if its facts change. Days are those of UTC.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from redis.asyncio import Redis

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import parse_field
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys

DAYS: Final = (1, 7, 28)
"""Over how many days hits are shown, the current one included."""

NO_RULE: Final = "none"
"""Under this name verdicts are counted that no rule gave."""


@dataclass(frozen=True, slots=True)
class Hits:
    """The hits of a rule in one stage, by what came of them; one counter for each of `DAYS`."""

    by_days: tuple[Counter[str], ...] = field(default_factory=lambda: tuple(Counter[str]() for _ in DAYS))

    @property
    def totals(self) -> tuple[int, ...]:
        return tuple(counts.total() for counts in self.by_days)


AllHits = Mapping[tuple[str, str], Hits]
"""Hits by rule and stage."""


def hits_of(days: Sequence[Mapping[bytes, bytes]]) -> AllHits:
    """Add up the hits of days, the newest first. Fields that this version does not know are left out."""
    found: dict[tuple[str, str], Hits] = {}
    for age, stored in enumerate(days):
        for name, n in stored.items():
            known = parse_field(name.decode())
            if known is not None and known[0] is figure.DECISIONS:
                rule, stage, outcome = known[1]
                hits = found.setdefault((rule, stage), Hits())
                for limit, counts in zip(DAYS, hits.by_days, strict=True):
                    if age < limit:
                        counts[outcome] += int(n)
    return found


async def read_hits(redis: Redis, now: datetime, *, keys: Keys) -> AllHits:
    """Read the hits of all rules."""
    today = int(now.timestamp() // 86400)
    client = in_bytes(redis)
    pipe = client.pipeline(transaction=False)
    for age in range(DAYS[-1]):
        pipe.hgetall(keys.rule_hits(today - age))
    return hits_of(await pipe.execute())

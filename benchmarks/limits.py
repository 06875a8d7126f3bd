"""How do calls fare at a service that limits requests: how many are refused, how long do they wait?

Two worker processes, limits of 5, 15 and 100 requests per second, with the bound set (``CALLKEEPER_SERVICE_RPS``) or
learned from 429. First, calls start at a rate that fits the limit. Then so many start at once that work always waits.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.answer import Answer, Table
from benchmarks.effort import Effort
from benchmarks.goals import Goal, goals_table
from benchmarks.spread import Spread
from benchmarks.stage import stage
from callkeeper.calls.rules import load_rules

LIMITS = (5, 15, 100)

FITTING = 1.1
"""Calls that start while all fit, per request per second of the limit. Each needs up to 0.6 requests per second."""

CROWD = 6.0
"""Calls that then start at once, per request per second of the limit."""

FITS_S = 45.0
LEARNING_S = 15.0
CROWDED_S = 30.0
"""How long the run continues with waiting work after the limit was learned."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one run.

    Attributes:
        assigned_s: While calls fit the limit: how long each waited for its assign.
        late_s: While calls fit the limit: how late checks were.
        used: While work waits: the share of the limit that was answered.
        refused: While work waits: the share of all requests that was refused.
    """

    assigned_s: list[float]
    late_s: list[float]
    used: float
    refused: float


def answer(effort: Effort) -> Answer:
    """Start calls under each limit."""
    cases = [(limit, how) for limit in ((15,) if effort.is_smoke else LIMITS) for how in ("set", "learned")]
    rounds = 1 if effort.is_smoke else min(effort.rounds, 2)
    found = {case: [_run(*case, effort) for _ in range(rounds)] for case in cases}
    rows = [
        (
            *case,
            Spread.of(max(each.assigned_s, default=0.0) for each in runs),
            Spread.of(max(each.late_s, default=0.0) for each in runs),
            Spread.of(100 * each.used for each in runs),
            Spread.of(100 * each.refused for each in runs),
        )
        for case, runs in found.items()
    ]
    table = Table(
        "A limit of requests per second",
        ("limit", "the bound is", "assigned within, s", "checks late at most, s", "used %", "refused %"),
        tuple(rows),
        "First two figures: arrivals fit the limit. The others: work waits, from 15 s after it began to wait.",
    )
    if effort.is_smoke:
        return Answer("What becomes of calls at a service that limits requests?", (table,))
    goals = (
        Goal.at_most("arrivals fit: assigned within, s", _worst(rows, 2), 3.0),
        Goal.at_most("arrivals fit: checks late at most, s", _worst(rows, 3), 5.0),
        Goal.at_least("work waits: used, %", Spread.of([min(row[4].median for row in rows)]), 80.0),
        Goal.at_most("work waits: refused, %", _worst(rows, 5), 5.0),
    )
    return Answer("What becomes of calls at a service that limits requests?", (table, goals_table(*goals)))


def _worst(rows: list[Any], column: int) -> Spread:
    return Spread.of([max(row[column].median for row in rows)])


def _run(limit: int, how: str, effort: Effort) -> Found:
    fits_s, learning_s, crowded_s = (3.0, 1.0, 2.0) if effort.is_smoke else (FITS_S, LEARNING_S, CROWDED_S)
    environ = {"CALLKEEPER_SERVICE_RPS": str(limit)} if how == "set" else {}
    with stage(latency_ms=20.0, limit=limit) as on, on.web() as (_, url), ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(on.worker(**environ))
        time.sleep(2)
        fitting = max(2, int(limit * FITTING))
        on.start_calls(url, fitting, fitting / (0.6 * fits_s))
        time.sleep(fits_s)
        calm = on.asked()
        crowd = int(limit * CROWD)
        on.start_calls(url, crowd, crowd)
        time.sleep(learning_s)
        begin_s = time.time()
        time.sleep(crowded_s)
        busy = on.asked()
    answered, refused = (sum(at >= begin_s for at in busy[name]) for name in ("answered_at", "refused_at"))
    return Found(
        [calm["assigned_at"].get(one, begin_s) - at for one, at in calm["pushed_at"].items()],
        list(_late_s(calm)),
        answered / crowded_s / limit,
        refused / max(1, answered + refused),
    )


def _late_s(asked: dict[str, Any]) -> list[float]:
    """Return how long after its slot each check arrived. Slots are measured from the assign."""
    schedule = load_rules(None).schedule
    found = []
    for voice_id, at in asked["checked_at"]:
        if assigned_at := asked["assigned_at"].get(voice_id):
            slots = schedule.paced(voice_id).at_s
            found.append(at - assigned_at - max((slot for slot in slots if slot <= at - assigned_at), default=0.0))
    return found

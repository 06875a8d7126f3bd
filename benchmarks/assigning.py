"""How long does callkeeper take from a push to the assign? The service's own time is not counted."""

import time

from benchmarks.answer import Answer, Table
from benchmarks.effort import Effort
from benchmarks.goals import Goal, goals_table
from benchmarks.spread import Spread, quantile
from benchmarks.stage import Stage, stage, wait_until

LATENCY_MS = 20.0
"""Latency of every answer of the stand-in. One answer comes before an assign: the listing of the queue."""

IDLE_RATE = 0.7
"""Starts per second. A shift ends after a second without work, so a start may or may not find a running shift."""

USUAL_RATE, BUSY_RATE = 50, 200
"""Starts per second, for ten seconds each."""


def answer(effort: Effort) -> Answer:
    """Start calls one at a time, then 50 and 200 in a second."""
    rounds = [_round(effort) for _ in range(effort.rounds)]
    rows = []
    for n, name in enumerate(("idle", f"{USUAL_RATE} starts a second", f"{BUSY_RATE} starts a second")):
        lags = [found[n] for found in rounds]
        rows.append(
            (
                name,
                len(lags[0]),
                Spread.of(quantile(each, 0.5) for each in lags),
                Spread.of(quantile(each, 0.99) for each in lags),
                Spread.of(max(each) for each in lags),
            )
        )
    columns = ("starts", "calls", "p50 ms", "p99 ms", "worst ms")
    note = f"The service's answers take {LATENCY_MS:g} ms; one latency is subtracted. One web, one worker."
    goals = (
        Goal.at_most("idle: p50 under 10 ms", rows[0][2], 10.0),
        Goal.at_most("200 starts a second: p99 under 250 ms", rows[2][3], 250.0),
    )
    table = Table("From the sender's POST to the arrival of the assign", columns, tuple(rows), note)
    return Answer("How long from a push to the assign?", (table, goals_table(*goals)))


def _round(effort: Effort) -> tuple[list[float], ...]:
    with stage(latency_ms=LATENCY_MS) as on, on.web() as (_, url), on.worker():
        time.sleep(2)
        idle = _lags(on, url, 3 if effort.is_smoke else 15, IDLE_RATE)
        return idle, *(_lags(on, url, 40 if effort.is_smoke else 10 * rate, rate) for rate in (USUAL_RATE, BUSY_RATE))


def _lags(on: Stage, url: str, count: int, rate: float) -> list[float]:
    """Start calls; return how long each waited for its assign, in milliseconds, ordered."""
    on.start_calls(url, count, rate)
    wait_until(lambda: len(on.asked()["assigned_at"]) >= count, f"{count} assigns", every_s=0.2)
    asked = on.asked()
    pushed_at, assigned_at = asked["pushed_at"], asked["assigned_at"]
    return [(assigned_at[one] - pushed_at[one]) * 1000 - LATENCY_MS for one in pushed_at]

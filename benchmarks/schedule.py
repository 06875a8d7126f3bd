"""With at most 18 automatic checks, how long does a decisive result stay unknown to callkeeper?

The lag is the mean time until we know the result or the call ends, over the calls that get a result while live.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, chain, repeat
from random import Random

from benchmarks.answer import Answer, Cell, Table
from benchmarks.effort import Effort
from benchmarks.live_calls import watch
from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.fit import fit
from callkeeper.calls.schedule.model import HORIZON_S, PRIOR_CALL, PRIOR_RESULT, Lognormal, Model, prior
from callkeeper.calls.schedule.optimum import backoff_optimum
from callkeeper.calls.schedule.plan import Schedule
from tests.free_optimum import optimum
from tests.simulated_calls import closed_rule, drawn_times, even_calls, observed_through

CHECKS = 18

BETTER = 2.5
"""How many times better than the usual schedules the shipped one is when calls match its assumption."""

DOUBLING = Schedule(tuple(accumulate(chain([1.0, 2.0, 4.0, 8.0, 16.0], repeat(30.0, CHECKS - 5)))))
EVERY_15_S = Schedule(tuple(15.0 * n for n in range(1, CHECKS + 1)))
EVERY_5_S = Schedule(tuple(5.0 * n for n in range(1, CHECKS + 1)))

LAWS = {
    "as assumed": (PRIOR_RESULT, PRIOR_CALL),
    "fast results": (Lognormal(10, 0.6), Lognormal(240, 0.7)),
    "slow results": (Lognormal(60, 0.6), Lognormal(360, 0.7)),
    "short calls": (Lognormal(25, 0.8), Lognormal(60, 0.6)),
}
WRONG = {
    "results twice as fast": (Lognormal(12.5, 0.7), PRIOR_CALL),
    "results half as fast": (Lognormal(50, 0.7), PRIOR_CALL),
    "calls half as long": (PRIOR_RESULT, Lognormal(120, 0.85)),
    "calls twice as long": (PRIOR_RESULT, Lognormal(480, 0.85)),
}
Laws = tuple[Lognormal, Lognormal]


CALLS_LIVE = 1000
"""Live calls for each distribution."""

CALLS_FITTED = 2000
"""Simulated calls for each fit."""


def answer(_effort: Effort) -> Answer:
    """Measure everything."""
    live, live_broken = _live(CALLS_LIVE)
    fits, fits_broken = _fits(CALLS_FITTED)
    optimiser, optimiser_broken = _optimiser()
    others, others_broken = _others()
    tables = (optimiser, others, live, _wrong(), fits, _lost_check())
    broken = (*optimiser_broken, *others_broken, *live_broken, *fits_broken)
    return Answer(__doc__.splitlines()[0] if __doc__ else "", tables, broken)


def model_of(laws: Laws, *, step_s: float = 0.25) -> Model:
    """Return a pair of laws on the usual grid."""
    return Model.of(laws[0].cdf, laws[1].survival, step_s=step_s)


def best_for(laws: Laws) -> Schedule:
    """Return the best backoff schedule for a pair of laws."""
    return Schedule(backoff_optimum(model_of(laws), CHECKS))


def _optimiser() -> tuple[Table, list[str]]:
    rows, broken = [], []
    for name, laws in LAWS.items():
        model, fine = model_of(laws), model_of(laws, step_s=0.05)
        started_s = time.process_time()
        free = optimum(model, CHECKS)
        took_s = time.process_time() - started_s
        best, least = fine.lag(optimum(fine, CHECKS)), model.lag(free)
        even = model.lag(backoff_optimum(model, CHECKS))
        grid = fine.lag(free) / best
        rows.append(
            (
                name,
                least,
                f"{grid:.4f}",
                f"{even / least:.4f}",
                f"{model.lag(closed_rule(model, CHECKS)) / least:.3f}",
                f"{1000 * took_s:.0f} ms",
            )
        )
        broken += [f"{name}: optimum on the grid is {grid:.4f}"] if grid > 1.001 else []
        broken += [f"{name}: backoff costs {even / least:.3f}"] if even > 1.05 * least else []
    columns = (
        "distribution",
        "least lag, s",
        "on a grid 5 times finer",
        "gaps that never shrink",
        "closed rule",
        "time",
    )
    note = "Ratios to the smallest lag of any 18 times. The time is that of computing them over 15 minutes at 0.25 s."
    return Table("**The optimiser**", columns, tuple(rows), note), broken


def _others() -> tuple[Table, list[str]]:
    rows: list[tuple[Cell, ...]] = []
    broken = []
    for name, laws in {**LAWS, **WRONG}.items():
        model = model_of(laws)
        best = model.lag(best_for(laws).at_s)
        lags = [model.lag(schedule.at_s) for schedule in (DOUBLING, EVERY_15_S, EVERY_5_S)]
        cells: list[Cell] = []
        for lag in lags:
            cells += [lag, f"{lag / best:.2f}x"]
        rows.append((name, best, *cells))
        if name == "as assumed" and min(lags[:2]) < BETTER * best:
            broken.append(f"{name}: {min(lags[:2]) / best:.2f}x better than doubling and every 15 s")
    others = ("doubling to 30 s", "every 15 s", "every 5 s")
    columns = ("distribution", "its best, s", *chain.from_iterable((f"{name}, s", f"{name} / best") for name in others))
    return Table("**Against other schedules**, each of 18 checks, by the model", columns, tuple(rows)), broken


def _live(calls: int) -> tuple[Table, list[str]]:
    rows, broken = [], []
    runs = [(name, laws, best_for(laws), "its best") for name, laws in LAWS.items()]
    runs += [
        ("as assumed", LAWS["as assumed"], other, name)
        for other, name in ((DOUBLING, "doubling"), (EVERY_15_S, "every 15 s"))
    ]
    for name, laws, schedule, called in runs:
        model = model_of(laws)
        seen = watch(even_calls(*laws, calls, longest_s=HORIZON_S), schedule)
        least = model.lag(optimum(model, CHECKS))
        rows.append(
            (
                name,
                called,
                len(seen.lags_s),
                seen.mean_lag_s,
                seen.planned_lag_s,
                least,
                f"{seen.mean_lag_s / least:.3f}",
                seen.unknown,
                seen.most_checks,
            )
        )
        if called == "its best" and seen.mean_lag_s > 1.15 * least:
            broken.append(f"{name}: end to end {seen.mean_lag_s / least:.3f} of the optimum")
        if seen.most_checks > CHECKS:
            broken.append(f"{name}: {seen.most_checks} checks for one call")
    columns = (
        "distribution",
        "schedule",
        "results",
        "lag, s",
        "as planned, s",
        "optimum, s",
        "ratio",
        "unknown at the end",
        "most checks",
    )
    note = (
        f"{calls} live calls each, with the real store, decisions and moves against the stand-in, in virtual time. Lag:"
        " from a result at the stand-in to its entry in our trail. As planned: the same calls, each check at its slot."
    )
    return Table("**End to end**", columns, tuple(rows), note), broken


def _wrong() -> Table:
    shipped, rows = load_rules(None).schedule, []
    for name, laws in {"as assumed": LAWS["as assumed"], **WRONG}.items():
        model = model_of(laws)
        best, lag = model.lag(best_for(laws).at_s), model.lag(shipped.at_s)
        rows.append(
            (
                name,
                lag,
                best,
                f"{lag / best:.2f}",
                f"{model.lag(DOUBLING.at_s) / lag:.2f}x",
                f"{model.lag(EVERY_15_S.at_s) / lag:.2f}x",
            )
        )
    columns = ("in truth", "shipped, s", "best, s", "ratio", "doubling / shipped", "every 15 s / shipped")
    return Table("**The shipped schedule where its assumption is wrong by a factor of 2**", columns, tuple(rows))


def _fits(count: int) -> tuple[Table, list[str]]:
    shipped = load_rules(None).schedule
    rows, broken = [], []
    for name, laws in {**LAWS, **WRONG}.items():
        model, draw = model_of(laws), Random(1)  # noqa: S311  (repeatable, not secret)
        best, was = model.lag(best_for(laws).at_s), model.lag(shipped.at_s)
        ratios = []
        for size in (200, count):
            calls = observed_through(shipped, drawn_times(laws[0], size, draw), drawn_times(laws[1], size, draw))
            found = fit(list(calls), shipped, resamples=0)
            ratios.append(model.lag(found.schedule.at_s) / best)
        rows.append((name, f"{was / best:.3f}", *(f"{ratio:.3f}" for ratio in ratios), f"{found.excess:+.1f}"))
        broken += [f"{name}: fit is {ratios[-1]:.3f} of the best"] if ratios[-1] > 1.10 else []
        broken += [f"{name}: fit loses to the shipped times"] if was > 1.02 * best and ratios[-1] > was / best else []
    columns = ("in truth", "shipped", "fitted to 200 calls", f"fitted to {count} calls", "Turnbull over lognormal")
    note = "Ratios to the best schedule for the true laws. Calls drawn at random and watched by the shipped schedule."
    return Table("**The fit**", columns, tuple(rows), note), broken


def _lost_check() -> Table:
    model, shipped, rows = prior(), load_rules(None).schedule, []
    for lost in (0, 3, 8, 13, 16):
        kept = [t for n, t in enumerate(shipped.at_s) if n != lost]
        rows.append((lost + 1, shipped.at_s[lost], model.lag(kept), model.lag(replanned(shipped, lost))))
    columns = ("check without an answer", "at, s", "keeping to the slots, s", "planned anew, s")
    note = f"Without a loss the lag is {model.lag(shipped.at_s):.2f} s."
    return Table("**One check without an answer**, by the model", columns, tuple(rows), note)


def replanned(schedule: Schedule, lost: int) -> Sequence[float]:
    """Return the times of the answered checks if only the check of one slot gets no answer."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times, now = list(schedule.at_s[:lost]), start + timedelta(seconds=schedule.at_s[lost])
    failures = 1
    for left in range(schedule.automatic_limit - lost - 1, 0, -1):
        answered_at = start + timedelta(seconds=times[-1]) if times else None
        now = schedule.plan(start, now, left=left, answered_at=answered_at, failures=failures)
        times.append((now - start).total_seconds())
        failures = 0
    return times

"""Fits a schedule to an institution's own calls: F and S as observed, the best schedule, and the confidence band.

F is the lognormal unless the calls contradict it, that is, unless Turnbull's smoothed estimate makes the observations
more likely by more than a factor of e^12, which allows for its freedom. The band comes from drawing the calls again
with replacement and estimating anew (bootstrap, percentiles 2.5 and 97.5).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from callkeeper.calls.schedule.estimate import (
    Interval,
    Observation,
    fit_lognormal,
    interpolated,
    interval_of,
    kaplan_meier,
    likelihood,
    smoothed,
    turnbull,
)
from callkeeper.calls.schedule.model import HORIZON_S, STEP_S, Lognormal, Model
from callkeeper.calls.schedule.optimum import backoff_optimum
from callkeeper.calls.schedule.plan import Schedule

MIN_CALLS = 200
MIN_DECIDED = 100
"""With fewer calls, or fewer with a result, the band is wider than the possible gain."""

COARSE_S = 1.0
"""Grid step of Turnbull's estimate and of the resampled ones, in seconds."""

RESAMPLES = 200

FREEDOM = 12.0
"""How much more likely, in natural logarithms, Turnbull's estimate must be to replace the lognormal.

For calls that follow a lognormal the excess was at most 9.9 in 72 fits; for 2,000 calls of two kinds it was 90 to
800."""

MOST_CALLS = 20_000
"""How many calls are drawn if there are more. The band is then far narrower than any gain that matters."""

Life = tuple[float, bool]
Band = tuple[float, float]


class TooFewCalls(ValueError):
    """There are too few observations to fit a schedule."""

    def __init__(self, calls: int, decided: int) -> None:
        super().__init__(
            f"{calls} watched calls, {decided} of them with a result: at least {MIN_CALLS} and {MIN_DECIDED} are needed"
        )


class Sample:
    """A random sample of at most ``most`` of the observations that were added. The same ones give the same sample."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        self.observations: list[Observation] = []
        self.added = 0
        self._most = most
        self._draw = Random(1)  # noqa: S311  (repeatable, not secret)

    def add(self, observation: Observation) -> None:
        """Add an observation; from the ``most``-th on it replaces another one, or is left out."""
        self.added += 1
        if len(self.observations) < self._most:
            self.observations.append(observation)
        elif (place := self._draw.randrange(self.added)) < self._most:
            self.observations[place] = observation


@dataclass(frozen=True, slots=True)
class Lag:
    """Mean seconds that a result exists before it is known, over calls that get one alive, with its 95 % band."""

    mean_s: float
    band_s: Band


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit.

    Attributes:
        calls, decided: How many were observed, and how many of them had a result.
        law: The lognormal of F, whether or not it fits.
        excess: How much more likely Turnbull's estimate is than the lognormal, as a logarithm.
        model: F and S in use.
        schedule: The best schedule for them.
        lag, lag_in_force: Of that schedule, and of the one in force.
        gain: The lag in force divided by the new one, with its band.
    """

    calls: int
    decided: int
    law: Lognormal
    excess: float
    model: Model
    schedule: Schedule
    lag: Lag
    lag_in_force: Lag
    gain: tuple[float, Band]

    @property
    def law_fits(self) -> bool:
        """Tell whether F is the lognormal; otherwise it is Turnbull's estimate."""
        return self.excess <= FREEDOM

    @property
    def allowance(self) -> float:
        """Return how large ``excess`` may be for the lognormal to be used."""
        return FREEDOM


def fit(observations: Sequence[Observation], in_force: Schedule, *, resamples: int = RESAMPLES) -> Fit:
    """Fit a schedule with as many checks and as large a reserve as the one in force.

    Raises:
        TooFewCalls: There are too few observations.
    """
    calls = [(interval_of(o), (o.lived_s, o.has_ended)) for o in observations]
    decided = sum(by_s < inf for (_, by_s), _ in calls)
    if len(calls) < MIN_CALLS or decided < MIN_DECIDED:
        raise TooFewCalls(len(calls), decided)
    intervals = Counter(interval for interval, _ in calls)
    law = fit_lognormal(intervals)
    estimate = turnbull(intervals, *_grid(COARSE_S))
    shape = smoothed(estimate)
    excess = likelihood(interpolated(shape, COARSE_S), intervals) - likelihood(law.cdf, intervals)
    known = shape if excess > FREEDOM else None
    model = _model([life for _, life in calls], STEP_S, law, known)
    schedule = Schedule(backoff_optimum(model, in_force.automatic_limit), in_force.reserve)
    draws = _resampled(calls, (schedule, in_force), law, estimate if known else None, resamples)
    lags = [model.lag(s.at_s) for s in (schedule, in_force)]
    return Fit(
        calls=len(calls),
        decided=decided,
        law=law,
        excess=excess,
        model=model,
        schedule=schedule,
        lag=Lag(lags[0], _band([new for new, _ in draws])),
        lag_in_force=Lag(lags[1], _band([old for _, old in draws])),
        gain=(lags[1] / lags[0], _band([old / new for new, old in draws])),
    )


def _grid(step_s: float) -> tuple[int, float]:
    return round(HORIZON_S / step_s) + 1, step_s


def _model(lives: Sequence[Life], step_s: float, law: Lognormal, shape: Sequence[float] | None) -> Model:
    """Return F and S on a grid: F by its law, or by its shape at every second."""
    nodes, _ = _grid(step_s)
    known = interpolated(shape, COARSE_S) if shape else law.cdf
    return Model(step_s, tuple(known(n * step_s) for n in range(nodes)), tuple(kaplan_meier(lives, nodes, step_s)))


def _resampled(
    calls: Sequence[tuple[Interval, Life]],
    schedules: tuple[Schedule, Schedule],
    law: Lognormal,
    estimate: Sequence[float] | None,
    resamples: int,
) -> list[tuple[float, float]]:
    """Return both schedules' lags for resampled calls, ``resamples`` times.

    ``estimate`` is Turnbull's for all calls, if it is used. The steps start there: between two checks the calls do not
    determine F, and a different start would end in a different F, with its lag outside the band.
    """
    draw, lags = Random(1), []  # noqa: S311  (repeatable, not secret)
    for _ in range(resamples):
        drawn = draw.choices(calls, k=len(calls))
        intervals = Counter(interval for interval, _ in drawn)
        known = smoothed(turnbull(intervals, *_grid(COARSE_S), rounds=50, start=estimate)) if estimate else None
        again = law if known else fit_lognormal(intervals, start=law, rounds=12)
        model = _model([life for _, life in drawn], COARSE_S, again, known)
        lags.append((model.lag(schedules[0].at_s), model.lag(schedules[1].at_s)))
    return lags


def _band(values: Sequence[float]) -> Band:
    ordered = sorted(values)
    if not ordered:
        return (-inf, inf)
    return ordered[int(0.025 * (len(ordered) - 1))], ordered[-1 - int(0.025 * (len(ordered) - 1))]

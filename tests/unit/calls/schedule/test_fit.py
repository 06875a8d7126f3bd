"""Laws of the fit: a known distribution is found again, the lognormal is given up when calls speak against it."""

import tomllib
from itertools import pairwise
from math import ceil, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.app.commands.schedule import checks_table, fit_document, fit_lines
from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.estimate import (
    Observation,
    fit_lognormal,
    interval_of,
    kaplan_meier,
    likelihood,
    smoothed,
    turnbull,
)
from callkeeper.calls.schedule.fit import MIN_CALLS, MIN_DECIDED, Sample, TooFewCalls, fit
from callkeeper.calls.schedule.model import Lognormal, Model
from callkeeper.calls.schedule.optimum import backoff_optimum
from callkeeper.calls.schedule.plan import schedule_faults
from tests.simulated_calls import drawn_times, observed_through

SHIPPED = load_rules(None).schedule
LAWS = {
    "prior": (Lognormal(25, 0.7), Lognormal(240, 0.85)),
    "fast": (Lognormal(10, 0.6), Lognormal(240, 0.7)),
    "slow": (Lognormal(60, 0.6), Lognormal(360, 0.7)),
    "short-calls": (Lognormal(25, 0.8), Lognormal(60, 0.6)),
    "half-as-fast-as-assumed": (Lognormal(50, 0.7), Lognormal(240, 0.85)),
    "half-never": (Lognormal(30, 1.0, share=0.5), Lognormal(200, 0.5)),
}


def watched(result: Lognormal, call: Lognormal, count: int, seed: int) -> list[Observation]:
    """Return calls drawn from two laws and watched by the shipped schedule."""
    draw = Random(seed)  # noqa: S311  (repeatable, not secret)
    return list(observed_through(SHIPPED, drawn_times(result, count, draw), drawn_times(call, count, draw)))


@pytest.mark.parametrize(
    "law",
    [pytest.param(law, id=name, marks=() if name == "prior" else pytest.mark.night) for name, law in LAWS.items()],
)
def test_fit_recovers_a_known_distribution(law: tuple[Lognormal, Lognormal]) -> None:
    """From 2,000 calls watched by the shipped schedule, the fitted times are within 10 % of the best for the true laws."""
    result, call = law
    truth = Model.of(result.cdf, call.survival)
    found = fit(watched(result, call, 2000, seed=11), SHIPPED, resamples=0)
    assert found.law_fits
    assert truth.lag(found.schedule.at_s) <= 1.10 * truth.lag(backoff_optimum(truth, 18))
    assert truth.lag(found.schedule.at_s) <= 1.01 * truth.lag(SHIPPED.at_s)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(name, marks=() if name == "slow" else pytest.mark.night)
        for name in LAWS
        if name not in {"prior", "half-never"}
    ],
)
def test_fitted_schedule_beats_the_shipped_one_where_its_prior_is_wrong(wrong: str) -> None:
    """Where calls are not as the shipped times assume, the fitted ones are better, and the fit itself says so."""
    result, call = LAWS[wrong]
    truth = Model.of(result.cdf, call.survival)
    found = fit(watched(result, call, 2000, seed=5), SHIPPED, resamples=40)
    assert truth.lag(found.schedule.at_s) < 0.9 * truth.lag(SHIPPED.at_s)
    assert found.gain[1][0] > 1.0


def test_fit_of_two_kinds_of_calls_gives_up_the_lognormal() -> None:
    """Half the results come at 10 s, half at 70 s: no lognormal is that; Turnbull's estimate is within 15 % of the best."""
    early, late, draw = Lognormal(10, 0.3), Lognormal(70, 0.3), Random(3)  # noqa: S311  (repeatable, not secret)
    results = [(early if draw.random() < 0.5 else late).quantile(draw.random()) for _ in range(2000)]
    lives = drawn_times(Lognormal(240, 0.7), 2000, draw)
    found = fit(list(observed_through(SHIPPED, results, lives)), SHIPPED, resamples=0)
    truth = Model.of(lambda t: (early.cdf(t) + late.cdf(t)) / 2, Lognormal(240, 0.7).survival)
    assert not found.law_fits
    assert truth.lag(found.schedule.at_s) <= 1.15 * truth.lag(backoff_optimum(truth, 18))
    assert schedule_faults(found.schedule.at_s, found.schedule.reserve) == []


def test_fit_has_a_band_around_the_truth() -> None:
    """The 95 % band of the lag in force holds its true value, and narrows with more calls."""
    result, call = LAWS["prior"]
    true_lag = Model.of(result.cdf, call.survival).lag(SHIPPED.at_s)
    bands = [
        fit(watched(result, call, count, seed=2), SHIPPED, resamples=30).lag_in_force.band_s for count in (400, 2000)
    ]
    assert all(low <= true_lag <= high for low, high in bands)
    assert bands[1][1] - bands[1][0] < bands[0][1] - bands[0][0]


@pytest.mark.parametrize("sigma", [pytest.param(0.1, marks=pytest.mark.night), 0.3])
def test_each_mean_lies_in_its_own_band(sigma: float) -> None:
    """Where no lognormal fits, the means and the bands come from the same estimate: each band holds its mean."""
    draw = Random(3)  # noqa: S311  (repeatable, not secret)
    results = [Lognormal(median, sigma).quantile(draw.random()) for median in (10, 30) for _ in range(1000)]
    found = fit(list(observed_through(SHIPPED, results, [60.0] * 2000)), SHIPPED, resamples=40)
    assert not found.law_fits
    for mean, (low, high) in [(lag.mean_s, lag.band_s) for lag in (found.lag, found.lag_in_force)] + [found.gain]:
        assert low <= mean <= high


def test_fit_is_repeatable() -> None:
    """The same calls give the same times and the same band."""
    calls = watched(*LAWS["prior"], 300, seed=1)
    assert fit_document(fit(calls, SHIPPED, resamples=3)) == fit_document(fit(calls, SHIPPED, resamples=3))


@pytest.mark.parametrize(
    ("calls", "decided"),
    [(0, 0), (MIN_CALLS - 1, MIN_CALLS - 1), (1000, MIN_DECIDED - 1)],
    ids=["none", "too-few-calls", "too-few-results"],
)
def test_fit_refuses_too_few_calls(calls: int, decided: int) -> None:
    """With fewer calls, or fewer results, than carry a schedule there is none: the numbers are said."""
    seen = [Observation(5.0, 10.0 if n < decided else None, 60.0) for n in range(calls)]
    with pytest.raises(TooFewCalls, match=rf"{calls} watched calls, {decided} of them.*{MIN_CALLS} and {MIN_DECIDED}"):
        fit(seen, SHIPPED)


def test_sample_draws_evenly_from_all_calls() -> None:
    """Of ten times as many calls, a tenth of each part of them is kept."""
    calls, sample = watched(*LAWS["prior"], 10_000, seed=1), Sample(1_000)
    for call in calls:
        sample.add(call)
    assert (len(sample.observations), sample.added) == (1_000, 10_000)
    place = {id(call): n for n, call in enumerate(calls)}
    parts = [0] * 10
    for call in sample.observations:
        parts[place[id(call)] // 1_000] += 1
    assert all(60 <= part <= 140 for part in parts)


@given(st.lists(st.tuples(st.floats(0, 800), st.floats(0.5, 300), st.booleans()), min_size=1, max_size=40))
def test_turnbull_is_a_distribution_likelier_than_an_even_one(spans: list[tuple[float, float, bool]]) -> None:
    """F never falls, stays within 0 and 1, and no interval becomes impossible; EM never loses likelihood."""
    seen = {interval_of(Observation(a, a + w if is_seen else None, 900.0)): 1 for a, w, is_seen in spans}
    few, many = (turnbull(seen, 901, 1.0, rounds=rounds) for rounds in (1, 25))
    assert all(a <= b + 1e-9 for a, b in pairwise(many))
    assert many[0] == 0.0
    assert many[-1] <= 1.0

    def at(known: list[float], t: float) -> float:
        return known[min(int(t + 0.5), 900)]

    def score(known: list[float]) -> float:
        ends = {(float(int(a)), inf if b == inf else float(ceil(b))): n for (a, b), n in seen.items()}
        return likelihood(lambda t: at(known, t), ends)

    assert score(many) >= score(few) - 1e-6


def test_turnbull_of_exact_times_is_the_share_that_came() -> None:
    """Where every interval is one cell, the estimate is the share of calls whose result had come."""
    seen = {(float(n), float(n + 1)): 1 for n in range(10)}
    known = turnbull(seen, 11, 1.0)
    assert known == pytest.approx([n / 10 for n in range(11)], abs=1e-4)


def test_smoothing_keeps_what_is_smooth() -> None:
    """A straight F stays what it is, and jumps are spread without passing their total."""
    straight = [n / 100 for n in range(101)]
    assert smoothed(straight)[:80] == pytest.approx(straight[:80], abs=0.02)
    jump = smoothed([0.0] * 50 + [1.0] * 51)
    assert all(a <= b for a, b in pairwise(jump))
    assert (jump[30], jump[80]) == (0.0, 1.0)


@pytest.mark.parametrize("truth", [Lognormal(20, 0.5), Lognormal(40, 0.9, share=0.6)], ids=["all", "some-never"])
def test_lognormal_is_found_from_fine_intervals(truth: Lognormal) -> None:
    """From intervals of a second and calls that are long enough, the parameters come back within a few percent."""
    times = drawn_times(truth, 4000, Random(4))  # noqa: S311  (repeatable, not secret)
    seen: dict[tuple[float, float], int] = {}
    for t in times:
        interval = (float(int(t)), float(int(t) + 1)) if t < 900 else (900.0, inf)
        seen[interval] = seen.get(interval, 0) + 1
    found = fit_lognormal(seen)
    assert found.median_s == pytest.approx(truth.median_s, rel=0.06)
    assert found.sigma == pytest.approx(truth.sigma, rel=0.06)
    assert found.share == pytest.approx(truth.share, abs=0.03)


def test_kaplan_meier_counts_the_lost_as_alive_until_then() -> None:
    """Two of four calls end at 2 s and 4 s, one is lost from sight at 3 s, one goes on: 3/4, and then half of that."""
    alive = kaplan_meier([(2.0, True), (3.0, False), (4.0, True), (100.0, True)], 6, 1.0)
    assert alive == pytest.approx([1, 1, 0.75, 0.75, 0.375, 0.375])


def test_fitted_table_can_be_read_as_rules() -> None:
    """The printed table is TOML whose times and reserve are the fitted ones; the text names lags and their band."""
    found = fit(watched(*LAWS["fast"], 400, seed=9), SHIPPED, resamples=5)
    table = tomllib.loads(checks_table(found, 0))["checks"]
    assert (tuple(table["at"]), table["reserve"]) == (found.schedule.at_s, SHIPPED.reserve)
    text = "\n".join(fit_lines(found, "default"))
    assert "better by a factor of" in text
    assert "95 %" in text

"""Laws of the optimiser: it is exact, its law of gaps costs next to nothing, and it is fast."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.model import STEP_S, Lognormal, Model, prior
from callkeeper.calls.schedule.optimum import TooManyChecks, backoff_optimum, exhaustive_backoff
from callkeeper.calls.schedule.plan import Schedule, schedule_faults
from tests.free_optimum import optimum
from tests.simulated_calls import closed_rule

LAWS = {
    "prior": (Lognormal(25, 0.7), Lognormal(240, 0.85)),
    "fast": (Lognormal(10, 0.6), Lognormal(240, 0.7)),
    "slow": (Lognormal(60, 0.6), Lognormal(360, 0.7)),
    "short-calls": (Lognormal(25, 0.8), Lognormal(60, 0.6)),
    "narrow": (Lognormal(60, 0.3), Lognormal(240, 0.7)),
    "half-never": (Lognormal(30, 1.0, share=0.5), Lognormal(200, 0.5)),
}
each_law = pytest.mark.parametrize(
    "law",
    [pytest.param(law, id=name, marks=() if name == "prior" else pytest.mark.night) for name, law in LAWS.items()],
)


def model_of(law: tuple[Lognormal, Lognormal], step_s: float = STEP_S) -> Model:
    """Return a pair of laws on a grid over 15 minutes."""
    result, call = law
    return Model.of(result.cdf, call.survival, step_s=step_s)


@st.composite
def small_models(draw: st.DrawFn) -> Model:
    """Draw F and S of any shape, with jumps and plateaus, at up to 12 nodes."""
    steps = draw(st.integers(3, 11))
    shares = st.lists(st.sampled_from([0.0, 0.0, 0.05, 0.2, 1.0, 3.0]), min_size=steps + 1, max_size=steps + 1)
    known, dead = draw(shares), draw(shares)
    return Model(
        0.5,
        tuple(sum(known[: n + 1]) / (sum(known) + 1) for n in range(steps + 1)),
        tuple(1 - sum(dead[: n + 1]) / (sum(dead) + 1) for n in range(steps + 1)),
    )


def nodes_of(model: Model, times: tuple[float, ...]) -> list[int]:
    """Return times on the grid as nodes."""
    return [round(t / model.step_s) for t in times]


def never_shrinks(nodes: tuple[int, ...]) -> bool:
    """Tell whether every gap after the first check is at least as long as the one before it."""
    gaps = [b - a for a, b in pairwise(nodes)]
    return all(b >= a for a, b in pairwise(gaps))


@given(small_models(), st.integers(1, 4))
def test_optimum_equals_brute_force(model: Model, n: int) -> None:
    """No choice of n nodes is cheaper than the optimum, whatever F and S are."""
    if n >= model.end:
        return
    cheapest = min(model.cost_of(nodes) for nodes in combinations(range(1, model.end), n))
    assert model.cost_of(nodes_of(model, optimum(model, n))) == pytest.approx(cheapest, abs=1e-12)


@given(small_models(), st.integers(1, 4))
def test_backoff_optimum_equals_brute_force(model: Model, n: int) -> None:
    """No choice of n nodes with gaps that never shrink is cheaper than the backoff optimum."""
    if n >= model.end:
        with pytest.raises(TooManyChecks):
            backoff_optimum(model, n)
        return
    choices = [nodes for nodes in combinations(range(1, model.end), n) if never_shrinks(nodes)]
    found = tuple(nodes_of(model, backoff_optimum(model, n)))
    assert never_shrinks(found)
    assert model.cost_of(found) == pytest.approx(min(map(model.cost_of, choices)), abs=1e-12)


@given(small_models(), st.lists(st.integers(0, 11), min_size=4, max_size=4))
def test_gap_cost_satisfies_the_quadrangle_inequality(model: Model, places: list[int]) -> None:
    """Crossing gaps never cost more than nested ones: what makes the search for the best predecessor monotone."""
    a, a2, b, b2 = sorted(min(place, model.end) for place in places)
    assert model.gap(a, b) + model.gap(a2, b2) <= model.gap(a, b2) + model.gap(a2, b) + 1e-12


@each_law
def test_optimum_equals_the_plain_programme(law: tuple[Lognormal, Lognormal]) -> None:
    """The lower envelope finds what trying every predecessor finds, for 18 checks."""
    model, n = model_of(law, step_s=3.0), 18
    best = [model.gap(0, b) for b in range(model.end + 1)]
    for _ in range(n - 1):
        best = [min((best[a] + model.gap(a, b) for a in range(b)), default=1e9) for b in range(model.end + 1)]
    plain = min(best[b] + model.gap(b, model.end) for b in range(n, model.end))
    assert model.cost(optimum(model, n)) == pytest.approx(plain, rel=1e-9)


@each_law
def test_refinement_loses_nothing_against_exhaustion(law: tuple[Lognormal, Lognormal]) -> None:
    """Coarse and then finer is within 1.001 of exhausting every backoff schedule on the fine grid."""
    model = model_of(law, step_s=1.0)
    exact = model.cost_of(exhaustive_backoff(model, 18))
    assert model.cost(backoff_optimum(model, 18)) <= 1.001 * exact


@each_law
def test_optimum_on_the_usual_grid_is_within_a_thousandth(law: tuple[Lognormal, Lognormal]) -> None:
    """On a grid five times finer nothing better than by 0.1 % is found."""
    fine = model_of(law, step_s=STEP_S / 5)
    assert fine.cost(optimum(model_of(law), 18)) <= 1.001 * fine.cost(optimum(fine, 18))


@each_law
def test_law_of_gaps_costs_less_than_a_hundredth(law: tuple[Lognormal, Lognormal]) -> None:
    """A backoff schedule loses at most 1 % against the best schedule of any shape."""
    model = model_of(law)
    assert model.cost(backoff_optimum(model, 18)) <= 1.01 * model.cost(optimum(model, 18))


@each_law
def test_backoff_optimum_is_a_valid_schedule(law: tuple[Lognormal, Lognormal]) -> None:
    """What is found can be written into a rules file as it is."""
    assert schedule_faults(backoff_optimum(model_of(law), 18), 2) == []


@each_law
def test_closed_rule_confirms_the_optimum(law: tuple[Lognormal, Lognormal]) -> None:
    """The rule for many checks is never cheaper, near for 18, and the nearer the more checks there are."""
    model = model_of(law, step_s=0.2)
    few, many = (model.cost(closed_rule(model, n)) / model.cost(optimum(model, n)) for n in (18, 50))
    assert 1 - 1e-9 <= many < few < 1.15
    assert many < 1.05


@pytest.mark.parametrize("name", ["default", "watch-only"])
def test_shipped_schedule_is_the_optimum_of_its_prior(name: str) -> None:
    """The times of the shipped rules are those that the optimiser finds for the documented prior."""
    schedule = load_rules(name).schedule
    assert schedule == Schedule(backoff_optimum(prior(), schedule.automatic_limit), schedule.reserve)

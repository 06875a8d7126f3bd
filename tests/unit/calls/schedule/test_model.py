"""The cost of a schedule."""

from math import inf

import pytest

from callkeeper.calls.schedule.model import HORIZON_S, PRIOR_RESULT, Lognormal, Model


def test_lognormal_is_a_distribution_of_its_share() -> None:
    """Nothing before 0, half of its share at the median, its share at the end."""
    time = Lognormal(20.0, 0.7, share=0.8)
    assert time.cdf(0) == time.cdf(-1) == 0
    assert time.cdf(20.0) == pytest.approx(0.4)
    assert time.cdf(inf) == pytest.approx(0.8)
    assert time.survival(20.0) == pytest.approx(0.6)
    assert time.quantile(0.5) == pytest.approx(20.0)
    assert Lognormal(20.0, 0.7).cdf(time.quantile(0.9)) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("known", "alive"),
    [((0, 1), (1, 1)), ((0, 1, 0.5), (1, 1, 1)), ((0, 0, 0), (1, 0, 0.5)), ((0, 0, 0), (1, 1, 1, 1))],
    ids=["too short", "a result goes away", "a call comes back", "different grids"],
)
def test_curves_that_cannot_be_are_refused(known: tuple[float, ...], alive: tuple[float, ...]) -> None:
    """A result does not go away, and a call does not come back."""
    with pytest.raises(ValueError, match=r"grid|somewhere"):
        Model(1.0, known, alive)


def test_model_reaches_to_the_horizon() -> None:
    """Both ends are nodes."""
    model = Model.of(PRIOR_RESULT.cdf, lambda _: 1.0, step_s=1.0)
    assert model.horizon_s == HORIZON_S
    assert model.end == len(model.known) - 1 == HORIZON_S

"""The request budget in virtual time: its bound, what it learns, and that no class of work starves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.request_budget_model import CLASSES, Load

SHARES = {1: 0.3, 2: 0.3, 3: 0.15, 4: 0.1}
"""What ``request_budget.lua`` keeps for each class while it waits."""

OVERLOAD = (0.1, 0.5, 0.1, 0.8)
"""Work per second of each class, as a share of the limit: half as much again as can be served."""

LEARNED_S = 15


@settings(max_examples=6, deadline=None)
@given(
    rate=st.sampled_from([2.0, 5.0, 15.0, 40.0]),
    processes=st.integers(1, 50),
    demand=st.floats(0.5, 2.5),
    seed=st.integers(0, 1000),
)
def test_rate_that_is_set_is_a_bound(rate: float, processes: int, demand: float, seed: int) -> None:
    """However many ask, no 10 s hold more than ten times the rate, 0.15 s of it, two, and what was late to leave."""
    jitter_s = 0.03
    arrivals = [demand * share * rate for share in OVERLOAD]
    load = Load(rate, 0, arrivals, processes=processes, jitter_s=jitter_s, seed=seed).run(25)
    assert load.most_in(10) <= rate * (10 + jitter_s + 0.15) + 2


@pytest.mark.parametrize("limit", [5, 15, 100])
@pytest.mark.parametrize("is_set", [True, False], ids=["set", "learned"])
def test_limit_is_used_and_seldom_exceeded(limit: int, is_set: bool) -> None:
    """After 15 s over 80 % of a limit is used while work waits, and less than 5 % of the requests is refused."""
    load = Load(0.95 * limit * is_set, limit, [limit * share for share in OVERLOAD], processes=10).run(30)
    told = load.summary(LEARNED_S)
    assert told["answered_per_s"] > 0.8 * limit, told
    assert told["refused_share"] < 0.05, told


@pytest.mark.parametrize("greedy", CLASSES)
def test_no_class_starves(greedy: int) -> None:
    """Whichever class has far too much work, the others get what they need as long as that is less than their share."""
    rate = 20.0
    arrivals = [3.0 if c == greedy else 0.8 * SHARES[c] for c in CLASSES]
    told = Load(rate, 0, [rate * share for share in arrivals], processes=10).run(25).summary(5)
    served = {c: told["served"][c] for c in CLASSES if c != greedy}
    assert all(per_s > 0.6 * SHARES[c] * rate for c, per_s in served.items()), told


def test_effects_and_checks_come_before_reads() -> None:
    """Where the limit allows for all of them, effects and checks are not late because of reads and listings."""
    told = Load(15.0, 0, [1.5, 7.5, 1.5, 20.0], processes=10).run(30).summary(5)
    assert told["p99"][1] < 3
    assert told["p99"][2] < 5

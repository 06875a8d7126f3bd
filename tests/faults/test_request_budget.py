"""The request budget in virtual time: it keeps its limit, learns an unset one, and starves no class of work."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calls.store.request_budget import MARGIN
from tests.request_budget_model import CLASSES, REQUESTS, Load

SHARES = {1: 0.3, 2: 0.3, 3: 0.15, 4: 0.1}
"""The share that ``request_budget.lua`` reserves for each class while requests of it wait."""

OVERLOAD = (0.05, 0.5, 0.1, 0.8)
"""Work per second of each class, as a share of the limit. Together it is one and a half times the limit."""

LEARNED_S = 15


@settings(max_examples=6, deadline=None)
@given(
    rate=st.sampled_from([2.0, 5.0, 15.0, 40.0]),
    processes=st.integers(1, 50),
    demand=st.floats(0.5, 2.5),
    seed=st.integers(0, 1000),
)
def test_rate_that_is_set_is_a_bound(rate: float, processes: int, demand: float, seed: int) -> None:
    """There are never more than ten times the rate in 10 s, and with a small rate never more than it in one second."""
    arrivals = [demand * share * rate for share in OVERLOAD]
    load = Load(MARGIN * rate, 0, arrivals, processes=processes, jitter_s=0.02, latency_s=0.01, seed=seed).run(25)
    assert load.most_in(10) <= 10 * rate
    assert rate > 15 or load.most_in(1) <= rate


@pytest.mark.parametrize("limit", [5, 15, 100])
@pytest.mark.parametrize("is_set", [True, False], ids=["set", "learned"])
@pytest.mark.parametrize("processes", [2, 10])
def test_limit_is_used_and_seldom_exceeded(limit: int, is_set: bool, processes: int) -> None:
    """After 15 s more than 80 % of a limit is used while work waits, and less than 5 % of the requests are refused."""
    arrivals = [limit * share for share in OVERLOAD]
    told = Load(MARGIN * limit * is_set, limit, arrivals, processes=processes).run(45).summary(LEARNED_S)
    assert told["answered_per_s"] > 0.8 * limit, told
    assert told["refused_share"] < 0.05, told


def test_refusals_for_other_reasons_hardly_lower_the_rate() -> None:
    """If one request in ten is refused at any rate, the learned rate stays above 3 requests a second."""
    told = Load(0, 0, [20 * share for share in OVERLOAD], processes=2, busy=0.1).run(60).summary(30)
    assert told["answered_per_s"] > 3, told


@pytest.mark.parametrize("greedy", CLASSES)
def test_no_class_starves(greedy: int) -> None:
    """If one class has too much work, the others still get what they need, up to their share."""
    rate = 20.0
    arrivals = [(1.5 if c == greedy else 0.8 * SHARES[c]) / REQUESTS[c] for c in CLASSES]
    told = Load(rate, 0, [rate * share for share in arrivals], processes=10).run(40).summary(5)
    served = {c: told["served"][c] for c in CLASSES if c != greedy}
    assert all(REQUESTS[c] * per_s > 0.5 * SHARES[c] * rate for c, per_s in served.items()), told


def test_effects_and_checks_come_before_reads() -> None:
    """If the limit allows for all effects and checks, reads and listings do not make them late."""
    told = Load(MARGIN * 15, 0, [0.75, 7.5, 1.5, 20.0], processes=10).run(30).summary(5)
    assert told["p99"][1] < 3
    assert told["p99"][2] < 5

"""The request budget in virtual time: it keeps its limit, learns an unset one, and starves no class of work."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callkeeper.calls.store.request_budget import MARGIN
from tests.request_budget_model import CLASSES, REQUESTS, Load, Service, shedding

SHARES = {1: 0.3, 2: 0.3, 3: 0.15, 4: 0.1}
"""The share that ``permits.lua`` reserves for each class while requests of it wait."""

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


@pytest.mark.parametrize(
    ("limit", "is_set", "processes", "seconds"),
    [
        *product((5, 15), (True, False), (2, 10), (45,)),
        pytest.param(100, True, 10, 25, marks=pytest.mark.night),
        (100, False, 2, 25),
        *(pytest.param(*each, marks=pytest.mark.night) for each in product((100,), (True, False), (2, 10), (45,))),
    ],
)
def test_limit_is_used_and_seldom_exceeded(limit: int, is_set: bool, processes: int, seconds: int) -> None:
    """After 15 s more than 80 % of a limit is used while work waits, and less than 5 % of the requests are refused."""
    arrivals = [limit * share for share in OVERLOAD]
    told = Load(MARGIN * limit * is_set, limit, arrivals, processes=processes).run(seconds).summary(LEARNED_S)
    assert told["answered_per_s"] > 0.8 * limit, told
    assert told["refused_share"] < 0.05, told


def test_refusals_for_other_reasons_hardly_lower_the_rate() -> None:
    """If one request in ten is refused at any rate, the learned rate stays above 3 requests a second."""
    told = Load(0, 0, [20 * share for share in OVERLOAD], processes=2, busy=0.1).run(60).summary(30)
    assert told["answered_per_s"] > 3, told


MIDDLE = (2, 3)
"""Checks and listings, tried at night. Effects, which go first, and reads, which go last, are tried for every change."""


@pytest.mark.parametrize("greedy", [pytest.param(c, marks=pytest.mark.night) if c in MIDDLE else c for c in CLASSES])
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


WORK = [0.02 * 24, 0.46 * 24, 0.1 * 24, 0.4 * 24]
"""Work per second of each class, as calls of all ages make it: 24.5 requests."""


def failing(begin: float, end: float, percent: int = 50) -> Service:
    """Return a service that answers 503 to some requests for a while."""
    numbers = iter(range(1_000_000))
    return lambda now: (503 if begin < now < end and 37 * next(numbers) % 100 < percent else 200, 0.05)


def test_service_that_answers_503_gets_fewer_requests() -> None:
    """A service that answers 503 to what is too much is used, and refuses a third at most, not what piles up."""
    told = Load(0, 0, WORK, processes=2, service=shedding(18)).run(45).summary(15)
    assert told["refused_share"] < 0.35, told
    assert told["answered_per_s"] > 0.75 * 18, told


@pytest.mark.parametrize("percent", [*(pytest.param(each, marks=pytest.mark.night) for each in (20, 50)), 100])
def test_load_lowers_the_rate_to_a_share_only(percent: int) -> None:
    """However many get 503, more than half as much is sent as before: reads wait, effects and checks do not."""
    load = Load(0, 0, WORK, processes=2, service=failing(1010, 1100, percent)).run(40)
    rates = [rate for _, rate in load.rates if rate]
    assert rates
    assert min(rates) > 0.5 * 24


@pytest.mark.parametrize("lasts_s", [pytest.param(3, marks=pytest.mark.night), 20])
def test_service_is_used_in_full_soon_after_503(lasts_s: int) -> None:
    """Ten seconds after the last 503 as much can be sent as before; half a minute later nothing needs a permit."""
    end = 1010 + lasts_s
    load = Load(0, 0, WORK, processes=2, service=failing(1010, end)).run(10 + lasts_s + 40)
    after = {at - end: rate for at, rate in load.rates}
    assert after[10.0] == 0 or after[10.0] > 24
    assert after[35.0] == 0


def test_usual_service_is_not_limited() -> None:
    """A service that answers one request in a hundred with 503 needs no permits."""
    assert not Load(0, 0, WORK, processes=2, service=failing(0, 2000, 1)).run(40).asks

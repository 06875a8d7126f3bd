"""The estimate of what an installation needs: arithmetic on measured costs."""

import pytest

from benchmarks.capacity import STEP, Costs, costs_of, most_calls, need, requests_per_s
from benchmarks.scale import Watched
from callkeeper.calls.schedule.reads import BUSY


def watched(requests: int, cpu_s: float, redis_share: float) -> Watched:
    """Return what watching for ten seconds came to."""
    return Watched([0.01], requests, cpu_s, 10.0, 70.0, redis_share, 2000.0, 1000.0)


COSTS = costs_of(watched(1000, 2.0, 0.05), watched(5000, 6.0, 0.13))


def test_costs_are_those_that_were_measured() -> None:
    """Two measurements lie on the line that they give."""
    assert need(100, 1000, COSTS, 1).worker_cores == pytest.approx(0.2)
    assert need(500, 5000, COSTS, 1).worker_cores == pytest.approx(0.6)
    assert need(500, 5000, COSTS, 1).redis_cores == pytest.approx(0.13)
    assert need(500, 5000, COSTS, 1).memory_mb == pytest.approx(70 + 15)


@pytest.mark.parametrize("per_s", [1.0, 500.0, 5000.0, 20000.0])
def test_no_worker_and_no_redis_is_too_busy(per_s: float) -> None:
    """However many requests: each worker and each Redis has room for bursts."""
    found = need(per_s, 1000, COSTS)
    assert found.worker_cores <= BUSY * found.workers
    assert found.redis_cores <= BUSY * found.installations


def test_busy_worker_is_later() -> None:
    """The fuller its core, the later its checks; a full one is late, not infinitely so."""
    found = [need(per_s, 1000, COSTS, 1).late_ms for per_s in (10, 300, 600, 3000)]
    assert found == sorted(found)
    assert 10 < found[0] < 50
    assert found[-1] < 100_000


def test_institutions_cost_listings() -> None:
    """The same calls of more institutions need more requests; more calls of one institution, too."""
    spread = [requests_per_s(10_000, institutions) for institutions in (1, 100, 1000, 10_000)]
    assert spread == sorted(spread)
    assert requests_per_s(1, 1) == pytest.approx(0.22 + 0.082)
    assert requests_per_s(500, 1) == pytest.approx(1.04 + 41, rel=0.01)


def test_costs_never_become_negative() -> None:
    """Noise of a measurement cannot give an installation that needs less with more calls."""
    found = costs_of(watched(1000, 3.0, 0.2), watched(5000, 2.0, 0.1))
    assert found == Costs(0.3, 0.0, 0.2, 0.0, 70.0, 3.0)


@pytest.mark.parametrize("institutions", [1, 100])
def test_largest_installation_has_one_redis(institutions: int) -> None:
    """The calls that one Redis carries need one; some more need another."""
    live = most_calls(institutions, COSTS)
    found = [need(requests_per_s(calls, institutions), calls, COSTS).installations for calls in (live, live + STEP)]
    assert found == [1, 2]

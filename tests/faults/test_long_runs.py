"""What the failover run and the soak count as a fault, and what they excuse; the load of the chaos run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from callkeeper.calls.trail import Entry, What
from tests.faults import audit
from tests.faults.chaos_system import fitting_load
from tests.faults.failover_run import Loss, held_against, unverified
from tests.faults.soak import Look, grown

T0 = datetime(2026, 11, 21, 12, tzinfo=UTC)
LOSS = Loss(T0 + timedelta(seconds=10), T0 + timedelta(seconds=13))
MIB = 2**20


def line(at_s: float, what: What, kind: str | None = None) -> Entry:
    """Return a line of a trail."""
    return Entry(at=T0 + timedelta(seconds=at_s), what=what, kind=kind)


@pytest.mark.parametrize(
    ("lines", "is_fault"),
    [
        ([line(1, "listed"), line(15, "verifying"), line(16, "sent", "enroll")], False),
        ([line(1, "listed"), line(16, "sent", "enroll"), line(17, "verifying")], True),
        ([line(1, "listed"), line(16, "sent", "enroll")], True),
        ([line(1, "listed"), line(11, "sent", "enroll")], False),
        ([line(1, "listed"), line(2, "sent", "enroll")], False),
        ([line(11, "listed"), line(16, "sent", "enroll")], False),
    ],
    ids=["verified", "verified too late", "never verified", "by the old master", "before", "a call of the new master"],
)
def test_failover_judge_wants_details_before_effects(lines: list[Entry], is_fault: bool) -> None:
    """An effect of a call that was known before a loss is a fault unless the call was verified after the loss."""
    assert bool(list(unverified({"v": tuple(lines)}, [LOSS]))) is is_fault


@pytest.mark.parametrize(("arrived_s", "is_forgiven"), [(9.0, True), (14.0, True), (5.0, False), (20.0, False)])
def test_failover_judge_forgives_only_bookings_around_a_loss(arrived_s: float, is_forgiven: bool) -> None:
    """An unbooked check is excused if it arrived around the loss of a master, and not at other times."""
    arrivals = [{"at": (T0 + timedelta(seconds=arrived_s)).isoformat(), "operation": "check"}]
    told, forgotten = held_against(["v: 2 checks arrived, 1 were booked"], evidence(arrivals), [LOSS])
    assert (told == [], forgotten == 1) == (is_forgiven, is_forgiven)


@pytest.mark.parametrize("fault", ["v: 2 of enroll", "v: assign arrived, and our ledger does not know of it"])
def test_failover_judge_never_forgives_an_effect(fault: str) -> None:
    """A second enroll or an unbooked assign is a fault also around a loss: effects wait until a replica knows them."""
    arrivals = [{"at": LOSS.at.isoformat(), "operation": "enroll"}]
    assert held_against([fault], evidence(arrivals), [LOSS]) == ([fault], 0)


def evidence(arrivals: list[Any]) -> audit.Evidence:
    """Return data in which one call has these arrivals."""
    return audit.Evidence(
        accounts={"v": {"arrivals": arrivals}},
        unknown={},
        records={},
        accepted=frozenset(),
        logged=frozenset(),
        bugs=(),
        found_after_s=25,
    )


@pytest.mark.parametrize(
    ("sizes", "is_leak"),
    [
        ([50, 80, 100, 101, 100, 102, 101, 103], False),
        ([50, 60, 70, 80, 90, 100, 110, 120], True),
        ([10, 11, 11, 12, 12, 13, 13, 14], False),
    ],
    ids=["warm", "a leak", "small change"],
)
def test_soak_judge_tells_a_leak_from_warming_up(sizes: list[int], is_leak: bool) -> None:
    """Memory may rise at first and vary afterwards, but not keep rising."""
    taken = [Look(n * 60.0, {"worker-0": size * MIB}, 0, 0, 0.0) for n, size in enumerate(sizes)]
    assert bool(grown(taken)) is is_leak


@pytest.mark.parametrize(
    ("variants", "gap_s", "environ"),
    [
        ([], 0.4, {}),
        (["busy-all"], 0.4, {}),
        (["list-refused", "limit-5"], 4.0, {"CALLKEEPER_SERVICE_RPS": "5"}),
        (["limit-15"], 4 / 3, {"CALLKEEPER_SERVICE_RPS": "15"}),
        (["limit-100"], 0.4, {"CALLKEEPER_SERVICE_RPS": "100"}),
    ],
    ids=["no limit", "429 without a limit", "limit-5", "limit-15", "limit-100"],
)
def test_chaos_starts_as_many_calls_as_the_service_can_serve(
    variants: list[str], gap_s: float, environ: dict[str, str]
) -> None:
    """If the service limits requests, workers are told the limit, and calls come in at a rate that it allows."""
    load = fitting_load(variants)
    assert load.gap_s == pytest.approx(gap_s)
    assert load.environ == environ

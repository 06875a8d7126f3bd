"""The scenario: repeatable, varied, and independent of what anybody asks."""

import datetime as dt
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper_sandbox.service import population
from callkeeper_sandbox.service.faults import Fault
from callkeeper_sandbox.service.launch import Launch, build
from callkeeper_sandbox.service.scenario import Planned, Progress, Scenario, Tempo, plan
from callkeeper_sandbox.service.state import Happening, Kind, PushSettings, Truth
from tests.sandbox_fixtures import START, HandClock, Stage


def planned(seed: int, count: int) -> list[Planned]:
    """Return the first calls of a scenario."""
    return [plan(seed, index, Tempo(), START) for index in range(count)]


@given(seed=st.integers(), index=st.integers(0, 10_000))
def test_call_depends_on_seed_index_and_start(seed: int, index: int) -> None:
    """The same seed, index and start give the same call; only its ids change with the start."""
    call = plan(seed, index, Tempo(), START)
    later = plan(seed, index, Tempo(), START + dt.timedelta(microseconds=1))
    assert plan(seed, index, Tempo(), START) == call
    assert {later.voice_id, later.alternate_id}.isdisjoint({call.voice_id, call.alternate_id})
    same_ids = {"voice_id": call.voice_id, "alternate_id": call.alternate_id, "started_at": START}
    assert msgspec.structs.replace(later, **same_ids) == call


def test_restart_with_the_same_seed_reuses_no_id() -> None:
    """A stand-in that starts again without a state file brings the same callers under ids that nobody has seen."""
    clock = HandClock()
    first = build(Launch(seed=1), clock=clock)
    clock.advance(60)
    first.tick()
    second = build(Launch(seed=1), clock=clock)
    clock.advance(60)
    second.tick()
    before, after = first.world.state.calls, second.world.state.calls
    assert len(after) > 20
    assert [call.phone_number for call in after.values()] == [call.phone_number for call in before.values()]
    ids = [{id_ for call in calls.values() for id_ in (call.voice_id, call.alternate_id)} for calls in (before, after)]
    assert ids[0].isdisjoint(ids[1])


@given(seed=st.integers(), index=st.integers(0, 10_000))
def test_script_ends_with_the_end_of_the_call(seed: int, index: int) -> None:
    """Every call ends within 90 s, and nothing is scripted after its end."""
    script = plan(seed, index, Tempo(), START).script
    ends = [happening.after_s for happening in script if happening.kind is Kind.END]
    assert len(ends) == 1
    assert ends[0] <= 90
    assert all(happening.after_s <= ends[0] for happening in script)


def test_seeds_differ() -> None:
    """Another seed brings other calls."""
    assert {call.voice_id for call in planned(1, 50)}.isdisjoint(call.voice_id for call in planned(2, 50))


def test_demo_is_mixed() -> None:
    """Within 300 calls every outcome, every kind of caller and every institution occurs."""
    calls = planned(1, 300)
    kinds = {happening.kind for call in calls for happening in call.script}
    assert kinds >= {
        Kind.GREEN,
        Kind.RED,
        Kind.MISMATCH,
        Kind.PENDING,
        Kind.POLICY,
        Kind.ANSWERED_QUESTIONS,
        Kind.MFA_VALIDATED,
        Kind.OPT_OUT,
        Kind.CLAIMED,
        Kind.END,
    }
    assert {call.institution_key for call in calls} == set(population.INSTITUTIONS)
    assert any(call.listed_after_s > 0 for call in calls)
    assert 1 < sum(call.gap_s for call in calls) / len(calls) < 3


def test_demo_has_callers_with_one_two_and_no_candidates(sandbox_world: Stage) -> None:
    """The default population gives callers one candidate, two, or none, and ignored numbers."""
    population.settle(sandbox_world.world, PushSettings())
    sandbox_world.sandbox.begin(Scenario(Progress(1, START)))
    sandbox_world.advance(600)
    calls = sandbox_world.world.state.calls.values()
    found = Counter(len(sandbox_world.world.candidates(call)) for call in calls)
    assert set(found) == {0, 1, 2}
    assert any(call.phone_number == population.ignored_phone(call.institution_key) for call in calls)


@pytest.mark.parametrize("steps", [[600.0], [1.0] * 600, [13.7] * 60], ids=["one leap", "seconds", "odd"])
def test_scenario_does_not_depend_on_how_often_time_is_looked_at(steps: list[float]) -> None:
    """One leap or many small steps: the same calls with the same truth at the same instants."""
    stage = Stage()
    population.settle(stage.world, PushSettings())
    stage.sandbox.begin(Scenario(Progress(3, START)))
    for step in steps:
        stage.advance(step)
    early = START + dt.timedelta(seconds=590)
    ran = {
        call.voice_id: (call.started_at, [truth for truth in call.truth if truth.at <= early])
        for call in stage.world.state.calls.values()
        if call.started_at <= early
    }
    assert ran == expected(3, early)


def expected(seed: int, until: dt.datetime) -> dict[str, tuple[dt.datetime, object]]:
    """Work out by hand what a scenario does up to an instant."""
    at, index = START, 0
    calls: dict[str, tuple[dt.datetime, object]] = {}
    while at <= until:
        call = plan(seed, index, Tempo(), at)
        script = sorted(call.script, key=lambda happening: happening.after_s)
        calls[call.voice_id] = (at, [truth(at, happening) for happening in script if due(at, happening) <= until])
        at, index = at + dt.timedelta(seconds=call.gap_s), index + 1
    return calls


def due(start: dt.datetime, happening: Happening) -> dt.datetime:
    """Return when something happens."""
    return start + dt.timedelta(seconds=happening.after_s)


def truth(start: dt.datetime, happening: Happening) -> Truth:
    """Return what the ledger says of something that happened."""
    return Truth(happening.kind, due(start, happening), happening.text)


def test_paused_scenario_brings_no_calls_and_resumes_now(sandbox_world: Stage) -> None:
    """While paused nothing comes; afterwards the time is not made up for."""
    population.settle(sandbox_world.world, PushSettings())
    scenario = Scenario(Progress(1, START))
    sandbox_world.sandbox.begin(scenario)
    sandbox_world.advance(10)
    scenario.pause()
    before = len(sandbox_world.world.state.calls)
    sandbox_world.advance(1000)
    assert len(sandbox_world.world.state.calls) == before
    scenario.resume(sandbox_world.clock())
    sandbox_world.advance(0)
    assert len(sandbox_world.world.state.calls) == before + 1


def test_scenario_loses_and_doubles_some_pushes() -> None:
    """The shares of lost and doubled pushes are scripted as faults that one can see and lift."""
    faults: list[Fault] = Scenario(Progress(1, START)).push_faults()
    assert [(fault.action, fault.share) for fault in faults] == [("lost", 0.05), ("doubled", 0.03)]

"""The state file: everything survives a restart, and nothing half-written is ever read."""

import datetime as dt
from pathlib import Path

import pytest

from callkeeper_sandbox.service import storage
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.launch import Launch, build
from callkeeper_sandbox.service.scenario import Progress, Scenario
from callkeeper_sandbox.service.state import Happening, Kind, PushSettings
from tests.sandbox_fixtures import KEY, START, Asgi, HandClock, Stage


def restarted(stage: Stage, path: Path, after_s: float = 0) -> Stage:
    """Write a stage down and return what reads it again, some time later."""
    storage.save(path, storage.snapshot(stage.sandbox))
    again = Stage()
    again.clock = HandClock(stage.clock())
    again.clock.advance(after_s)
    read = storage.load(path)
    assert read is not None
    again.sandbox = storage.restore(read, clock=again.clock)
    again.world = again.sandbox.world
    return again


async def test_everything_survives_a_restart(sandbox_asgi: Asgi, tmp_path: Path) -> None:
    """What is written after reading is, byte for byte, what was read."""
    sandbox_asgi.sandbox.begin(Scenario(Progress(1, START + dt.timedelta(hours=1))))
    call = sandbox_asgi.call(Happening(Kind.GREEN, 5.0), persons=[{"personId": "p-1"}])
    await sandbox_asgi.enroll(call.voice_id)
    await sandbox_asgi.details(call.voice_id, check=True)
    await sandbox_asgi.queue()
    sandbox_asgi.sandbox.faults.add(Fault(target="read", action=Action.HANG, times=2))
    again = restarted(sandbox_asgi, tmp_path / "state.json")
    assert storage.snapshot(again.sandbox) == storage.snapshot(sandbox_asgi.sandbox)


def test_indexes_are_rebuilt(sandbox_world: Stage, tmp_path: Path) -> None:
    """After a restart either id finds its call, numbers find members, and a reject finds what to un-enroll."""
    call = sandbox_world.call()
    sandbox_world.happen(call, Kind.ENROLLED, person_id="p-1")
    again = restarted(sandbox_world, tmp_path / "state.json")
    found = again.world.call(KEY, call.alternate_id, alternate=True)
    assert found is not None
    assert [member.person.person_id for member in again.world.candidates(found)] == ["p-1"]
    again.happen(found, Kind.REJECTED)
    assert [activity.name for activity in found.activities][-2:] == [
        "FullAuthenticationUnenrolled",
        "RejectCallerVoice",
    ]


def test_what_was_due_meanwhile_happens_at_its_own_time(sandbox_world: Stage, tmp_path: Path) -> None:
    """A call that should have ended while nobody was there ends at its own instant."""
    call = sandbox_world.call(Happening(Kind.END, 10))
    again = restarted(sandbox_world, tmp_path / "state.json", after_s=3600)
    again.sandbox.tick()
    ended_at = again.world.state.calls[call.voice_id].ended_at
    assert ended_at is not None
    assert (ended_at - START).total_seconds() == 10


def test_missing_file_is_a_beginning(tmp_path: Path) -> None:
    """Without a file there is nothing to go on from."""
    assert storage.load(tmp_path / "none.json") is None


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"version": 1}', b"\xff"])
def test_broken_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    """A file that is not a state file stops the start with its name."""
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(storage.StateFileError, match=r"state\.json"):
        storage.load(path)


def test_file_of_another_version_is_refused(sandbox_world: Stage, tmp_path: Path) -> None:
    """A state file of another version is refused, not misread."""
    path = tmp_path / "state.json"
    written = storage.snapshot(sandbox_world.sandbox).replace(b'"version":1', b'"version":2')
    storage.save(path, written)
    with pytest.raises(storage.StateFileError, match="version 2"):
        storage.load(path)


def test_second_launch_goes_on_with_the_first(tmp_path: Path) -> None:
    """The second launch has the first one's calls and goes on with its scenario, without a second set of faults."""
    clock = HandClock()
    launch = Launch(seed=5, state_file=tmp_path / "state.json")
    first = build(launch, clock=clock)
    clock.advance(30)
    first.tick()
    storage.save(tmp_path / "state.json", storage.snapshot(first))
    clock.advance(3600)
    second = build(launch, clock=clock)
    second.tick()
    assert set(first.world.state.calls) < set(second.world.state.calls)
    assert second.scenario is not None
    assert first.scenario is not None
    assert second.scenario.progress.index == first.scenario.progress.index + 1
    assert len(second.faults.scripted) == 2


def test_launch_sets_push_settings_everywhere(tmp_path: Path) -> None:
    """A push address given at the start replaces the stored one of every institution; none given leaves it."""
    path = tmp_path / "state.json"
    settings = PushSettings("http://us/push", "A: b")
    storage.save(path, storage.snapshot(build(Launch(push=settings, state_file=path))))
    kept = build(Launch(state_file=path))
    replaced = build(Launch(push=PushSettings("http://new/"), state_file=path))
    assert {child.push for child in kept.world.state.institutions.values()} == {settings}
    assert {child.push.url for child in replaced.world.state.institutions.values()} == {"http://new/"}


def test_launch_without_scenario_pauses_the_stored_one(tmp_path: Path) -> None:
    """A scenario that rests is not forgotten: the next launch goes on where it stopped."""
    clock, path = HandClock(), tmp_path / "state.json"
    storage.save(path, storage.snapshot(build(Launch(state_file=path), clock=clock)))
    resting = build(Launch(state_file=path, has_scenario=False), clock=clock)
    clock.advance(60)
    resting.tick()
    assert not resting.world.state.calls
    storage.save(path, storage.snapshot(resting))
    going_on = build(Launch(state_file=path), clock=clock)
    going_on.tick()
    assert len(going_on.world.state.calls) == 1

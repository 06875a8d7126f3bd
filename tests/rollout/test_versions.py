"""A rolling deployment and its rollback: two releases, whose stored records differ, on one Redis under load."""

import os
from pathlib import Path

import pytest

from callkeeper.fleet import ManagedProcess
from tests.rollout.load import Floor, Load, floor
from tests.rollout.released import ROOT, install, released_commit
from tests.rollout.test_rotation import hold_to_promises, url, wait_for_calls

PHASE = 40
"""Calls between two steps: two seconds. A call lasts six, so it passes from one release to the other."""

NEWER = ("tests.rollout.other_version", "newer")
OLDER = ("tests.rollout.other_version", "older")

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
COMMIT = os.environ.get("TEST_BESIDE") or released_commit(CHANGELOG)
"""The release before ours; None while nothing is released. ``TEST_BESIDE`` names any other commit."""


def replace_and_go_back(running: Floor, load: Load, *others: tuple[str, ...]) -> list[ManagedProcess]:
    """Start workers and a web process of other releases, run them beside ours, alone, and beside ours again.

    Returns:
        The others' workers, their web process, and our workers at the end.
    """
    wait_for_calls(load, PHASE)
    headers = running.demo.environ["CALLKEEPER_PUSH_HEADERS"]
    workers = [running.start(f"worker-other-{n}", "worker", module=module) for n, module in enumerate(others, 1)]
    door = running.start("web-other", "web", module=others[0])
    running.push_to(url(door), headers)
    wait_for_calls(load, PHASE)
    for n in (1, 2):
        running.member(f"worker-{n}").stop()
    wait_for_calls(load, PHASE)
    back = [running.start(f"worker-back-{n}", "worker") for n in (1, 2)]
    running.push_to(running.demo.web_url, headers)
    wait_for_calls(load, PHASE)
    return [*workers, door, *back]


def assert_all_worked(workers: list[ManagedProcess], door: ManagedProcess) -> None:
    """Every worker settled calls, and the web process took pushes."""
    assert '"push_accepted"' in door.log.read_text()
    assert [each.name for each in workers if '"call_settled"' not in each.log.read_text()] == []


@pytest.mark.timeout(240)
def test_versions_side_by_side_lose_nothing(tmp_path: Path) -> None:
    """An older and a newer release come, work beside ours, without ours, and beside ours again: the audit is clean.

    Calls pass from one to the other at every step: each reads what the others wrote, with fields that it does not know, and
    without fields that it does. Every fourth call has a higher schema number while the newer worker handles it: the others
    leave it alone, and nothing of it is lost or late.
    """
    with floor(tmp_path, workers=2) as running:
        load = Load(running.demo.service_url)
        with load.running():
            newer, older, door, *back = replace_and_go_back(running, load, NEWER, OLDER)
            older.stop()
            door.stop()
            wait_for_calls(load, PHASE)
        hold_to_promises(running, load)
        assert running.redis.hlen("ck:attention") == 0
        assert_all_worked([newer, older, *back], door)
        assert any('"stored_unreadable"' in each.log.read_text() for each in back)


@pytest.mark.night
@pytest.mark.timeout(400)
def test_release_before_ours_runs_beside_ours(tmp_path: Path) -> None:
    """The released commit comes, works beside ours, works alone, and goes; ours goes on with what it wrote, alone.

    As long as nothing is released, a made-up older version stands in.
    """
    module = OLDER if COMMIT is None else install(COMMIT, tmp_path / "released").module
    with floor(tmp_path, workers=2) as running:
        load = Load(running.demo.service_url)
        with load.running():
            *others, door, one, two = replace_and_go_back(running, load, module, module)
            for each in (*others, door):
                each.stop()
            wait_for_calls(load, PHASE)
        hold_to_promises(running, load)
        assert_all_worked([*others, one, two], door)

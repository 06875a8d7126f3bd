"""A rolling deployment and its rollback: two releases with different stored records on one Redis, under load."""

import os
from pathlib import Path

import pytest

from callkeeper.calls.record import ASKED
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.harness.processes import Stack, stack, web_url
from tests.rollout.load import PHASE, Load
from tests.rollout.released import ROOT, install, released_commit
from tests.rollout.test_rotation import hold_to_promises, wait_for_calls

NEWER = ("tests.rollout.other_version", "newer")
OLDER = ("tests.rollout.other_version", "older")

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
COMMIT = os.environ.get("TEST_BESIDE") or released_commit(CHANGELOG)
"""The commit of the release before ours; None if nothing was released. ``TEST_BESIDE`` names another commit."""


def replace_and_go_back(running: Stack, load: Load, *others: tuple[str, ...]) -> list[ManagedProcess]:
    """Run workers and a web process of other releases beside ours, then alone, then beside ours again.

    Returns:
        The others' workers, their web process, and our workers at the end.
    """
    wait_for_calls(load, PHASE)
    headers = running.demo.environ["CALLKEEPER_PUSH_HEADERS"]
    workers = [running.start("worker", f"worker-other-{n}", module=module) for n, module in enumerate(others, 1)]
    door = running.start("web", "web-other", module=others[0])
    running.push_to(web_url(door), headers)
    wait_for_calls(load, PHASE)
    for n in (1, 2):
        running.member(f"worker-{n}").stop()
    wait_for_calls(load, PHASE)
    back = [running.start("worker", f"worker-back-{n}") for n in (1, 2)]
    running.push_to(running.demo.web_url, headers)
    wait_for_calls(load, PHASE)
    return [*workers, door, *back]


def assert_all_worked(workers: list[ManagedProcess], door: ManagedProcess) -> None:
    """Assert that every worker settled calls, and the web process accepted pushes."""
    assert '"push_accepted"' in door.log.read_text()
    assert [each.name for each in workers if '"call_settled"' not in each.log.read_text()] == []


@pytest.mark.timeout(240)
def test_versions_side_by_side_lose_nothing(tmp_path: Path) -> None:
    """An older and a newer release work beside ours, without ours, and beside ours again: the audit is clean.

    Calls pass from one release to another at every step, so each release reads records with unknown fields and with
    missing ones. Every fourth call has a higher schema number while the newer worker handles it: the others leave it
    alone, and it is settled in time.
    """
    with stack(tmp_path, workers=2) as running:
        load = Load(running.demo.service_url)
        with load.running():
            newer, older, door, *back = replace_and_go_back(running, load, NEWER, OLDER)
            older.stop()
            door.stop()
            wait_for_calls(load, PHASE)
        hold_to_promises(running, load)
        # Whom the rules ask a person about is no fault: a call of six seconds may end before the voice was heard.
        assert [why for why in running.redis.hvals("ck:2:attention") if not why.startswith(ASKED.encode())] == []
        assert_all_worked([newer, older, *back], door)
        assert any('"stored_unreadable"' in each.log.read_text() for each in back)


@pytest.mark.night
@pytest.mark.timeout(400)
def test_release_before_ours_runs_beside_ours(tmp_path: Path) -> None:
    """The released commit works beside ours, then alone; then ours continues with its records, and the audit is clean.

    If nothing was released, a made-up older version is used instead.
    """
    module = OLDER if COMMIT is None else install(COMMIT, tmp_path / "released").module
    with stack(tmp_path, workers=2) as running:
        load = Load(running.demo.service_url)
        with load.running():
            *others, door, one, two = replace_and_go_back(running, load, module, module)
            for each in (*others, door):
                each.stop()
            wait_for_calls(load, PHASE)
        hold_to_promises(running, load)
        assert_all_worked([*others, one, two], door)

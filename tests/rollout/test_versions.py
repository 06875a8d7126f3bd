"""A rolling deployment and its rollback: two releases with different stored records on one Redis, under load."""

import os
from pathlib import Path

import pytest

from callkeeper.calls.record import ASKED
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.faults.audit import CHECK_LIMIT
from tests.harness.processes import Stack, stack, web_url
from tests.rollout.load import PHASE, Load
from tests.rollout.released import ROOT, install, released_commit
from tests.rollout.test_rotation import hold_to_promises, wait_for_calls
from tests.waiting import until

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
        assert [why for why in running.redis.hvals("ck:attention") if not why.startswith(ASKED.encode())] == []
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


RELEASE_0_2_0 = "03f48e359f112bfe93c88580817615b0e796315d"
"""The last release that kept a record for each spelling of a GUID."""


@pytest.mark.night
@pytest.mark.timeout(300)
def test_records_that_release_0_2_0_kept_twice_become_one(tmp_path: Path) -> None:
    """0.2.0 keeps two records of a call that pushes spell in capitals. Ours merge them while 0.2.0 works beside them.

    Each call ends with one record, under the canonical spelling; 20 checks were made for it at most, and at most one
    enroll or reject was sent by ours. What 0.2.0 sent before is in the record.
    """
    module = install(RELEASE_0_2_0, tmp_path / "released").module
    with stack(tmp_path, workers=1) as running:
        running.control("PUT", "/variants", ["ids-capital-in-pushes"])
        running.member("worker-1").stop()
        older = running.start("worker", "worker-other", module=module)
        door = running.start("web", "web-other", module=module)
        running.push_to(web_url(door), running.demo.environ["CALLKEEPER_PUSH_HEADERS"])
        load = Load(running.demo.service_url)
        ids = [load.begin(n, ends_after_s=60.0) for n in range(CALLS_KEPT_TWICE)]
        until(lambda: len(running.records()) == 2 * CALLS_KEPT_TWICE, 30, "two records of each call")
        ours = running.start("worker", "worker-ours")
        until(lambda: set(running.records()) == set(ids), 40, "one record of each call")
        older.stop()
        door.stop()
        until(lambda: all(record.is_settled for record in running.records().values()), 90, "every call to be settled")
        found = running.records()
        assert set(found) == set(ids)
        for voice_id, record in found.items():
            arrived = running.control("GET", f"/calls/{voice_id}")["tally"]["arrived"]
            assert arrived["check"] <= record.plan.checks_used <= CHECK_LIMIT
            assert arrived.get("enroll", 0) + arrived.get("reject_voice", 0) <= 1
        assert '"calls_merged"' in ours.log.read_text()


CALLS_KEPT_TWICE = 12

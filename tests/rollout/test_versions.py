"""A rolling deployment and its rollback: two releases with different stored records on one Redis, under load."""

from pathlib import Path

import pytest

from callkeeper.calls.record import ASKED
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.harness.processes import Stack, stack, web_url
from tests.rollout.load import PHASE, Load
from tests.rollout.test_rotation import hold_to_promises, wait_for_calls

NEWER = ("tests.rollout.other_version",)


def replace_and_go_back(running: Stack, load: Load) -> list[ManagedProcess]:
    """Run a worker and a web process of a newer release beside ours, then alone, then beside ours again.

    Returns:
        The newer worker, the newer web process, and our workers at the end.
    """
    wait_for_calls(load, PHASE)
    headers = running.demo.environ["CALLKEEPER_PUSH_HEADERS"]
    newer = running.start("worker", "worker-other", module=NEWER)
    door = running.start("web", "web-other", module=NEWER)
    running.push_to(web_url(door), headers)
    wait_for_calls(load, PHASE)
    for n in (1, 2):
        running.member(f"worker-{n}").stop()
    wait_for_calls(load, PHASE)
    back = [running.start("worker", f"worker-back-{n}") for n in (1, 2)]
    running.push_to(running.demo.web_url, headers)
    wait_for_calls(load, PHASE)
    return [newer, door, *back]


def assert_all_worked(workers: list[ManagedProcess], door: ManagedProcess) -> None:
    """Assert that every worker settled calls, and the web process accepted pushes."""
    assert '"push_accepted"' in door.log.read_text()
    assert [each.name for each in workers if '"call_settled"' not in each.log.read_text()] == []


@pytest.mark.timeout(240)
def test_versions_side_by_side_lose_nothing(tmp_path: Path) -> None:
    """A newer release works beside ours, without ours, and beside ours again: the audit is clean.

    Calls pass from one release to another at every step, so ours reads records with unknown fields. Every fourth call
    has a higher schema number while the newer worker handles it: ours leaves it alone, and it is settled in time.
    """
    with stack(tmp_path, workers=2) as running:
        load = Load(running.demo.service_url)
        with load.running():
            newer, door, *back = replace_and_go_back(running, load)
            door.stop()
            wait_for_calls(load, PHASE)
        hold_to_promises(running, load)
        # Whom the rules ask a person about is no fault: a call of six seconds may end before the voice was heard.
        assert [why for why in running.redis.hvals("ck:2:attention") if not why.startswith(ASKED.encode())] == []
        assert_all_worked([newer, *back], door)
        assert any('"stored_unreadable"' in each.log.read_text() for each in back)

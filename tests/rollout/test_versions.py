"""A rolling deployment and its rollback: two versions, whose stored records differ, on one Redis under load."""

from pathlib import Path

import pytest

from tests.rollout.load import Load, floor
from tests.rollout.test_rotation import PHASE, hold_to_promises, url, wait_for_calls


@pytest.mark.parametrize("other", ["newer", "older"])
def test_versions_side_by_side_lose_nothing(tmp_path: Path, other: str) -> None:
    """A version comes, works beside ours, works alone, works beside ours again, and goes: the audit is clean.

    Calls pass from one to the other at every step: each reads what the other wrote, with fields that it does not know, and
    without fields that it does.
    """
    with floor(tmp_path, workers=2) as running:
        load = Load(running.demo.service_url)
        with load.running():
            wait_for_calls(load, PHASE)
            headers = running.demo.environ["CALLKEEPER_PUSH_HEADERS"]
            others = [running.start(f"worker-{other}-1", "worker", version=other)]
            door = running.start(f"web-{other}", "web", version=other)
            running.push_to(url(door), headers)
            wait_for_calls(load, PHASE)
            others.append(running.start(f"worker-{other}-2", "worker", version=other))
            for n in (1, 2):
                running.member(f"worker-{n}").stop()
            wait_for_calls(load, PHASE)
            back = [running.start(f"worker-back-{n}", "worker") for n in (1, 2)]
            wait_for_calls(load, PHASE)
            running.push_to(running.demo.web_url, headers)
            for each in (*others, door):
                each.stop()
            wait_for_calls(load, PHASE)
        hold_to_promises(running, load)
        assert all(each.is_running for each in back)
        assert '"push_accepted"' in door.log.read_text()
        assert all('"call_settled"' in each.log.read_text() for each in (*others, *back))

"""A busy worker makes fewer reads, and all its checks in time."""

from dataclasses import replace

import pytest

from callkeeper.calls.metrics.cpu_share import CpuShare
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig


async def watched(rig: Rig, busy: float) -> dict[str, int]:
    """Return the requests for a call in 110 seconds, by a worker that uses this share of a core."""
    rig.shift.tools = replace(rig.tools, cpu_share=lambda: busy)
    call = rig.stage.call(Happening(Kind.END, 120))
    await rig.push(call)
    await rig.run(110)  # between two checks, so that both calls have had as many
    return rig.ledger(call)


async def test_busy_worker_reads_less_and_checks_as_usual(rig: Rig) -> None:
    """Every read can wait up to a minute, as for a decided call. No check is given up."""
    usual, busy = await watched(rig, busy=0.6), await watched(rig, busy=1.0)
    assert busy["check"] == usual["check"] > 10
    assert busy["read"] <= 3 < usual["read"]


def test_share_follows_two_seconds_of_work() -> None:
    """A short burst counts little, steady work fully, and a worker that had nothing to do is idle again at once."""
    now_s = used_s = 0.0
    share = CpuShare(lambda: used_s, monotonic=lambda: now_s)
    course = []
    for took_s, lately in [(0.1, 1.0), (0.1, 1.0), *[(0.2, 1.0)] * 40, (30.0, 0.0)]:
        now_s, used_s = now_s + took_s, used_s + took_s * lately
        course.append(share())
    assert course[:2] == pytest.approx([0.0, 0.1]), "not measured more often than every 0.2 s"
    assert 0.6 < course[10] < 0.7, "after two seconds"
    assert course[-2] == pytest.approx(1.0, abs=0.02)
    assert course[-1] == 0.0

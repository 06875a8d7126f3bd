"""The example of a test with processes that tests/README.md shows."""

from tests.harness.processes import Stack, end, frozen
from tests.waiting import until


def test_frozen_worker_holds_up_no_call(running: Stack) -> None:
    """While one of two workers is frozen, the other one assigns a new call."""
    with frozen(running.member("worker-1")):
        call = running.call(end(after_s=60))
        until(lambda: running.arrived(call).get("assign"), 30, "the assign")
    assert running.record(call) is not None

"""The example of a test with processes that tests/README.md shows."""

from tests.harness.processes import Stack, end
from tests.waiting import until


def test_call_is_assigned_by_another_worker(running: Stack) -> None:
    """A worker that starts later takes part: its log has an assign."""
    another = running.start("worker")
    running.call(end(after_s=60))
    until(lambda: "call_assigned" in another.log.read_text(), 30, "an assign by the other worker")
    another.stop()

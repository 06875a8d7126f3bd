"""A single worker under load and with signals. Each test has its own processes."""

import signal

from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.acceptance.troubles import worker_with
from tests.harness.processes import KEY, Stack, end
from tests.waiting import until


def test_one_worker_finds_a_lost_push_within_ten_seconds_with_one_busy_worker(lonely: Stack) -> None:
    """A call without a push is assigned within seconds of its listing, even by one busy worker.

    That it is within ten is shown in virtual time: here another process may hold up the worker.
    """
    lonely.control("PUT", f"/institutions/{KEY}/push", {"url": "", "headers": ""})
    lonely.fault("check", "pass", latency_s=0.3)
    load = [lonely.call(end(25), key="bank-1") for _ in range(60)]
    until(lambda: lonely.arrived(load[-1]).get("check"), 30, "the load to be under way")
    call = lonely.call(end(20))
    until(lambda: lonely.arrival(call, "assign"), 15, "the assign of a call that was never pushed")


def test_one_worker_lets_a_request_finish_on_sigterm_and_leaves_nothing_running(lonely: Stack) -> None:
    """SIGTERM ends every process within ten seconds; a request under way is finished and saved (C7)."""
    call = lonely.call(end(60))
    until(lambda: lonely.arrived(call).get("assign"), 10, "the assign")
    lonely.fault("check", "pass", latency_s=2.0, times=1)
    until(lambda: lonely.arrived(call).get("check"), 10, "the check that takes two seconds")
    worker = lonely.member("worker-1")
    took_s = worker.stop(deadline_s=10)
    assert took_s < 10
    assert worker.process.poll() == 0
    assert [entry for entry in lonely.trail(call) if entry.what == "checked"], "the check was not saved"
    others = [member for member in lonely.demo.members if member is not worker]
    for member in others:
        assert member.stop() < 10
        assert member.process.poll() == 0, f"{member.name}: {member.tail()}"


WAITS = """
import threading, time, uvloop

class Loop(uvloop.Loop):
    def close(self):
        time.sleep(60)

uvloop.new_event_loop = Loop
threading.Thread(target=time.sleep, args=(60,)).start()
"""


def test_one_worker_that_has_stopped_waits_for_no_thread(lonely: Stack) -> None:
    """Closing the loop, and Python at its end, wait for threads: for as long as a name server does not answer (C7)."""
    with worker_with(lonely, WAITS):
        worker = lonely.demo.fleet.members[-1]
        worker.wait_for(lambda line: line if "worker_started" in line else None)
        assert worker.stop(deadline_s=10) < 10
        assert worker.process.poll() == 0
        assert "worker_stopped" in worker.log.read_text()


def test_one_worker_leaves_at_once_on_a_second_signal(lonely: Stack) -> None:
    """After a second SIGTERM a worker does not wait for the request under way (C7)."""
    call = lonely.call(end(60))
    until(lambda: lonely.arrived(call).get("assign"), 10, "the assign")
    lonely.fault("check", "hang", times=1)
    until(lambda: lonely.arrived(call).get("check"), 10, "the check that hangs")
    worker = lonely.member("worker-1")
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: "told_to_stop" if _is_stopping(worker) else None, 5, "the worker to receive the signal")
    worker.process.send_signal(signal.SIGTERM)
    worker.process.wait(2)
    assert worker.process.poll() != 0


def _is_stopping(worker: ManagedProcess) -> bool:
    return "shift_stopping" in worker.log.read_text()

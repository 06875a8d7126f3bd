"""Redis is down, is slow, refuses commands, restarts, or comes back without its last writes."""

import json
import os
import signal
import socketserver
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from callkeeper.calls.effect_ledger import DONE, EffectKind, EffectState
from callkeeper.calls.record import Reason
from tests.faults.proxy import UNDISTURBED, Disturbance, proxied
from tests.faults.site import Site, Stage
from tests.harness.processes import PATIENCE_S
from tests.records import stored_value
from tests.waiting import until

PUSH_BOUND_S = 5.0
"""The longest time until an event is answered, whatever Redis does: three attempts of 1.2 s, and pauses."""

AWAY_S = float(os.environ.get("TEST_AWAY_S", "8"))
"""How long Redis stays down; the nightly run sets 40."""

BACK_WITHIN_S = 5.0
"""Waits after errors of Redis are bounded: it must not take longer after a longer outage."""

pytestmark = pytest.mark.timeout(300)  # longer than PATIENCE_S, whose error says more


@pytest.fixture
def own_stage(own_site: Site) -> Iterator[Stage]:
    """Return an institution on a site whose Redis the test may kill."""
    with own_site.stage() as lent:
        yield lent


def test_push_is_refused_in_time_while_redis_is_down_and_its_call_is_found_later(own_stage: Stage) -> None:
    """C1: if Redis is down, a push gets 503 after a bounded wait; afterwards the call is found in the queue."""
    door = own_stage.web()
    own_stage.worker().wait_for(_started)
    own_stage.site.redis.kill()
    call = own_stage.begin()
    started_s = time.monotonic()
    assert door.push(call).status_code == 503
    assert time.monotonic() - started_s < PUSH_BOUND_S
    own_stage.site.redis.start()
    until(lambda: own_stage.arrived(call).get("assign"), PATIENCE_S, "the call whose push was lost")


def test_push_waits_for_a_slow_redis_no_longer_than_its_bound(stage: Stage) -> None:
    """C2: if Redis takes 2 s to answer, twenty pushes at once are answered in time and do not delay later ones."""
    with proxied(stage.site.redis.port) as line:
        door = stage.web(redis_url=_through(line.port, stage))
        call = {"voice_id": "slow-1", "institution_key": stage.key}
        assert door.push(call).status_code == 202
        line.set(Disturbance(latency_s=2.0))
        with ThreadPoolExecutor(20) as senders:
            answers = list(senders.map(lambda _: _timed_push(door, call), range(20)))
        assert {status for status, _ in answers} <= {202, 503}
        assert max(took_s for _, took_s in answers) < PUSH_BOUND_S
        line.set(UNDISTURBED)
        until(lambda: door.push(call).status_code == 202, 5, "the first event after the slowness")
        assert _timed_push(door, call)[1] < 2.0


@pytest.mark.parametrize(
    "reply",
    [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.",
        "LOADING Redis is loading the dataset in memory",
        "NOAUTH Authentication required.",
    ],
    ids=lambda reply: reply.partition(" ")[0],
)
def test_push_is_never_accepted_by_a_redis_that_refuses(stage: Stage, reply: str) -> None:
    """C3: whichever error Redis refuses a write with, the push gets 503 in time, and an error is logged."""
    with _refusing(reply) as port:
        door = stage.web(redis_url=f"redis://127.0.0.1:{port}/0")
        started_s = time.monotonic()
        assert door.push({"voice_id": "refused-1", "institution_key": stage.key}).status_code == 503
        assert time.monotonic() - started_s < PUSH_BOUND_S
        until(lambda: '"push_not_recorded"' in door.member.log.read_text(), PATIENCE_S, "the line in the log")


def test_accepted_event_survives_the_receiver(stage: Stage) -> None:
    """C5: if the receiver is killed after Redis recorded an event and before its answer, the event is stored."""
    with proxied(stage.site.redis.port) as line:
        door = stage.web(redis_url=_through(line.port, stage))
        call = {"voice_id": "unanswered-1", "institution_key": stage.key}
        assert door.push(call).status_code == 202
        line.set(Disturbance(latency_s=0.7))
        before = _events(stage)
        with ThreadPoolExecutor(1) as sender:
            answer = sender.submit(door.push, call)
            until(lambda: _events(stage) > before, 5, "the record of the event")
            door.member.kill()
            assert answer.exception(5) is not None, "the receiver answered before it was killed"
    assert _events(stage) == before + 1


def test_call_goes_on_after_a_restart_of_redis(own_stage: Stage) -> None:
    """C4: if Redis is killed and restarted with its append-only file, calls are read again first and then go on."""
    own_stage.worker()
    call = own_stage.begin()
    until(lambda: own_stage.arrived(call).get("check"), PATIENCE_S, "the first check")
    own_stage.site.redis.kill()
    own_stage.site.redis.start()
    own_stage.happen(call, "green")
    until(lambda: _sees(own_stage, call, "authenticated_seen"), PATIENCE_S, "the green policy to be seen")
    own_stage.happen(call, "end")
    record = own_stage.settled(call)
    assert record.life.reason is Reason.AUTHENTICATED
    assert "verifying" in _whats(own_stage, call)
    _assert_counts(own_stage, call, assign=1)


@pytest.mark.parametrize(
    "cut_to", [*(pytest.param(each, marks=pytest.mark.night) for each in ("nothing", "assigned")), "intended"]
)
@pytest.mark.parametrize("kind", [EffectKind.ENROLL, pytest.param(EffectKind.REJECT, marks=pytest.mark.night)])
def test_no_effect_is_repeated_by_a_redis_that_lost_its_last_writes(
    own_stage: Stage, kind: EffectKind, cut_to: str
) -> None:
    """C15, C4: if Redis loses all writes since a moment before an effect, the effect is found and not repeated."""
    operation = "enroll" if kind is EffectKind.ENROLL else "reject_voice"
    own_stage.worker()
    lengths = {"nothing": own_stage.site.redis.written}
    call = own_stage.begin()
    until(lambda: _state(own_stage, call, EffectKind.ASSIGN) in DONE, PATIENCE_S, "the assign")
    lengths["assigned"] = own_stage.site.redis.written
    own_stage.trouble("read", latency_s=1.5)
    _ask_for(own_stage, call, kind)
    until(lambda: _state(own_stage, call, kind) is EffectState.INTENDED, PATIENCE_S, "the intention")
    lengths["intended"] = own_stage.site.redis.written
    until(lambda: _state(own_stage, call, kind) in DONE, PATIENCE_S, "the effect")
    own_stage.lift_faults()
    own_stage.site.redis.kill()
    own_stage.site.redis.cut(lengths[cut_to])
    own_stage.site.redis.start()
    until(lambda: _knows(own_stage, call, kind), PATIENCE_S, "the effect to be found again")
    own_stage.happen(call, "end")
    record = own_stage.settled(call)
    assert record.life.reason is (Reason.ENROLLED if kind is EffectKind.ENROLL else Reason.REJECTED)
    _assert_counts(own_stage, call, assign=1, **{operation: 1})
    if cut_to != "nothing":
        assert "verifying" in _whats(own_stage, call)


def test_no_check_is_forgotten_by_a_redis_that_lost_many_bookings(own_stage: Stage) -> None:
    """C15, E4: if the bookings of several checks are lost, all checks that may have been made count as used."""
    own_stage.worker()
    call = own_stage.begin()
    until(lambda: own_stage.arrived(call).get("check"), PATIENCE_S, "the first check")
    length = own_stage.site.redis.written
    until(lambda: own_stage.arrived(call).get("check", 0) >= 6, PATIENCE_S, "the sixth check")
    own_stage.site.redis.kill()
    own_stage.site.redis.cut(length)
    own_stage.site.redis.start()
    until(lambda: "verifying" in _whats(own_stage, call), PATIENCE_S, "the call to be verified")
    record = own_stage.record(call)
    assert record is not None
    assert record.plan.checks_used >= own_stage.arrived(call)["check"]


def test_work_goes_on_soon_after_redis_is_back(own_stage: Stage) -> None:
    """C16: after a long outage of Redis calls are moved, and events are accepted, within seconds."""
    door = own_stage.web()
    own_stage.worker()
    call = own_stage.begin()
    until(lambda: own_stage.arrived(call).get("assign"), PATIENCE_S, "the assign")
    own_stage.site.redis.kill()
    gone_s = time.monotonic()
    until(lambda: time.monotonic() - gone_s > AWAY_S, AWAY_S + 5, "the outage to be long enough")
    own_stage.site.redis.start()
    back_s, reads = time.monotonic(), own_stage.arrived(call).get("read", 0)
    until(lambda: own_stage.arrived(call).get("read", 0) > reads, PATIENCE_S, "the next read of the call")
    moved_s = time.monotonic() - back_s
    until(lambda: door.push(call).status_code == 202, PATIENCE_S, "the next event")
    assert moved_s < BACK_WITHIN_S
    assert time.monotonic() - back_s < BACK_WITHIN_S + 1


def test_worker_survives_a_restart_of_redis_without_an_error_in_its_log(own_stage: Stage) -> None:
    """Its log says once that Redis is away, and why, and once that it is back; RQ's own words would look like a crash."""
    member = own_stage.worker()
    member.wait_for(_started)
    own_stage.begin()
    own_stage.site.redis.kill()
    member.wait_for(lambda line: line if '"redis_away"' in line else None)
    time.sleep(3)  # RQ tries again every second
    own_stage.site.redis.start()
    member.wait_for(lambda line: line if '"redis_back"' in line else None)
    own_stage.site.redis.freeze()
    time.sleep(12)  # longer than RQ waits for an answer
    own_stage.site.redis.thaw()
    lines = [json.loads(line) for line in member.log.read_text().splitlines()]
    away = [line["because"] for line in lines if line["event"] == "redis_away"]
    assert away == ["connection refused; the worker tries again", "timed out; the worker tries again"]
    assert [line for line in lines if line["level"] == "error"] == []


def test_worker_that_waits_for_redis_can_be_stopped(own_stage: Stage) -> None:
    """A worker that has never reached Redis takes SIGTERM itself, as the first process of a container must."""
    own_stage.site.redis.kill()
    member = own_stage.worker()
    member.wait_for(lambda line: line if '"redis_away"' in line else None)
    member.stop()
    own_stage.site.redis.start()
    assert member.process.poll() == 128 + signal.SIGTERM


def test_worker_ends_within_ten_seconds_while_redis_is_frozen(own_stage: Stage) -> None:
    """Some platforms kill what is still there then. Another worker goes on with its call."""
    member = own_stage.worker()
    call = own_stage.begin()
    until(lambda: own_stage.arrived(call).get("assign"), PATIENCE_S, "the assign")
    own_stage.site.redis.freeze()
    os.kill(member.process.pid, signal.SIGTERM)
    try:
        until(lambda: member.process.poll() is not None, 10, "the worker to end")
    finally:
        own_stage.site.redis.thaw()
    assert member.process.poll() == 0
    checks = own_stage.arrived(call).get("check", 0)
    own_stage.worker()
    until(lambda: own_stage.arrived(call).get("check", 0) > checks, PATIENCE_S, "another check")
    assert own_stage.arrived(call)["assign"] == 1


def _started(line: str) -> str | None:
    return line if '"worker_started"' in line else None


def _through(port: int, stage: Stage) -> str:
    return f"redis://127.0.0.1:{port}/{stage.redis_url.rpartition('/')[2]}"


def _timed_push(door: Any, call: dict[str, Any]) -> tuple[int, float]:
    started_s = time.monotonic()
    return door.push(call).status_code, time.monotonic() - started_s


def _events(stage: Stage) -> int:
    return int(stage.redis.zcard("ck:2:events"))


def _state(stage: Stage, call: dict[str, Any], kind: EffectKind) -> EffectState | None:
    record = stage.record(call)
    return record.effect(kind).state if record else None


def _sees(stage: Stage, call: dict[str, Any], fact: str) -> bool:
    record = stage.record(call)
    return record is not None and bool(stored_value(record, fact))


def _knows(stage: Stage, call: dict[str, Any], kind: EffectKind) -> bool:
    """Tell whether the record shows the effect: in its ledger, or as seen at the service."""
    fact = "enrolled_seen" if kind is EffectKind.ENROLL else "rejected_seen"
    return _state(stage, call, kind) in DONE or _sees(stage, call, fact)


def _whats(stage: Stage, call: dict[str, Any]) -> list[str]:
    return [entry.what for entry in stage.trail(call)]


def _ask_for(stage: Stage, call: dict[str, Any], kind: EffectKind) -> None:
    """Make something happen for which the rules want the effect."""
    if kind is EffectKind.ENROLL:
        stage.verify(call)
        return
    stage.happen(call, "mismatch")
    stage.happen(call, "high_risk_device")


def _assert_counts(stage: Stage, call: dict[str, Any], **expected: int) -> None:
    counts = stage.account(call)["tally"]["authenticated"]
    names = ("assign", "enroll", "reject_voice")
    assert [(name, counts.get(name, 0)) for name in names] == [(name, expected.get(name, 0)) for name in names]
    assert counts.get("check", 0) <= 20


class _Refusal(socketserver.StreamRequestHandler):
    """Speaks just enough of Redis's protocol to refuse commands."""

    def handle(self) -> None:
        """Answer every command with the same error."""
        while line := self.rfile.readline():
            for _ in range(int(line[1:])):
                self.rfile.readline()
                self.rfile.readline()
            self.wfile.write(self.server.reply)  # type: ignore[attr-defined]


@contextmanager
def _refusing(reply: str) -> Iterator[int]:
    """Run a Redis that refuses everything; return its port."""

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), _Refusal) as server:
        server.reply = f"-{reply}\r\n".encode()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()

"""How long does work stop after a kill -9? Real processes on one machine; a killed process is restarted at once.

A call is checked every second; its next check shows that work continues. The figures include a worker's start. On a
platform that starts a worker more slowly, add the difference.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import Answer, Cell, Effort, Table, quantile
from callkeeper.calls.claimed_item import LEASE
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.faults.crashpoints import MID_REQUEST_S
from tests.faults.site import Door, Site, Stage, site
from tests.ports import HeldPort
from tests.waiting import until

REPETITIONS = 20
STAGES = 4
"""How many calls, each with its own workers, are watched at the same time."""

PATIENCE_S = 40.0
SLOT_S = 1.0
"""Seconds between two checks of a call. After a kill, no check can come before the next slot."""

START_S = 4.0
"""How many seconds a worker's start may take on a busy machine."""

LEASE_S = LEASE.seconds

BUSY = "check.mid-request:kill"


@dataclass(frozen=True, slots=True)
class Case:
    """A process that is killed, the event that shows that work continues, and how long that may take."""

    killed: str
    shown_by: str
    bound_s: float
    waits_s: tuple[float, ...]

    @property
    def row(self) -> tuple[Cell, ...]:
        """Return the case as a row of the table."""
        shares = (quantile(self.waits_s, share) for share in (0.5, 0.99, 1.0))
        return (self.killed, self.shown_by, len(self.waits_s), *shares, self.bound_s)

    @property
    def broken(self) -> tuple[str, ...]:
        """Return a message if the bound was not kept."""
        late = [wait_s for wait_s in self.waits_s if wait_s > self.bound_s]
        return (f"{self.killed}: {len(late)} times longer than {self.bound_s:g} s",) if late else ()


def answer(effort: Effort) -> Answer:
    """Kill each process in turn, and measure."""
    times = STAGES if effort.is_smoke else REPETITIONS
    with (
        tempfile.TemporaryDirectory() as data,
        site(Path(data), forked=False) as running,
        ThreadPoolExecutor(STAGES) as pool,
    ):

        def on_stages(measure: Callable[[Stage], list[float]]) -> tuple[float, ...]:
            """Measure on all stages at the same time."""

            def play(_n: int) -> list[float]:
                with running.stage() as stage:
                    return measure(stage)

            return tuple(wait_s for waits in pool.map(play, range(STAGES)) for wait_s in waits)

        check, push = "the call's next check", "the next accepted event"
        one, alone = LEASE_S + 1 + SLOT_S, LEASE_S + 1 + SLOT_S + START_S
        cases = (
            *(
                Case(
                    f"{killed}, {when}",
                    check,
                    bound_s,
                    on_stages(partial(_workers, times=times // STAGES, count=count, busy=busy)),
                )
                for killed, count, bound_s in (("one of two workers", 2, one), ("the only worker", 1, alone))
                for when, busy in (("at any moment", False), ("in the middle of a check", True))
            ),
            Case("web", push, START_S, _web(running, times)),
            *(Case("Redis", shown_by, bound_s, waits) for shown_by, bound_s, waits in _redis(running, times)),
        )
    columns = ("killed", "until", "times", "p50 s", "p99 s", "max s", "bound s")
    title = f"From kill -9 until work goes on: checks are {SLOT_S:g} s apart, a lease is {LEASE_S:g} s"
    table = Table(title, columns, tuple(case.row for case in cases))
    return Answer(table, broken=tuple(b for case in cases for b in case.broken))


def _workers(stage: Stage, *, times: int, count: int, busy: bool) -> list[float]:
    draw = random.Random(stage.key)  # noqa: S311  (repeatable)
    workers = [_started(stage, busy=busy) for _ in range(count)]
    return [_kill_a_worker(stage, workers, draw, busy=busy) for _ in range(times)]


def _kill_a_worker(stage: Stage, workers: list[ManagedProcess], draw: random.Random, *, busy: bool) -> float:
    """Kill one of the workers while a call is watched. A busy worker kills itself in the middle of a slow check."""
    with _watched(stage) as call:
        if busy:
            stage.trouble("check", latency_s=3 * MID_REQUEST_S, times=1)
        else:
            time.sleep(draw.uniform(0, SLOT_S))
            draw.choice(workers).kill()
        until(lambda: not all(worker.is_running for worker in workers), PATIENCE_S, "a worker's end", every_s=0.01)
        at = datetime.now(UTC)
        for n, worker in enumerate(workers):
            if not worker.is_running:
                workers[n] = stage.worker(crash=BUSY if busy else "")
        return _await_check(stage, call, since=at)


def _web(running: Site, times: int) -> tuple[float, ...]:
    """Kill one web process repeatedly. Use only one, because nearly all of the wait is the CPU time of its start."""
    port, waits = HeldPort(), []
    with running.stage() as stage:
        door = stage.web(port=port.number)
        for _ in range(times):
            door.member.kill()
            at_s = time.monotonic()
            door = stage.web(port=port.number)
            _await_push(stage, door)
            waits.append(time.monotonic() - at_s)
    port.release()
    return tuple(waits)


def _redis(running: Site, times: int) -> Iterator[tuple[str, float, tuple[float, ...]]]:
    checks: list[float] = []
    pushes: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(times):
            with running.stage() as stage:
                _started(stage)
                door = stage.web()
                with _watched(stage) as call:
                    at, at_s = datetime.now(UTC), time.monotonic()
                    running.redis.kill()
                    running.redis.start()
                    check = pool.submit(_await_check, stage, call, since=at)
                    _await_push(stage, door)
                    pushes.append(time.monotonic() - at_s)
                    checks.append(check.result())
    yield "the call's next check", LEASE_S + 1 + SLOT_S, tuple(checks)
    yield "the next accepted event", START_S, tuple(pushes)


def _started(stage: Stage, *, busy: bool = False) -> ManagedProcess:
    worker = stage.worker(crash=BUSY if busy else "")
    worker.wait_for(lambda line: line if '"worker_started"' in line else None)
    return worker


@contextmanager
def _watched(stage: Stage) -> Iterator[dict[str, Any]]:
    """Keep a call that is being checked until the block ends."""
    call = stage.begin()
    until(lambda: stage.arrived(call).get("check", 0) >= 1, PATIENCE_S, "the first check")
    yield call
    stage.happen(call, "end")


def _await_check(stage: Stage, call: dict[str, Any], *, since: datetime) -> float:
    """Return the seconds from an instant to the arrival of the next check."""

    def look() -> float | None:
        arrivals = stage.account(call)["arrivals"]
        later = (datetime.fromisoformat(a["at"]) for a in arrivals if a["operation"] == "check")
        return next(((at - since).total_seconds() for at in later if at > since), None)

    return until(look, PATIENCE_S, "the next check", every_s=0.02)


def _await_push(stage: Stage, door: Door) -> None:
    call = {"voice_id": "an-event", "institution_key": stage.key}
    until(lambda: door.push(call).status_code == 202, PATIENCE_S, "an accepted event", every_s=0.02)

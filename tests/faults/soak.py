"""A soak: calls at a steady rate for a long time; the memory of each process and of Redis must not keep growing.

``python -m tests.faults.soak --minutes 30 --rate 10`` prints a line a minute and exits with 1 if memory grew or a
promise was broken. Calls are kept for one minute after they are settled, so that soon as many expire as arrive.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.redis_writer import EVERY_S, memory_of
from callkeeper.calls.metrics.snapshot import Snapshot
from callkeeper.calls.store.keys import Keys
from tests.faults.deployment import Deployment, deployment
from tests.faults.redis_server import redis_server

KEPT = "1m"
WARM_UP = 0.4
"""The part of the run after which nothing may grow any more."""

MAY_GROW = 1.10
MAY_GROW_BY = 6 * 2**20
"""Growth beyond both limits is a fault. Allocators and hash tables stay below them; a leak of 1 kB a call does not."""

POLL_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Look:
    """One measurement: memory in bytes by process or Redis, and the state of the calls."""

    at_s: float
    memory: dict[str, int]
    keys: int
    live: int
    late_s: float

    def line(self) -> str:
        """Return the measurement as text."""
        memory = "  ".join(f"{name} {size / 2**20:.1f}" for name, size in self.memory.items())
        return f"{self.at_s / 60:5.1f} min  MiB: {memory}  keys {self.keys}  live {self.live}  late {self.late_s:.2f} s"


def looks(running: Deployment, seconds: float) -> Iterator[Look]:
    """Measure every few seconds until the time is over."""
    began_s = time.monotonic()
    while (at_s := time.monotonic() - began_s) < seconds:
        yield _look(running, at_s)
        time.sleep(POLL_EVERY_S)


def _look(running: Deployment, at_s: float) -> Look:
    seconds, micros = running.redis.time()
    first = running.redis.zrange(Keys().due, 0, 0, withscores=True)
    memory = {member.name: memory_of(member.process.pid) for member in running.members}
    return Look(
        at_s,
        {**memory, "redis": int(running.redis.info("memory")["used_memory"])},
        running.redis.dbsize(),
        running.redis.zcard(Keys().live),
        max(0.0, seconds + micros / 1e6 - first[0][1] / 1000) if first else 0.0,
    )


def grown(taken: Sequence[Look]) -> list[str]:
    """Return one text for each process whose memory grew between its warm-up and the end of the run."""
    warm = [look for look in taken if look.at_s >= WARM_UP * taken[-1].at_s]
    third = max(1, len(warm) // 3)
    told = []
    for name in taken[-1].memory:
        before, after = (max(look.memory[name] for look in part) for part in (warm[:third], warm[-third:]))
        if after > before * MAY_GROW and after - before > MAY_GROW_BY:
            told.append(f"{name} grew from {before / 2**20:.1f} to {after / 2**20:.1f} MiB")
    return told


def figures(running: Deployment) -> Iterator[str]:
    """Yield lines of a report from callkeeper's own metrics."""
    totals = Snapshot.parse(running.redis.hgetall(Keys().figures))
    settled = totals.count(figure.CALLS_SETTLED)
    yield f"calls settled {settled}: {dict(totals.by(figure.CALLS_SETTLED, 'reason'))}"
    yield f"calls that could not be begun: {dict(running.failed) or 'none'}"
    yield f"found by {dict(totals.by(figure.CALLS_FOUND, 'by'))}, pushes {dict(totals.by(figure.PUSHES, 'type'))}"
    yield f"requests {dict(totals.by(figure.SERVICE_REQUESTS, 'endpoint'))}"
    for name, of in (
        ("detection lag, at most", figure.DETECTION_LAG),
        ("checks late by", figure.CHECK_LATE),
        ("push recorded within", figure.PUSH_ANSWER),
        ("a shift lasts", figure.SHIFT_SECONDS),
    ):
        spread = totals.spread(of)
        if spread.n:
            yield f"{name:24} p50 {spread.quantile(0.5):.3f} s   p99 {spread.quantile(0.99):.3f} s   of {spread.n}"
    mishaps = {why.name: totals.count(why) for why in (figure.STEPS_FAILED, figure.LEASES_LOST, figure.REDIS_FAILED)}
    yield f"mishaps {mishaps}, checks over budget {_over_budget(running)}"


def _over_budget(running: Deployment) -> int:
    summary = running.control("GET", "/summary")
    return int(summary["checks_over_budget"]) + int(summary["enrolled_twice"]) + int(summary["rejected_twice"])


def main(arguments: list[str]) -> int:
    """Run, measure, report; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=10.0, help="Calls a second.")
    parser.add_argument("--webs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", type=Path, default=None, help="Folder for logs and data; default: a temporary one.")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        data = given.data or Path(temporary)
        with (
            redis_server(data / "redis") as server,
            deployment(
                data, server.url(), webs=given.webs, workers=given.workers, CALLKEEPER_KEEP_CALLS=KEPT
            ) as running,
        ):
            taken: list[Look] = []
            with running.calls(given.rate):
                for look in looks(running, given.minutes * 60):
                    if not taken or look.at_s // 60 > taken[-1].at_s // 60:
                        print(look.line(), flush=True)  # noqa: T201  (a command)
                    taken.append(look)
            print(taken[-1].line())  # noqa: T201
            in_time = running.settle()
            time.sleep(2 * EVERY_S)
            for line in figures(running):
                print(line)  # noqa: T201
            broken = [*grown(taken), *(["calls are not settled"] if not in_time else [])]
            broken += [f"over budget: {over}"] if (over := _over_budget(running)) else []
    for line in broken:
        print(f"BROKEN  {line}")  # noqa: T201
    print(f"{given.rate:g} calls/s for {given.minutes:g} min: {'NOT CLEAN' if broken else 'clean'}")  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

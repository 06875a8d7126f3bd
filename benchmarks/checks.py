"""How many checks does one worker make, compared with other queues that make the same check and with no queue?"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.due_calls import lay_due_calls, settings
from benchmarks.figures import Answer, Effort, Goal, Spread, Table
from benchmarks.stage import PATIENCE_S, BenchmarkFailed, Stage, cpu_s, stage, wait_until
from callkeeper.app.settings import RuleSettings
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.fleet import ManagedProcess

WARM_UP = 20
WAITING_S = 20.0
"""A call that was checked is due again after more than this many seconds (`settings`)."""

TICK_S = 0.01
"""The smallest CPU time that the kernel reports. A smoke run may take less."""

RESULTS, IDS, GO = "bench:results", "bench:ids", "bench:go"

ARQ = ("arq==0.28.0",)
OTHERS = ("taskiq==0.13.0", "taskiq-redis==1.2.4", "pydocket==0.27.2")
"""Peers that are installed for the measurement. arq needs an older Redis client than we, so it has a folder of its own."""

Lay = Callable[[list[str]], None]
"""Function that gives a way one check for each id."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to make checks: how many it makes in a round, what runs its worker, and what counts stored results."""

    name: str
    calls: int
    run: Callable[[], AbstractContextManager[tuple[ManagedProcess, Lay]]]
    made: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a way in one round: checks per second, and per second of the worker's CPU time."""

    per_s: float
    per_cpu_s: float


def answer(effort: Effort) -> Answer:
    """Measure every way in turn, round after round."""
    with stage() as on, TemporaryDirectory(prefix="bench-peers-") as folder:
        ways = _ways(on, effort, Path(folder))
        rounds: dict[str, list[Round]] = {way.name: [] for way in ways}
        for _ in range(effort.rounds):
            for way in ways:
                on.clear()
                rounds[way.name].append(_measure(way))
    return _told(ways, rounds)


def _measure(way: Way) -> Round:
    """Run one way once: warm it up, stop its process, queue the checks, and let it continue."""
    with way.run() as (worker, lay):
        _work(way, worker, lay, [f"warm-{n:06}" for n in range(min(WARM_UP, way.calls))])
        return _work(way, worker, lay, [f"call-{n:06}" for n in range(way.calls)])


def _work(way: Way, worker: ManagedProcess, lay: Lay, ids: list[str]) -> Round:
    worker.process.send_signal(signal.SIGSTOP)
    lay(ids)
    before, used_s, began_s = way.made(), cpu_s(worker.process.pid), time.monotonic()
    worker.process.send_signal(signal.SIGCONT)
    wait_until(lambda: way.made() >= before + len(ids), f"{len(ids)} checks by {way.name}", worker)
    took_s = time.monotonic() - began_s
    return Round(len(ids) / took_s, len(ids) / max(TICK_S, cpu_s(worker.process.pid) - used_s))


def _ways(on: Stage, effort: Effort, folder: Path) -> list[Way]:
    def peer(name: str, calls: int, module: str, mode: str, packages: str = "") -> Way:
        return _peer(on, name, effort.of(calls), module, mode, packages)

    ways = [
        _ours("callkeeper", effort.of(2000), on),
        peer("rq worker", 40, "rq_check", "stock"),
        peer("rq SimpleWorker", 100, "rq_check", "simple"),
    ]
    if not effort.is_smoke:
        older, newer = _installed(folder / "arq", ARQ), _installed(folder / "others", OTHERS)
        ways += [
            peer("arq", 2000, "arq_check", "worker", older),
            peer("docket", 2000, "docket_check", "worker", newer),
            peer("taskiq", 2000, "taskiq_check", "worker", newer),
        ]
    return [*ways, peer("bare loop", 2000, "bare", "worker")]


def _installed(folder: Path, packages: tuple[str, ...]) -> str:
    """Install packages and what they need into a folder, which is searched before our own packages."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(folder))
    # pip warns on stderr that they do not fit beside our own packages.
    told = subprocess.run([*pip, *packages], check=False, capture_output=True, text=True)  # noqa: S603  (ours)
    if told.returncode != 0:
        raise BenchmarkFailed(f"pip cannot install {', '.join(packages)}:\n{told.stderr}")
    return str(folder)


def _ours(name: str, calls: int, on: Stage) -> Way:
    environ = settings(on.data)
    book = RuleSettings.load(environ).book()

    def lay(ids: list[str]) -> None:
        on.redis.delete(Keys().due)  # the calls of the warm-up, which `checked` would count until they are read
        # The queue must list the new calls, because a worker treats calls that are not listed as ended.
        lay_due_calls(on.redis, on.begin_calls(len(ids)), book)

    @contextmanager
    def run() -> Iterator[tuple[ManagedProcess, Lay]]:
        with on.worker(**environ) as worker:
            yield worker, lay

    def checked() -> int:
        """Count the calls whose next check or read is in the future. The other calls are due or claimed."""
        return int(on.redis.zcount(Keys().due, (time.time() + WAITING_S) * 1000, "+inf"))

    return Way(name, calls, run, checked)


def _peer(on: Stage, name: str, calls: int, module: str, mode: str, packages: str) -> Way:
    def lay(ids: list[str]) -> None:
        on.redis.delete(IDS)
        on.redis.rpush(IDS, *ids)
        if module == "bare":
            on.redis.rpush(GO, "1")
            return
        with on.peer(module, "give", packages=packages) as member:
            if member.process.wait(PATIENCE_S) != 0:
                raise BenchmarkFailed(f"{module} give failed:\n{member.tail()}")

    @contextmanager
    def run() -> Iterator[tuple[ManagedProcess, Lay]]:
        with on.peer(module, mode, packages=packages) as worker:
            yield worker, lay

    return Way(name, calls, run, lambda: int(on.redis.hlen(RESULTS)))


def _told(ways: list[Way], rounds: dict[str, list[Round]]) -> Answer:
    ours = rounds[ways[0].name]
    ratios = {
        name: Spread.of(our.per_cpu_s / each.per_cpu_s for our, each in zip(ours, mine, strict=True))
        for name, mine in rounds.items()
    }
    rows = tuple(
        (
            way.name,
            way.calls,
            Spread.of(each.per_s for each in rounds[way.name]),
            Spread.of(each.per_cpu_s for each in rounds[way.name]),
            Spread.of(1000 / each.per_cpu_s for each in rounds[way.name]),
            ratios[way.name],
        )
        for way in ways
    )
    columns = ("way", "checks", "per s", "per CPU-s", "CPU ms each", "ours: times as many per CPU-s")
    bounds = {"rq worker": 30.0, "arq": 1.3, "docket": 1.0, "taskiq": 1.0, "bare loop": 0.75}
    goals = tuple(Goal(f"per CPU-s, times {way}", ratios[way], least=bounds[way]) for way in bounds if way in ratios)
    return Answer(Table("Checks by one worker; the service takes 50 ms", columns, rows), goals)

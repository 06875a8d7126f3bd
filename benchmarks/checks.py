"""How many checks does one worker make: against other queues that make the same check, and against no queue at all."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.answer import Answer, Table
from benchmarks.due_calls import lay_due_calls, settings
from benchmarks.effort import Effort
from benchmarks.goals import Goal, goals_table
from benchmarks.peers_environment import peers_python
from benchmarks.process import Used
from benchmarks.spread import Spread
from benchmarks.stage import Stage, stage, wait_until
from callkeeper.fleet import ManagedProcess
from callkeeper.settings import RuleSettings
from calls.store.keys import Keys

WARM_UP = 20
TICK_S = 0.01
"""The least CPU time that the kernel tells of: a smoke may take less."""

RESULTS, IDS, GO = "bench:results", "bench:ids", "bench:go"
HERE = Path(sys.executable)

Lay = Callable[[list[str]], None]
"""Give checks to a way, one for each id."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to make checks.

    Attributes:
        name: What the table calls it.
        calls: How many checks it is given in a round.
        run: Starts its worker; yields that, and how to give it checks.
        made: Counts the results that are stored.
    """

    name: str
    calls: int
    run: Callable[[], AbstractContextManager[tuple[ManagedProcess, Lay]]]
    made: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Round:
    """What a way did in one round."""

    calls: int
    used: Used

    @property
    def per_s(self) -> float:
        """Return checks per second."""
        return self.calls / self.used.wall_s

    @property
    def per_cpu_s(self) -> float:
        """Return checks per second of the worker's CPU time."""
        return self.calls / max(self.used.cpu_s["worker"], TICK_S)


def answer(effort: Effort) -> Answer:
    """Measure every way in turn, round after round."""
    with stage() as on:
        ways = _ways(on, effort)
        rounds: dict[str, list[Round]] = {way.name: [] for way in ways}
        for _ in range(effort.rounds):
            for way in ways:
                rounds[way.name].append(_measure(on, way))
    return _told(ways, rounds)


def _measure(on: Stage, way: Way) -> Round:
    """Run one way once: warm it up, lay the work before it while it is stopped, let it go."""
    on.clear()
    with way.run() as (worker, lay):
        warm_up = min(WARM_UP, way.calls)
        _work(on, way, worker, lay, [f"warm-{n:06}" for n in range(warm_up)])
        return Round(way.calls, _work(on, way, worker, lay, [f"call-{n:06}" for n in range(way.calls)]))


def _work(on: Stage, way: Way, worker: ManagedProcess, lay: Lay, ids: list[str]) -> Used:
    before = way.made()
    worker.process.send_signal(signal.SIGSTOP)
    lay(ids)
    meter = on.meter(worker=worker)
    worker.process.send_signal(signal.SIGCONT)
    wait_until(lambda: way.made() >= before + len(ids), f"{len(ids)} checks by {way.name}", worker)
    return meter.read()


def _ways(on: Stage, effort: Effort) -> list[Way]:
    ours = settings(on.data)
    book = RuleSettings.load(ours).book()

    @contextmanager
    def callkeeper() -> Iterator[tuple[ManagedProcess, Lay]]:
        with on.worker(**ours) as worker:
            yield worker, lambda ids: lay_due_calls(on.redis, ids, book)

    def changes() -> int:
        return int(on.redis.xlen(Keys().changes))

    def results() -> int:
        return int(on.redis.hlen(RESULTS))

    def peer(
        interpreter: Path, module: str, mode: str
    ) -> Callable[[], AbstractContextManager[tuple[ManagedProcess, Lay]]]:
        @contextmanager
        def run() -> Iterator[tuple[ManagedProcess, Lay]]:
            def lay(ids: list[str]) -> None:
                on.redis.delete(IDS)
                on.redis.rpush(IDS, *ids)
                if module == "bare":
                    on.redis.rpush(GO, "1")
                else:
                    on.run(interpreter, module, "give")

            with on.peer(interpreter, module, mode) as worker:
                yield worker, lay

        return run

    ways = [
        Way("callkeeper, 2,000 due", effort.of(2000), callkeeper, changes),
        Way("callkeeper, 10,000 due", effort.of(10000), callkeeper, changes),
        Way("(a) rq worker", effort.of(40), peer(HERE, "rq_check", "stock"), results),
        Way("(a) rq worker, preloaded", effort.of(40), peer(HERE, "rq_check", "preloaded"), results),
        Way("(b) rq SimpleWorker", effort.of(100), peer(HERE, "rq_check", "simple"), results),
    ]
    if not effort.is_smoke:
        there = peers_python()
        ways += [
            Way("(c) celery, 100 threads", 1000, peer(there, "celery_check", "worker"), results),
            Way("(d) arq, httpx", 1000, peer(there, "arq_check", "httpx"), results),
            Way("(d2) arq, our client", 2000, peer(there, "arq_check", "ours"), results),
        ]
    return [
        *ways,
        Way("(e) bare loop, our client", effort.of(2000), peer(HERE, "bare", "stored"), results),
        Way("(e) bare loop, nothing stored", effort.of(2000), peer(HERE, "bare", "unstored"), results),
    ]


def _told(ways: list[Way], rounds: dict[str, list[Round]]) -> Answer:
    ours = rounds[ways[0].name]
    rows, ratios = [], {}
    for way in ways:
        mine = rounds[way.name]
        ratio = Spread.of(our.per_cpu_s / each.per_cpu_s for our, each in zip(ours, mine, strict=True))
        ratios[way.name] = ratio
        rows.append(
            (
                way.name,
                way.calls,
                Spread.of(each.per_s for each in mine),
                Spread.of(each.per_cpu_s for each in mine),
                Spread.of(1000 / each.per_cpu_s for each in mine),
                ratio,
                Spread.of(each.used.share("service") for each in mine),
                Spread.of(each.used.share("redis") for each in mine),
            )
        )
    columns = (
        "way",
        "checks",
        "per s",
        "per CPU-s",
        "CPU ms each",
        "ours: times as many",
        "stand-in",
        "Redis",
    )
    goals = tuple(
        Goal.at_least(f"per CPU-s: {words}", ratios[way], bound) for way, words, bound in _GOALS if way in ratios
    )
    return Answer(
        "How many checks does one worker make?",
        (Table("Checks by one worker", columns, tuple(rows), _NOTE), goals_table(*goals)),
    )


_STOCK, _ARQ, _ARQ_OURS, _BARE = "(a) rq worker", "(d) arq, httpx", "(d2) arq, our client", "(e) bare loop, our client"
_GOALS = (
    (_STOCK, "30 times stock RQ", 30.0),
    (_ARQ, "5 times arq with httpx", 5.0),
    (_ARQ_OURS, "1.3 times arq with our client", 1.3),
    (_BARE, "three quarters of the bare loop", 0.75),
)
_NOTE = (
    "The service takes 50 ms. Ours books, decides, writes a trail and saves; the others store one result. Times as "
    "many: per second of the worker's CPU. Stand-in, Redis: their shares of a core; neither is what limits."
)

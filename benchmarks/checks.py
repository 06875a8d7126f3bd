"""How many checks does one worker make, compared with other queues that make the same check and with no queue?"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.answer import Answer, Table
from benchmarks.due_calls import lay_due_calls, settings
from benchmarks.effort import Effort
from benchmarks.goals import Goal, goals_table
from benchmarks.peers_environment import REDIS_8, peers_python
from benchmarks.process import Used
from benchmarks.spread import Spread
from benchmarks.stage import Stage, stage, wait_until
from callkeeper.app.settings import RuleSettings
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.fleet import ManagedProcess

WARM_UP = 20
WAITING_S = 20.0
"""A call that was checked is due again after more than this many seconds (`settings`)."""

TICK_S = 0.01
"""The smallest CPU time that the kernel reports. A smoke run may take less."""

RESULTS, IDS, GO = "bench:results", "bench:ids", "bench:go"
HERE = Path(sys.executable)

REDIS_7 = Path("/usr/bin/redis-server")
"""Debian's server. streaQ needs Redis 7; the server for the others is older."""

Lay = Callable[[list[str]], None]
"""Function that gives a way one check for each id."""

Run = Callable[[], AbstractContextManager[tuple[ManagedProcess, Lay]]]
"""Function that starts a way's worker, and yields the worker and the function that gives it checks."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to make checks.

    Attributes:
        calls: How many checks it makes in a round.
        on: Where it runs.
        made: Counts the results that are stored.
    """

    name: str
    calls: int
    on: Stage
    run: Run
    made: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a way in one round."""

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
    with ExitStack() as stack:
        ways = _ways(stack, effort)
        rounds: dict[str, list[Round]] = {way.name: [] for way in ways}
        for _ in range(effort.rounds):
            for way in ways:
                rounds[way.name].append(_measure(way))
    return _told(ways, rounds)


def _measure(way: Way) -> Round:
    """Run one way once: warm it up, stop its process, queue the checks, and let it continue."""
    way.on.clear()
    with way.run() as (worker, lay):
        warm_up = min(WARM_UP, way.calls)
        _work(way, worker, lay, [f"warm-{n:06}" for n in range(warm_up)])
        return Round(way.calls, _work(way, worker, lay, [f"call-{n:06}" for n in range(way.calls)]))


def _work(way: Way, worker: ManagedProcess, lay: Lay, ids: list[str]) -> Used:
    worker.process.send_signal(signal.SIGSTOP)
    lay(ids)
    before = way.made()
    meter = way.on.meter(worker=worker)
    worker.process.send_signal(signal.SIGCONT)
    wait_until(lambda: way.made() >= before + len(ids), f"{len(ids)} checks by {way.name}", worker)
    return meter.read()


def _ways(stack: ExitStack, effort: Effort) -> list[Way]:
    on = stack.enter_context(stage())
    ways = [
        _ours("callkeeper, 2,000 due", effort.of(2000), on),
        _ours("callkeeper, 10,000 due", effort.of(10000), on),
        _peer("(a) rq worker", effort.of(40), on, HERE, "rq_check", "stock"),
        _peer("(a) rq worker, preloaded", effort.of(40), on, HERE, "rq_check", "preloaded"),
        _peer("(b) rq SimpleWorker", effort.of(100), on, HERE, "rq_check", "simple"),
    ]
    if not effort.is_smoke:
        older, newer = peers_python(), peers_python(REDIS_8)
        ways += [
            _peer("(c) celery, 100 threads", 1000, on, older, "celery_check", "worker"),
            _peer("(d) arq, httpx", 1000, on, older, "arq_check", "httpx"),
            _peer("(d2) arq, our client", 2000, on, older, "arq_check", "ours"),
            _peer("(f) SAQ, our client", 2000, on, older, "saq_check", "worker"),
            _peer("(g) docket, our client", 2000, on, newer, "docket_check", "worker"),
            _peer("(h) taskiq, our client", 2000, on, newer, "taskiq_check", "worker"),
        ]
        if REDIS_7.exists():
            on_7 = stack.enter_context(stage(redis_server=REDIS_7))
            ways.append(_peer("(i) streaQ, our client", 2000, on_7, newer, "streaq_check", "worker"))
    return [
        *ways,
        _peer("(e) bare loop, our client", effort.of(2000), on, HERE, "bare", "stored"),
        _peer("(e) bare loop, nothing stored", effort.of(2000), on, HERE, "bare", "unstored"),
    ]


def _ours(name: str, calls: int, on: Stage) -> Way:
    environ = settings(on.data)
    book = RuleSettings.load(environ).book()

    def lay(ids: list[str]) -> None:
        on.redis.delete(Keys().due)  # the calls of the warm-up, which `checked` would count until they are read
        # The queue must list the new calls, because a worker treats calls that are not listed as ended.
        lay_due_calls(on.redis, on.begin_calls(len(ids), assigned=True), book)

    @contextmanager
    def run() -> Iterator[tuple[ManagedProcess, Lay]]:
        with on.worker(**environ) as worker:
            yield worker, lay

    def checked() -> int:
        """Count the calls whose next check or read is in the future. The other calls are due or claimed."""
        return int(on.redis.zcount(Keys().due, (time.time() + WAITING_S) * 1000, "+inf"))

    return Way(name, calls, on, run, checked)


def _peer(name: str, calls: int, on: Stage, interpreter: Path, module: str, mode: str) -> Way:
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

    return Way(name, calls, on, run, lambda: int(on.redis.hlen(RESULTS)))


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
_OTHERS = ("(f) SAQ, our client", "(g) docket, our client", "(h) taskiq, our client", "(i) streaQ, our client")
_GOALS = (
    (_STOCK, "30 times stock RQ", 30.0),
    (_ARQ, "5 times arq with httpx", 5.0),
    (_ARQ_OURS, "1.3 times arq with our client", 1.3),
    *((way, f"ahead of {way[4:]}", 1.0) for way in _OTHERS),
    (_BARE, "three quarters of the bare loop", 0.75),
)
_NOTE = (
    "The service takes 50 ms. Ours books, decides, writes a trail and saves; the others store one result. Times as "
    "many: per second of the worker's CPU. Stand-in, Redis: their shares of a core; neither is the bottleneck. streaQ "
    "needs Redis 7 and has its own server; without one, streaQ is not measured."
)

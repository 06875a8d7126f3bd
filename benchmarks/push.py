"""How many events does one receiver record, and how fast, compared with a plain one and one that only answers?"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec

from benchmarks.answer import Answer, Table
from benchmarks.effort import Effort
from benchmarks.goals import Goal, goals_table
from benchmarks.load import Report
from benchmarks.peers_environment import peers_python
from benchmarks.process import Used, python
from benchmarks.spread import Spread, quantile
from benchmarks.stage import BenchmarkFailed, Stage, stage, wait_until
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.ports import free_port

RATE = 1000
HERE = Path(sys.executable)


@dataclass(frozen=True, slots=True)
class Way:
    """One receiver: its name, and a function that runs it and yields its process and the address to push to."""

    name: str
    run: Callable[[], AbstractContextManager[tuple[ManagedProcess, str]]]


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a receiver in one round: at saturation, and at a fixed rate."""

    full: Report
    used: Used
    steady: Report

    @property
    def per_s(self) -> float:
        """Return events per second at saturation."""
        return self.full.accepted / self.full.seconds

    @property
    def per_cpu_s(self) -> float:
        """Return events per second of the receiver's CPU time."""
        return self.full.accepted / self.used.cpu_s["receiver"]


def answer(effort: Effort) -> Answer:
    """Push events to every receiver in turn, round after round."""
    with stage() as on:
        ways = _ways(on, effort)
        rounds: dict[str, list[Round]] = {way.name: [] for way in ways}
        for _ in range(effort.rounds):
            for way in ways:
                rounds[way.name].append(_measure(on, way, 0.5 if effort.is_smoke else 4.0))
    return _told(rounds)


def _measure(on: Stage, way: Way, seconds: float) -> Round:
    on.clear()
    with way.run() as (receiver, url):
        _push(on, url, seconds / 4)
        meter = on.meter(receiver=receiver)
        full = _push(on, url, seconds)
        used = meter.read()
        return Round(full, used, _push(on, url, seconds, rate=RATE))


def _push(on: Stage, url: str, seconds: float, *, rate: int | None = None) -> Report:
    log = on.log("load")
    arguments = [url, "--seconds", str(seconds), *(("--rate", str(rate)) if rate else ())]
    with python("benchmarks.load", *arguments, log=log) as load:
        load.process.wait(60)
        lines = log.read_bytes().splitlines()
    report = msgspec.json.decode(lines[-1], type=Report)
    if report.refused:
        raise BenchmarkFailed(f"{url} refused {report.refused} events")
    return report


def _ways(on: Stage, effort: Effort) -> list[Way]:
    def peer(interpreter: Path, mode: str) -> Callable[[], AbstractContextManager[tuple[ManagedProcess, str]]]:
        @contextmanager
        def run() -> Iterator[tuple[ManagedProcess, str]]:
            port = free_port()
            with on.peer(interpreter, "receivers", mode, str(port)) as receiver:
                url = f"http://127.0.0.1:{port}/push"
                wait_until(lambda: _answers(url), url, receiver)
                yield receiver, url

        return run

    ways = [Way("callkeeper", on.web), Way("starlette, rq in a thread", peer(HERE, "plain"))]
    if not effort.is_smoke:
        ways.append(Way("fastapi, arq", peer(peers_python(), "fastapi")))
    return [*ways, Way("only answers", peer(HERE, "answering"))]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code > 0
    except httpx.HTTPError:
        return False


def _told(rounds: dict[str, list[Round]]) -> Answer:
    ours = rounds["callkeeper"]
    rows = tuple(
        (
            name,
            Spread.of(each.per_s for each in mine),
            Spread.of(each.per_cpu_s for each in mine),
            Spread.of(1e6 / each.per_cpu_s for each in mine),
            _ratio(ours, mine),
            Spread.of(our.per_cpu_s / each.per_cpu_s for our, each in zip(ours, mine, strict=True)),
            Spread.of(each.used.share("redis") for each in mine),
            Spread.of(each.full.cpu_s / each.full.seconds for each in mine),
            Spread.of(quantile(each.steady.times_ms, 0.5) for each in mine),
            Spread.of(quantile(each.steady.times_ms, 0.99) for each in mine),
        )
        for name, mine in rounds.items()
    )
    columns = (
        *(
            "receiver",
            "events per s",
            "per CPU-s",
            "CPU us each",
            "ours: times as many",
            "ours: times as many per CPU-s",
            "Redis's core",
            "sender's core",
        ),
        *("p50 ms at 1,000/s", "p99 ms"),
    )
    ratios = {name: _ratio(ours, mine) for name, mine in rounds.items()}
    goals = (
        Goal.at_least("events per s: 5 times the plain way", ratios["starlette, rq in a thread"], 5.0),
        Goal.at_least("events per s: half of only answering", ratios["only answers"], 0.5),
        Goal.at_most(
            "p99 under 10 ms at 1,000/s", Spread.of(quantile(each.steady.times_ms, 0.99) for each in ours), 10.0
        ),
    )
    note = "50 connections; sender and Redis share the cores with the receiver. Times count from when an event is due."
    table = Table("Events recorded by one process", columns, rows, note)
    return Answer("How many events does one receiver record?", (table, goals_table(*goals)))


def _ratio(ours: list[Round], theirs: list[Round]) -> Spread:
    return Spread.of(our.per_s / each.per_s for our, each in zip(ours, theirs, strict=True))

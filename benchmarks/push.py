"""How many events does one receiver record, and how fast, compared with a plain one and one that only answers?"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import httpx
import msgspec

from benchmarks.figures import Answer, Effort, Goal, Spread, Table, quantile
from benchmarks.load import Report
from benchmarks.stage import BenchmarkFailed, Stage, cpu_s, python, stage, wait_until
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.ports import free_port

RATE = 1000

Way = Callable[[], AbstractContextManager[tuple[ManagedProcess, str]]]
"""Function that runs a receiver and yields its process and the address to push to."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a receiver in one round: at saturation, and latency in ms at a fixed rate."""

    per_s: float
    per_cpu_s: float
    times_ms: list[float]


def answer(effort: Effort) -> Answer:
    """Push events to every receiver in turn, round after round."""
    with stage() as on:
        ways: dict[str, Way] = {
            "callkeeper": on.web,
            "starlette, rq in a thread": lambda: _peer(on, "plain"),
            "only answers": lambda: _peer(on, "answering"),
        }
        rounds: dict[str, list[Round]] = {name: [] for name in ways}
        for _ in range(effort.rounds):
            for name, run in ways.items():
                on.clear()
                with run() as (receiver, url):
                    rounds[name].append(_measure(on, receiver, url, 0.5 if effort.is_smoke else 4.0))
    return _told(rounds)


def _measure(on: Stage, receiver: ManagedProcess, url: str, seconds: float) -> Round:
    _push(on, url, seconds / 4)
    before_s = cpu_s(receiver.process.pid)
    full = _push(on, url, seconds)
    used_s = cpu_s(receiver.process.pid) - before_s
    return Round(full.accepted / full.seconds, full.accepted / used_s, _push(on, url, seconds, rate=RATE).times_ms)


def _push(on: Stage, url: str, seconds: float, *, rate: int = 0) -> Report:
    log = on.log("load")
    with python("benchmarks.load", url, str(seconds), str(rate), log=log, environ={}) as load:
        load.process.wait(60)
        lines = log.read_bytes().splitlines()
    report = msgspec.json.decode(lines[-1], type=Report)
    if report.refused:
        raise BenchmarkFailed(f"{url} refused {report.refused} events")
    return report


@contextmanager
def _peer(on: Stage, mode: str) -> Iterator[tuple[ManagedProcess, str]]:
    port = free_port()
    with on.peer("receivers", mode, str(port)) as receiver:
        url = f"http://127.0.0.1:{port}/push"
        wait_until(lambda: _answers(url), url, receiver)
        yield receiver, url


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code > 0
    except httpx.HTTPError:
        return False


def _told(rounds: dict[str, list[Round]]) -> Answer:
    ours = rounds["callkeeper"]
    ratios = {
        name: Spread.of(our.per_s / each.per_s for our, each in zip(ours, mine, strict=True))
        for name, mine in rounds.items()
    }
    rows = tuple(
        (
            name,
            Spread.of(each.per_s for each in mine),
            Spread.of(each.per_cpu_s for each in mine),
            ratios[name],
            Spread.of(quantile(each.times_ms, 0.5) for each in mine),
            Spread.of(quantile(each.times_ms, 0.99) for each in mine),
        )
        for name, mine in rounds.items()
    )
    columns = ("receiver", "events per s", "per CPU-s", "ours: times as many", "p50 ms at 1,000/s", "p99 ms")
    late = Spread.of(quantile(each.times_ms, 0.99) for each in ours)
    goals = (
        Goal("events per s, times the plain way", ratios["starlette, rq in a thread"], least=5.0),
        Goal("events per s, times only answering", ratios["only answers"], least=0.5),
        Goal("p99 ms at 1,000/s", late, most=10.0),
    )
    return Answer(Table("Events recorded by one process, 50 connections", columns, rows), goals)

"""How soon is a process ready, and how much memory does it use?"""

import os
import subprocess
import sys
import time
from resource import RUSAGE_CHILDREN, getrusage

from benchmarks.answer import Answer, Cell, Table
from benchmarks.effort import Effort
from benchmarks.process import ROOT, cpu_s, resident_mb
from benchmarks.spread import Spread
from benchmarks.stage import Stage, stage

Measured = tuple[float, float, float]
"""Seconds to ready, CPU seconds until then, MB in RAM."""


def answer(effort: Effort) -> Answer:
    """Start each process and each import several times."""
    rounds = 1 if effort.is_smoke else max(5, effort.rounds)
    with stage() as on:
        web = [_web(on) for _ in range(rounds)]
        worker = [_worker(on) for _ in range(rounds)]
    rows = _row("web: listens", web), _row("worker: takes jobs", worker)
    imports = tuple(
        (what, Spread.of(_import_s(what) for _ in range(rounds)))
        for what in ("callkeeper.app.web_app", "callkeeper.app.wiring")
    )
    return Answer(
        "How soon is a process ready, and what does it weigh?",
        (
            Table("Processes", ("process", "s to ready", "CPU s", "MB"), rows),
            Table("Imports", ("module", "CPU s, Python's own start included"), imports),
        ),
    )


def _row(name: str, found: list[Measured]) -> tuple[Cell, ...]:
    return name, *(Spread.of(each[n] for each in found) for n in range(3))


def _web(on: Stage) -> Measured:
    began_s = time.monotonic()
    with on.web() as (member, _):
        return time.monotonic() - began_s, cpu_s(member.process.pid), resident_mb(member.process.pid)


def _worker(on: Stage) -> Measured:
    began_s = time.monotonic()
    with on.worker() as member:
        return time.monotonic() - began_s, cpu_s(member.process.pid), resident_mb(member.process.pid)


def _import_s(module: str) -> float:
    """Return the CPU seconds of a Python that imports a module and ends."""
    before = getrusage(RUSAGE_CHILDREN)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=environ)  # noqa: S603  (ours)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

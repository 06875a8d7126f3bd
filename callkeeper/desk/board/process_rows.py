"""The table of processes: where each runs, its release and rules, its CPU, and what it does now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.snapshot import Process
from callkeeper.calls.schedule.reads import BUSY

LATE: Final = timedelta(seconds=3)
"""A process reports every second. One that has not for so long is marked."""

SHOWN: Final = 200
"""How many processes are shown."""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process, and what is odd about it. ``silent`` is how long it has not reported."""

    process: Process
    silent: timedelta | None
    has_other_rules: bool
    has_other_release: bool

    @property
    def is_late(self) -> bool:
        return self.silent is not None and self.silent >= LATE

    @property
    def is_busy(self) -> bool:
        return self.process.cpu is not None and self.process.cpu >= BUSY

    @property
    def now(self) -> str:
        """Return in a few words what it does."""
        return doing_words(self.process.doing, self.process.kind)


def doing_words(doing: Doing | None, kind: str) -> str:
    """Return what a process does, for people."""
    if doing is None:
        return "not reported by this release"
    if kind == "web":
        return _counted(doing.streams, "open stream")
    if doing.shift_s is None:
        return "waits for a job"
    if doing.cut_off_s is not None:
        return f"cannot reach the service for {doing.cut_off_s:.0f} s; others can"
    in_flight = ", ".join(_in_flight(doing))
    return f"shift of {doing.shift_s:.0f} s, {in_flight or 'nothing'} in flight"


def _in_flight(doing: Doing) -> Iterator[str]:
    for n, word in (
        (doing.calls, "call"),
        (doing.listings, "listing"),
        (doing.outcomes, "outcome"),
        (doing.archived, "archived batch"),
    ):
        if n:
            yield _counted(n, word)


def _counted(n: int, word: str) -> str:
    plural = "batches" if word.endswith("batch") else "s"
    return f"{n} {word}" if n == 1 else f"{n} {word.removesuffix('batch')}{plural}"


def rows_of(processes: Sequence[Process], now: datetime, rules: str) -> list[ProcessRow]:
    """Return the processes, workers first. ``rules`` is the digest in force; empty if none is known."""
    releases = [process.version for process in processes]
    usual = max(set(releases), key=releases.count, default="")
    rows = [
        ProcessRow(
            process,
            None if process.reported_at is None else max(timedelta(), now - process.reported_at),
            bool(rules) and process.rules not in {"", rules},
            process.version != usual,
        )
        for process in processes
    ]
    return sorted(rows, key=lambda row: (row.process.kind != "worker", row.process.host, row.process.since))

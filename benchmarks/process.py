"""A measured process: the kernel reports its CPU time and memory, and it is ended by its id.

CPU time includes all its threads and the children it has waited for (``/proc/PID/stat``: Linux only). So it
includes the forks of a worker that forks for every job.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from callkeeper_sandbox.demo.fleet import ManagedProcess

_TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parent.parent


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process and its finished children have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def resident_mb(pid: int) -> float:
    """Return the memory of a process that is in RAM, in MB (10^6 bytes)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6


@dataclass(frozen=True, slots=True)
class Used:
    """CPU time between two moments: the seconds that passed, and the CPU seconds of each process by name."""

    wall_s: float
    cpu_s: Mapping[str, float]

    def share(self, name: str) -> float:
        """Return the share of one core that a process used."""
        return self.cpu_s[name] / self.wall_s


class Meter:
    """Reads the CPU time of several processes at the same moment."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self._begin = self._read()
        self._began_s = time.monotonic()

    def read(self) -> Used:
        """Return the CPU time since the meter was created."""
        wall_s = time.monotonic() - self._began_s
        return Used(wall_s, {name: used - self._begin[name] for name, used in self._read().items()})

    def _read(self) -> dict[str, float]:
        return {name: cpu_s(pid) for name, pid in self._pids.items()}


@contextmanager
def process(
    command: Sequence[str | Path], log: Path, *, environ: Mapping[str, str] | None = None
) -> Iterator[ManagedProcess]:
    """Run a command until the block ends; write its output to ``log``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CALLKEEPER_")}
    with log.open("wb") as sink:
        running = subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(environ or {})},
            start_new_session=True,
        )
    member = ManagedProcess(log.stem, running, log)
    try:
        yield member
    finally:
        member.stop(5.0)


@contextmanager
def python(
    module: str, *arguments: str, log: Path, environ: Mapping[str, str] | None = None
) -> Iterator[ManagedProcess]:
    """Run ``python -m MODULE`` with this Python until the block ends."""
    with process([sys.executable, "-m", module, *arguments], log, environ=environ) as member:
        yield member

"""The machine and versions of a measurement, to compare figures by."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

_STEAL = 7
"""The place of ``steal`` among the states of a core: user, nice, system, idle, iowait, irq, softirq, steal."""

_PACKAGES = ("redis", "rq", "httpx", "aiohttp", "starlette", "uvicorn", "uvloop", "msgspec", "hiredis", "structlog")


def machine() -> dict[str, str]:
    """Return this machine's hardware, its current load, and the versions that ran."""
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        **{name: version(name) for name in _PACKAGES},
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


class Stolen:
    """The CPU time that the host gave to its other guests since this was created (``/proc/stat``: Linux only)."""

    def __init__(self) -> None:
        self._begin = self._read()

    def percent(self) -> float:
        """Return its share of all cores' time, in percent. It lengthens the latest answers more than the median."""
        times = [now - before for now, before in zip(self._read(), self._begin, strict=True)]
        return 100 * times[_STEAL] / max(1, sum(times))

    @staticmethod
    def _read() -> list[int]:
        """Return ticks in each state; time of our own guests counts twice, and is left out."""
        return list(map(int, Path("/proc/stat").read_text().partition("\n")[0].split()[1 : _STEAL + 2]))

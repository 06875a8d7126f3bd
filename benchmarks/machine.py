"""The machine and versions of a measurement, to compare figures by."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

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

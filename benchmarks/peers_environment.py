"""Virtual environments for the peers, which need other Redis clients than ours. Created at first use."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from benchmarks.process import ROOT

REDIS_5, REDIS_8 = "requirements", "requirements-redis8"
"""The lock files in ``benchmarks/peers``, by the version of redis-py in them."""


def peers_python(lock: str = REDIS_5) -> Path:
    """Return the Python of some peers: our own, so that all run at its speed, with the packages of their lock file.

    Installs these first if the lock file or our Python has changed.

    Raises:
        subprocess.CalledProcessError: A package could not be installed.
    """
    requirements = ROOT / "benchmarks" / "peers" / f"{lock}.txt"
    folder = ROOT / lock.replace("requirements", ".venv-peers")
    python, stamp = folder / "bin" / "python", folder / ".installed"
    ours = str(Path(sys.executable).resolve())
    wanted = sha256(requirements.read_bytes() + ours.encode()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        for command in ([sys.executable, "-m", "venv", "--clear", folder], [*pip, "-r", requirements]):
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)  # noqa: S603  (ours)
        stamp.write_text(wanted)
    return python

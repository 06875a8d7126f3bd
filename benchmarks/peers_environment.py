"""The peers' own virtual environment: arq needs a Redis client older than ours. Made when it is first needed."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from benchmarks.process import ROOT

REQUIREMENTS = ROOT / "benchmarks" / "peers" / "requirements.txt"
FOLDER = ROOT / ".venv-peers"


def peers_python() -> Path:
    """Return the peers' Python, after installing what the lock file names if it is not the one installed.

    Raises:
        subprocess.CalledProcessError: Something could not be installed.
    """
    python, stamp = FOLDER / "bin" / "python", FOLDER / ".installed"
    wanted = sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        for command in ([sys.executable, "-m", "venv", FOLDER], [*pip, "-r", REQUIREMENTS]):
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)  # noqa: S603  (ours)
        stamp.write_text(wanted)
    return python

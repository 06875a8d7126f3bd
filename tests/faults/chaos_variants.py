"""Chaos runs under variants of the sandbox: each variant alone, and sets that contain every pair of them.

``python -m tests.faults.chaos_variants`` runs `tests.faults.chaos` with real processes for each, two at a time, and
exits with 1 if any of the runs was not clean. A run takes 45 s, of which 15 s are chaos; docs/guarantees.md says how
many.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from callkeeper_sandbox.service.variants import VARIANTS
from tests.covering import covering_sets


def run(names: Sequence[str], seconds: float, seed: int) -> tuple[Sequence[str], subprocess.CompletedProcess[str]]:
    """Do one chaos run under variants."""
    command = [sys.executable, "-m", "tests.faults.chaos", "--minutes", str(seconds / 60), "--seed", str(seed)]
    command += [f"--variant={name}" for name in names]
    return names, subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (ourselves)


def main(arguments: list[str]) -> int:
    """Do the chosen runs, print how each ended, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="variants, each alone; default: all of them, and the sets")
    parser.add_argument("--seconds", type=float, default=15.0, help="of chaos in each run")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next one has the next")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    given = parser.parse_args(arguments)
    chosen = [[name] for name in given.names] or [*([name] for name in VARIANTS), *covering_sets()]
    unclean = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        seeds = range(given.seed, given.seed + len(chosen))
        for names, ended in pool.map(run, chosen, [given.seconds] * len(chosen), seeds):
            is_clean = ended.returncode == 0
            unclean += not is_clean
            sys.stdout.write(f"{'clean    ' if is_clean else 'NOT CLEAN'} {' '.join(names)}\n")
            sys.stdout.write("" if is_clean else ended.stdout + ended.stderr[-2000:])
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen)} runs, {unclean} not clean\n")
    return 1 if unclean else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

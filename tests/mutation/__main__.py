"""``make mutants``: changes modules in small ways, one at a time, and counts the changes that their tests notice.

``scores.txt`` has the score of each module. The command fails if one falls, and names the changes that no test
noticed. A test may be deleted if the score of what it touched does not fall.

    make mutants                             all modules
    make mutants ARGS="archive move"         those whose path contains a word
    make mutants ARGS="--since main"         those that differ from a commit, or whose tests do
    make mutants ARGS="move --write"         write what was found into the file
    make mutants ARGS="move --sample 50"     try so many changes of each; --all for every one
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from tests.mutation.tree import ROOT, copies

FILE: Final = Path(__file__).with_name("scores.txt")
SAMPLE: Final = 12
"""How many changes of a module are tried, unless more were recorded."""

SCORED: Final = (
    "callkeeper/archive/",
    "callkeeper/calls/",
    "callkeeper/desk/access/",
    "callkeeper/service/",
    "receiver/",
    "workers/",
)
"""The packages whose modules have scores."""

_HEAD: Final = """\
# What the tests of a module notice of small changes to it: killed, tried, score in percent, module, and its tests below
# tests/, run in this order for each change. By hand: module and tests. `make mutants ARGS="WORD --write"` writes the
# rest; tests/mutation says how.
"""


class Outcome(NamedTuple):
    """What became of one change: was it noticed, the line that it changes, and what that became."""

    is_killed: bool
    line: str
    becomes: str


class Module(NamedTuple):
    """One module: its path, the patterns of its tests, and how many of the changes tried were noticed."""

    path: str
    tests: tuple[str, ...]
    killed: int = 0
    tried: int = 0

    @property
    def score(self) -> float:
        """Noticed changes in percent."""
        return 100 * self.killed / self.tried if self.tried else 100.0

    def test_paths(self) -> list[str]:
        """Return the files and folders that the patterns name, in the patterns' order."""
        found = (str(path.relative_to(ROOT)) for each in self.tests for path in sorted(ROOT.glob(f"tests/{each}")))
        return list(dict.fromkeys(found))

    def differs(self, changed: Collection[str]) -> bool:
        """Tell whether the module or a test of it is among files that changed."""
        patterns = [pattern for each in self.tests for pattern in (f"tests/{each}", f"tests/{each}/*")]
        return self.path in changed or any(fnmatch(path, pattern) for path in changed for pattern in patterns)

    def found(self, outcomes: Sequence[Outcome]) -> "Module":
        """Return the module with the outcomes of other trials, and without the tests that are gone."""
        tests = tuple(each for each in self.tests if any(ROOT.glob(f"tests/{each}")))
        return self._replace(tests=tests, killed=sum(each.is_killed for each in outcomes), tried=len(outcomes))

    def is_worse_than(self, before: "Module") -> bool:
        """Compare two scores as percent without decimals, which is how they are written."""
        return bool(before.tried) and round(self.score) < round(before.score)


def modules() -> tuple[Module, ...]:
    """Read the file."""
    rows = (line.split() for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return tuple(
        Module(path, tuple(tests), int(killed), int(tried)) for killed, tried, _, path, *tests in filter(None, rows)
    )


def written(all_modules: Collection[Module]) -> str:
    """Return the file."""
    width = max(len(each.path) for each in all_modules)
    rows = [
        f"{each.killed:3} {each.tried:3} {f'{each.score:.0f}' if each.tried else '-':>4}  "
        f"{each.path:{width}}  {' '.join(each.tests)}\n"
        for each in sorted(all_modules)
    ]
    return _HEAD + "".join(rows)


def main(arguments: list[str]) -> int:
    """Try the modules; return 1 if the score of one of them has fallen."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("words", nargs="*", help="parts of the paths of modules")
    parser.add_argument("--since", metavar="REV", help="only modules that differ from a commit, or whose tests do")
    parser.add_argument("--sample", type=int, default=SAMPLE, help=f"changes of each module; {SAMPLE} unless given")
    parser.add_argument("--all", dest="sample", action="store_const", const=sys.maxsize, help="every change")
    parser.add_argument("--write", action="store_true", help=f"write what was found into {FILE.relative_to(ROOT)}")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="modules, each in its own copy")
    asked = parser.parse_args(arguments)
    changed = _changed_since(asked.since) if asked.since else None
    chosen = [
        each
        for each in modules()
        if (not asked.words or any(word in each.path for word in asked.words))
        and (changed is None or each.differs(changed))
    ]
    for path in sorted({path for path in changed or () if _has_code(path)} - {each.path for each in modules()}):
        print(f"{path}: no score; add it to {FILE.relative_to(ROOT)}", flush=True)  # noqa: T201
    worse = 0
    with copies(min(asked.at_once, len(chosen))) as free, ThreadPoolExecutor(asked.at_once) as pool:
        trials = {pool.submit(_tried, free, asked.sample, each): each for each in chosen}
        for trial in as_completed(trials):
            before, outcomes = trials[trial], trial.result()
            worse += _is_worse(before, outcomes)
            if asked.write and outcomes is not None:
                _write(before, outcomes)
    return 1 if worse and not asked.write else 0


def _changed_since(revision: str) -> list[str]:
    command = ["git", "diff", "--name-only", "--no-renames", "--merge-base", revision]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()  # noqa: S603


def _has_code(path: str) -> bool:
    return path.startswith(SCORED) and path.endswith(".py") and (ROOT / path).is_file()


def _tried(free: SimpleQueue[Path], size: int, module: Module) -> list[Outcome] | None:
    """Try a module in a copy that nobody uses; none if it is gone. None: no test of it passes without any change."""
    if not (ROOT / module.path).exists():
        return []
    tests = module.test_paths()
    if not tests:
        return None
    copy = free.get()
    command = [sys.executable, "-m", "tests.mutation.trial", module.path, str(max(size, module.tried))]
    environ = {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}
    ended = subprocess.run(  # noqa: S603  (our own arguments)
        [*command, *tests], cwd=copy, env=environ, stdout=subprocess.PIPE, check=False
    )
    free.put(copy)
    return None if ended.returncode else [Outcome(*json.loads(line)) for line in ended.stdout.splitlines()]


def _is_worse(before: Module, outcomes: list[Outcome] | None) -> bool:
    """Print what became of a module's score, and what no test noticed if it has fallen.

    Of a larger sample than was recorded, those count that were recorded: they are its first.
    """
    if outcomes is None:
        print(f"{before.path}: its tests fail without any change, or are gone", flush=True)  # noqa: T201
        return True
    now = before.found(outcomes)
    is_worse = bool(outcomes) and before.found(outcomes[: before.tried or None]).is_worse_than(before)
    was = f"{before.score:.0f} % of {before.tried}" if before.tried else "not tried"
    print(f"{'WORSE ' if is_worse else ''}{now.path}: {now.score:.0f} % of {now.tried}, was {was}", flush=True)  # noqa: T201
    for each in outcomes if is_worse else ():
        if not each.is_killed:
            print(f"  survives:   {each.line}\n  changed to: {each.becomes}", flush=True)  # noqa: T201
    return is_worse


def _write(before: Module, outcomes: list[Outcome]) -> None:
    """Write the score of a module, or leave it out if it is gone."""
    others = [each for each in modules() if each.path != before.path]
    FILE.write_text(written([*others, before.found(outcomes)] if outcomes else others), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

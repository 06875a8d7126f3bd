"""``make mutants``: changes the core in small ways, one at a time, and counts the changes that no test notices.

``mutants.toml`` has, for each module, the tests that are run, the score, and the changes that survived. The command
fails if a module's score is lower than written there, and names the survivors that are new.

    make mutants                             all modules
    make mutants ARGS="decide move"          those whose path contains a word
    make mutants ARGS="move --write"         write what was found into the file
    make mutants ARGS="--at-once 4"          four modules at a time, each in its own copy of the tree
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import msgspec

from tests.mutation.tree import ROOT, copies

FILE: Final = Path(__file__).with_name("mutants.toml")
_HEAD: Final = """\
# Small changes of the core that no test notices. `make mutants` tries them; tests/mutation says how.
#
# By hand: `path`, `tests` (run in this order, for each change), `one_in` (1: every change is tried; 3: a third of them,
# chosen by their text), and `equivalent`: why a change makes no difference that a test could see. Such a change does
# not count. All else is written by `make mutants ARGS="MODULE --write"`.
"""


class Survivor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change that no test noticed: the line, and what it became. ``equivalent`` says why no test could."""

    line: str
    becomes: str
    equivalent: str | None = None


class Module(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One module: how it is tried, and what was found."""

    path: str
    tests: tuple[str, ...]
    one_in: int = 1
    tried: int = 0
    killed: int = 0
    survivors: tuple[Survivor, ...] = ()

    @property
    def score(self) -> float:
        """Killed changes, in percent of those that a test could notice."""
        noticeable = self.killed + sum(survivor.equivalent is None for survivor in self.survivors)
        return 100 * self.killed / noticeable if noticeable else 100.0

    def found(self, outcomes: list[tuple[str, str, str]]) -> "Module":
        """Return the module with new outcomes. Reasons that somebody wrote stay with their changes."""
        reasons = {(each.line, each.becomes): each.equivalent for each in self.survivors}
        alive = sorted((line, becomes) for outcome, line, becomes in outcomes if outcome == "survived")
        killed = sum(outcome == "killed" for outcome, _, _ in outcomes)
        survivors = tuple(Survivor(*each, reasons.get(each)) for each in alive)
        return msgspec.structs.replace(self, tried=killed + len(alive), killed=killed, survivors=survivors)

    def new_since(self, before: "Module") -> list[Survivor]:
        """Return survivors that were not there before."""
        known = Counter((each.line, each.becomes) for each in before.survivors)
        now = Counter((each.line, each.becomes) for each in self.survivors)
        return [Survivor(*each) for each in (now - known).elements()]


def modules() -> tuple[Module, ...]:
    """Read the file."""
    table = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return msgspec.convert(table["module"], tuple[Module, ...])


def written(all_modules: tuple[Module, ...]) -> str:
    """Return the file."""
    return _HEAD + "".join(map(_table, all_modules))


def _table(module: Module) -> str:
    lines = ["", "[[module]]", f"path = {_text(module.path)}", "tests = ["]
    lines += [f"    {_text(test)}," for test in module.tests]
    lines += ["]", f"one_in = {module.one_in}", f"tried = {module.tried}", f"killed = {module.killed}"]
    lines += [f"# {module.score:.1f} % of the changes that a test could notice" if module.tried else "# not tried yet"]
    for survivor in module.survivors:
        lines += ["", "[[module.survivors]]", f"line = {_text(survivor.line)}", f"becomes = {_text(survivor.becomes)}"]
        lines += [f"equivalent = {_text(survivor.equivalent)}"] if survivor.equivalent else []
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """Return a TOML string, which JSON's is too."""
    return json.dumps(text, ensure_ascii=False)


def _tried(free: SimpleQueue[Path], module: Module) -> Module | None:
    """Try a module in a copy that nobody uses. None: its tests fail without any change."""
    copy = free.get()
    command = [sys.executable, "-m", "tests.mutation.trial", module.path, str(module.one_in), *module.tests]
    ended = subprocess.run(  # noqa: S603  (our own arguments)
        command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, stdout=subprocess.PIPE, check=False
    )
    free.put(copy)
    return None if ended.returncode else module.found([tuple(json.loads(line)) for line in ended.stdout.splitlines()])


def main(arguments: list[str]) -> int:
    """Try the modules; return 1 if one of them is tested less well than the file says."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("words", nargs="*", help="parts of the paths of modules")
    parser.add_argument("--write", action="store_true", help=f"write what was found into {FILE.relative_to(ROOT)}")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    chosen = [each for each in modules() if not asked.words or any(word in each.path for word in asked.words)]
    worse = 0
    with copies(min(asked.at_once, len(chosen))) as free, ThreadPoolExecutor(asked.at_once) as pool:
        for before, after in zip(chosen, pool.map(partial(_tried, free), chosen), strict=True):
            worse += _is_worse(before, after)
            if asked.write and after is not None:
                known = tuple(after if each.path == after.path else each for each in modules())
                FILE.write_text(written(known), encoding="utf-8")
    return 1 if worse and not asked.write else 0


def _before(module: Module) -> str:
    return f"before: {module.score:.1f} % of {module.tried}" if module.tried else "not tried before"


def _is_worse(before: Module, after: Module | None) -> bool:
    """Print what became of a module's score."""
    if after is None:
        print(f"{before.path}: its tests fail without any change", flush=True)  # noqa: T201
        return True
    print(f"{after.path}: {after.score:.1f} % of {after.tried} ({_before(before)})", flush=True)  # noqa: T201
    for survivor in after.new_since(before):
        print(f"  survives:   {survivor.line}\n  changed to: {survivor.becomes}", flush=True)  # noqa: T201
    return bool(before.tried) and round(after.score, 1) < round(before.score, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Makes the corpus of a commit, compares this tree with it, and shows one call (`make corpus`, `make compare`).

The scenarios of a corpus are played with the stand-in of the commit that it was made from, which lies beside them: what
the service answers is an input.
"""

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

import click

from tests.corpus import core
from tests.corpus.comparing import LAYERS, cause_of, side_by_side
from tests.corpus.drawing import books
from tests.corpus.playing import playing
from tests.corpus.recording import Recording
from tests.corpus.scenario import About, Corpus, Played, digest_of_code
from tests.corpus.suites import SUITES, scenarios_of

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path("tests/corpus")
STAND_IN: Final = Path("sandbox")
in_folder = click.option("--corpus", type=Path, default=ROOT / "build/corpus", help="Its folder.", show_default=True)
with_jobs = click.option("--jobs", type=int, default=os.cpu_count() or 1, help="Processes at once.", show_default=True)


@click.group(help="What came of 20,000 calls at another commit, and what comes of them here.")
def main() -> None:
    """Take a command."""


@main.command()
@click.argument("revision")
@in_folder
@with_jobs
@click.option("--calls", type=int, default=20_000, show_default=True, help="How many calls without duplicates.")
@click.option("--minutes", type=float, default=600.0, help="Stop after so long, with the calls that there are.")
@click.option(
    "--suites/--no-suites", default=True, help="Begin with what the suites in virtual time do to their calls."
)
def make(revision: str, corpus: Path, jobs: int, calls: int, minutes: float, *, suites: bool) -> None:
    """Make the corpus of REVISION in a worktree, with the product, the stand-in and the harness of that commit."""
    commit = _git("rev-parse", "--short=8", f"{revision}^{{commit}}")
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            _put_recorder_into(tree)
            given = ["--corpus", str(corpus.resolve()), "--jobs", jobs, "--calls", calls, "--minutes", minutes]
            given.append("--suites" if suites else "--no-suites")
            command, environment = _python("record", commit, *map(str, given)), _environment(tree / STAND_IN)
            done = subprocess.run(command, cwd=tree, env=environment, check=False)  # noqa: S603  (ourselves)
        finally:
            _git("worktree", "remove", "--force", str(tree))
    sys.exit(done.returncode)


def _put_recorder_into(tree: Path) -> None:
    """Copy the recorder over a commit's own, except for what knows the core: that is the commit's.

    A commit that is older than the recorder gets the first module that there ever was.
    """
    own = tree / HERE / "core.py"
    core = own.read_text() if own.exists() else _first_core()
    shutil.rmtree(tree / HERE, ignore_errors=True)
    shutil.copytree(ROOT / HERE, tree / HERE, ignore=shutil.ignore_patterns("__pycache__"))
    own.write_text(core)


def _first_core() -> str:
    path = str(HERE / "core.py")
    added = _git("log", "--format=%h", "--diff-filter=A", "--", path).split()
    return _git("show", f"{added[-1]}:{path}") + "\n" if added else (ROOT / path).read_text()


@main.command(hidden=True)
@click.argument("revision")
@in_folder
@with_jobs
@click.option("--calls", type=int, required=True)
@click.option("--minutes", type=float, required=True)
@click.option("--suites/--no-suites", required=True)
def record(revision: str, corpus: Path, jobs: int, calls: int, minutes: float, *, suites: bool) -> None:
    """Make the corpus of the tree in which this runs. `make` calls it in a worktree."""
    kept, rules = Corpus(corpus), books(core.shipped_books())
    shutil.rmtree(corpus, ignore_errors=True)
    until_s = monotonic() + minutes * 60
    given = scenarios_of(SUITES, rules, jobs) if suites else []
    kept.begin(rules)
    shutil.copytree(STAND_IN, kept.stand_in, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    recording = Recording(calls, until_s)
    with playing(rules, jobs) as play:
        kept.write(recording.of(play, given))
    kept.finish(
        About(revision, digest_of_code(kept.stand_in), recording.calls, recording.scenarios, recording.duplicates)
    )
    click.echo(f"{corpus}: {recording.calls:,} calls of {revision} in {recording.scenarios:,} scenarios")


@main.command()
@in_folder
@with_jobs
@click.option("--calls", type=int, default=None, help="Only so many, evenly spread; all unless given.")
@click.option("--ignore", multiple=True, type=click.Choice(LAYERS), help="Leave out what differs in this layer.")
def compare(corpus: Path, jobs: int, calls: int | None, ignore: tuple[str, ...]) -> None:
    """Play the corpus with the code of this tree, and show what differs by cause. Exit with 1 if anything does."""
    kept = Corpus(corpus)
    _run_with_stand_in_of(kept)
    about = kept.about
    share = min(1.0, calls / about.calls) if calls else 1.0
    chosen = [pair for n, pair in enumerate(kept.recorded()) if int(n * share) != int((n + 1) * share)]
    causes: dict[str, list[str]] = defaultdict(list)
    compared = 0
    with playing(kept.rules, jobs) as play:
        olds = {scenario.name: played for scenario, played in chosen}
        for scenario, new in play([scenario for scenario, _ in chosen]):
            old = olds[scenario.name]
            compared += len(old.calls)
            for name, cause in _causes(old, new, ignore):
                causes[cause].append(name)
    what = f"{compared:,} of the {about.calls:,} calls of {about.revision}"
    if not causes:
        click.echo(f"{what} were played again: no difference.")
        return
    differing = len({name for names in causes.values() for name in names})
    click.echo(f"{what} were played again: {differing:,} differ, for these causes.\n")
    for cause, names in sorted(causes.items(), key=lambda one: (-len(one[1]), one[0])):
        click.echo(f"{len(names):6,}  {cause}\n        {', '.join(names[:3])}")
    first = next(iter(causes.values()))[0]
    click.echo(f"\nOne call, before and now: make compare ARGS='--corpus {corpus}' is for all; for one:")
    click.echo(f"  {_shown(Path(sys.executable))} -m tests.corpus show {first} --corpus {_shown(corpus)}")
    sys.exit(1)


def _causes(old: Played, new: Played, ignored: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield every call that differs with its cause, and the scenario if another promise is broken."""
    calls = {call.name: call for call in new.calls}
    for call in old.calls:
        cause = cause_of(call, calls[call.name], ignored)
        if cause is not None:
            yield call.name, cause
    if old.broken != new.broken:
        yield old.name, f"a promise or an error: {' / '.join(old.broken) or '-'} -> {' / '.join(new.broken) or '-'}"


@main.command()
@click.argument("call")
@in_folder
def show(call: str, corpus: Path) -> None:
    """Show what a CALL met, and what came of it before and now."""
    kept = Corpus(corpus)
    _run_with_stand_in_of(kept)
    name, _, n = call.partition("/")
    scenario, old = next(pair for pair in kept.recorded() if pair[0].name == name)
    with playing(kept.rules, 1) as play:
        [(_, new)] = play([scenario])
    click.echo(f"rules {scenario.rules}, variants {', '.join(scenario.variants) or 'none'}")
    at_s = 0.0
    for op in scenario.ops:
        if op[0] == "run":
            at_s += op[1]
        else:
            click.echo(f"{at_s:8.2f} {' '.join(map(str, op))}")
    for before in old.calls:
        if before.name == call or not n:
            now = next(one for one in new.calls if one.name == before.name)
            click.echo(f"\n{before.name}\n" + "\n".join(side_by_side(before, now)))
    if old.broken != new.broken:
        click.echo(f"\nbroken before: {old.broken}\nbroken now: {new.broken}")


def _run_with_stand_in_of(corpus: Corpus) -> None:
    """Begin this command anew, with the stand-in of a corpus in place of this tree's."""
    environment = _environment(corpus.stand_in.resolve())
    if any(os.environ.get(name) != environment[name] for name in ("PYTHONPATH", "PYTHONHASHSEED")):
        os.execve(sys.executable, _python(*sys.argv[1:]), environment)  # noqa: S606  (itself)


def _environment(stand_in: Path) -> dict[str, str]:
    """Return an environment in which the stand-in is found first, and sets have the same order each time."""
    return os.environ | {"PYTHONPATH": str(stand_in), "PYTHONHASHSEED": "0"}


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.corpus", *arguments]


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603  (no input of others)
    return done.stdout.strip()


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


if __name__ == "__main__":
    main()

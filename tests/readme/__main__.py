"""``make readme``: do what README.md, docs/go-live.md and docs/tutorial.md say, in a fresh clone with a clean environment.

`make run` runs in a terminal for 45 s and once more with the same data; both end by Ctrl-C, with exit code 0 and an audit
that passed. Meanwhile the recipe with three terminals and every other command are tried. `make test` is left to the last
step of `.ci/run`, which runs it once. A command that a page shows and
`plan.py` does not know is a failure.
"""

import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click
import httpx

from tests.readme.document import Command, commands, script
from tests.readme.newcomer import Newcomer, newcomer, obstacles
from tests.readme.plan import KNOWN, PAGES, TUTORIAL, Known, Where, faults, typed
from tests.readme.pythons import ROOT, supported
from tests.terminals import Terminal
from tests.waiting import until

FIRST_RUN_S: Final = 45.0
SECOND_RUN_S: Final = 15.0
_INSTALL_S: Final = 400.0
_START_S: Final = 60.0
_STOP_S: Final = 30.0
_CALLS_S: Final = 30.0
_TUTORIAL_S: Final = 150.0
_RUNNING: Final = "Ctrl-C stops everything"
_DEMO: Final = "data/demo.env"
_PLATFORM: Final = "deploy/sandbox.env"


class Visit:
    """One newcomer who does everything that README.md says, and what went wrong."""

    def __init__(self, guest: Newcomer, shown: list[Command]) -> None:
        self._guest = guest
        self._shown = shown
        self._begun_s = time.monotonic()
        self.failures: list[str] = []

    def do_everything(self) -> None:
        """Run the demo twice; during the first run try everything else."""
        with self._trying("make run"):
            first = self._first_run()
            second = self._second_run()
            if second <= first:
                raise AssertionError(f"the second run knows {second} calls, the first knew {first}")

    def _first_run(self) -> int:
        with self._guest.terminal("make run") as demo, ThreadPoolExecutor() as pool:
            demo.wait_for(_RUNNING, _INSTALL_S)
            until_s = time.monotonic() + FIRST_RUN_S
            others = [pool.submit(self._recipe), pool.submit(self._tutorial)]
            self._beside(demo)
            for other in others:
                other.result()
            time.sleep(max(0.0, until_s - time.monotonic()))
            return self._closing(demo, presses=1)

    def _second_run(self) -> int:
        with self._guest.terminal("make run") as demo:
            demo.wait_for(_RUNNING, _START_S)
            time.sleep(SECOND_RUN_S)
            return self._closing(demo, presses=2)

    def _closing(self, demo: Terminal, *, presses: int) -> int:
        """Press Ctrl-C, check the exit code and the closing lines; return the number of calls that they name."""
        for _ in range(presses):
            demo.press_ctrl_c()
            time.sleep(0.2)
        code, text = demo.exit_code(_STOP_S), demo.text
        counted = re.search(r"The sandbox made (\d+) calls: (.*)\.\n", text)
        if code != 0 or counted is None or "Audit passed: " not in text:
            raise AssertionError(f"after Ctrl-C: exit code {code}, and it showed:\n{text[-2000:]}")
        total, parts = int(counted.group(1)), re.findall(r"(?:^|, )(\d+) ", counted.group(2))
        if total != sum(map(int, parts)):
            raise AssertionError(f"the calls do not add up: {counted.group()}")
        return total

    def _beside(self, demo: Terminal) -> None:
        """Try what is typed while the demo runs: what it printed, and every command that README.md shows."""
        printed = dict(re.findall(r"^(desk API|commands) +(.*)$", demo.text, re.MULTILINE))
        with self._trying("the printed curl line"):
            self._output(printed["desk API"], shows='"calls"')
        with self._trying("the printed command"):
            self._output(printed["commands"], shows="voice id")
        with self._trying("a second `make run`"):
            self._output("make run", code=2, shows="Is another `make run` running?")
        voice_id = self._calls(_DEMO)[0]
        for text in typed(self._shown, Where.CLONE, Where.BESIDE, Where.BOTH):
            settings = "" if KNOWN[text].where is Where.CLONE else f". {_DEMO} && "
            with self._trying(text):
                self._guest.output(settings + text.replace("VOICE_ID", voice_id), KNOWN[text])

    def _tutorial(self) -> None:
        """Type the whole tutorial into one shell beside the demo: the first call is green, the second one is enrolled."""
        text = script((self._guest.clone / TUTORIAL).read_text(encoding="utf-8"))
        with self._trying("the tutorial"):
            output = self._guest.output(text, Known(Where.CLONE, shows='"state":"done"'), _TUTORIAL_S)
            if "authenticated, " not in output:
                raise AssertionError(f"the first call is not authenticated:\n{output}")

    def _recipe(self) -> None:
        """Open the three terminals, see calls, start the sandbox again and see its new calls, press Ctrl-C in each."""
        lines, setup = typed(self._shown, Where.THREE), " && ".join(typed(self._shown, Where.EACH))
        with self._trying("the three terminals"), ExitStack() as stack:

            def open_one(line: str) -> Terminal:
                terminal = stack.enter_context(self._guest.terminal(f"{setup} && exec {line}"))
                terminal.wait_for(KNOWN[line].shows, _START_S)
                return terminal

            terminals = [open_one(line) for line in lines]
            seen = self._calls(_PLATFORM)
            self._check_board(seen)
            for text in typed(self._shown, Where.BOTH):
                with self._trying(text):
                    self._guest.output(f". {_PLATFORM} && {text}", KNOWN[text])
            _leave(terminals[1], lines[1])
            terminals[1] = open_one(lines[1])
            self._calls(_PLATFORM, besides=seen)
            for terminal, line in reversed(list(zip(terminals, lines, strict=True))):
                _leave(terminal, line)

    def _calls(self, settings: str, besides: list[str] | None = None) -> list[str]:
        """Wait until live calls are listed, other than some; return their ids."""
        what = f"`callkeeper calls list` to show {'new ' if besides else ''}calls"
        return until(
            lambda: sorted({*self._guest.live_calls(settings)} - {*(besides or ())}), _CALLS_S, what, every_s=1
        )

    def _check_board(self, seen: list[str]) -> None:
        settings = dict(re.findall(r"^(\w+)=(.*)$", (self._guest.clone / _PLATFORM).read_text(), re.MULTILINE))
        user, password = settings["CALLKEEPER_ADMIN"].split(":")
        board = httpx.get("http://127.0.0.1:8000/", auth=(user, password), follow_redirects=True, trust_env=False)
        if not any(voice_id in board.text for voice_id in seen):
            raise AssertionError(f"the board shows none of the live calls; status {board.status_code}")

    def _output(self, command: str, code: int = 0, shows: str = "") -> None:
        self._guest.output(command, KNOWN["make help"]._replace(code=code, shows=shows))

    @contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        """Report what is tried, and note if it fails."""
        begun_s = time.monotonic()
        try:
            yield
        except (AssertionError, KeyError, httpx.HTTPError) as failure:
            self.failures.append(f"{what}: {type(failure).__name__}: {failure}")
        now_s = time.monotonic()
        click.echo(f"{now_s - self._begun_s:6.1f} s  {now_s - begun_s:5.1f} s  {what}")


def _leave(terminal: Terminal, line: str) -> None:
    terminal.press_ctrl_c()
    code = terminal.exit_code(_STOP_S)
    if code != KNOWN[line].code:
        raise AssertionError(
            f"after Ctrl-C `{line}` exits with {code}, not {KNOWN[line].code}:\n{terminal.text[-2000:]}"
        )


def visit(repository: Path, python: Path) -> list[str]:
    """Do everything with one Python; return what went wrong."""
    click.echo(f"The documents of {repository}, with {python}")
    with newcomer(repository, python) as guest:
        shown = [each for page in PAGES for each in commands((guest.clone / page).read_text(encoding="utf-8"))]
        one = Visit(guest, shown)
        one.do_everything()
        return faults(shown) + one.failures


@click.command()
@click.option("--every-python", is_flag=True, help="With every supported Python of this machine. Default: this one.")
@click.option(
    "--repository",
    default=ROOT,
    type=click.Path(exists=True, path_type=Path, resolve_path=True),
    help="The repository whose HEAD is cloned. Default: the one that this file is in.",
)
def main(repository: Path, *, every_python: bool) -> None:
    """Do what README.md says, in a fresh clone."""
    if in_the_way := obstacles():
        raise click.ClickException("; ".join(in_the_way))
    pythons = supported() if every_python else [Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"]
    failures = [f"{python.name}: {failure}" for python in pythons for failure in visit(repository, python)]
    for failure in failures:
        click.echo(f"FAILED {failure}", err=True)
    if failures:
        sys.exit(1)
    click.echo(
        f"README.md, the tutorial and the way to go live hold, with {', '.join(python.name for python in pythons)}."
    )


if __name__ == "__main__":
    main()

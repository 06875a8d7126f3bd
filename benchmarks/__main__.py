"""Run benchmarks: ``python -m benchmarks [QUESTION ...]``. Print tables; fail if a promise does not hold."""

import os
import platform
import sys
from pathlib import Path
from types import ModuleType

import click

from benchmarks import checks, lateness, push, recovery
from benchmarks.figures import Effort

QUESTIONS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module for module in (push, checks, lateness, recovery)
}


@click.command()
@click.argument("names", nargs=-1, metavar="[QUESTION]...", type=click.Choice(list(QUESTIONS)))
@click.option("--list", "only_list", is_flag=True, help="List the questions.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="How often speed is measured.")
@click.option("--smoke", is_flag=True, help="Run once with tiny numbers and without peers, to see that it works.")
def main(*, names: tuple[str, ...], only_list: bool, rounds: int, smoke: bool) -> None:
    """Run the named benchmarks, or all of them, and print the results."""
    if only_list:
        for name, module in QUESTIONS.items():
            click.echo(f"{name}: {(module.__doc__ or '').splitlines()[0]}")
        return
    load = " ".join(f"{load:.1f}" for load in os.getloadavg())
    click.echo(f"{_cpu()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}\n")
    is_broken = False
    for name in names or QUESTIONS:
        stolen = _Stolen()
        found = QUESTIONS[name].answer(Effort(1 if smoke else rounds, smoke))
        click.echo(f"## {name}\n\n{found.table}")
        for goal in () if smoke else found.goals:
            click.echo(goal)
        click.echo(f"\nMeanwhile the host gave {stolen.percent():.1f} % of the cores' time to its other guests.\n")
        for promise in found.broken:
            is_broken = True
            click.echo(f"does not hold: {name}: {promise}", err=True)
    sys.exit(is_broken)


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


class _Stolen:
    """The CPU time that the host gave to its other guests since this was created (``/proc/stat``: Linux only)."""

    def __init__(self) -> None:
        self._begin = self._read()

    def percent(self) -> float:
        """Return its share of all cores' time, in percent. It lengthens the latest answers more than the median."""
        times = [now - before for now, before in zip(self._read(), self._begin, strict=True)]
        return 100 * times[-1] / max(1, sum(times))

    @staticmethod
    def _read() -> list[int]:
        """Return ticks in user, nice, system, idle, iowait, irq, softirq and steal."""
        return list(map(int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]))


if __name__ == "__main__":
    main()

"""Run benchmarks: ``python -m benchmarks [QUESTION ...]``. Print tables; fail if a promise does not hold."""

import sys
from pathlib import Path
from types import ModuleType

import click
import msgspec

from benchmarks import (
    archive,
    assigning,
    backlog,
    capacity,
    checks,
    decisions,
    limits,
    push,
    recovery,
    replay,
    replicas,
    requests,
    scale,
    schedule,
    startup,
)
from benchmarks.answer import Answer
from benchmarks.effort import SMOKE, Effort
from benchmarks.goals import GOALS
from benchmarks.machine import Stolen, machine

SPEED = (checks, push, assigning, replicas, limits, scale, capacity, startup, archive, backlog)
"""Questions whose answers depend on this machine."""

QUESTIONS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module for module in (decisions, recovery, replay, requests, schedule, *SPEED)
}


@click.command()
@click.argument("names", nargs=-1, metavar="[QUESTION]...")
@click.option("--list", "only_list", is_flag=True, help="List the questions.")
@click.option(
    "--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures into this file."
)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="How often speed is measured.")
@click.option("--smoke", is_flag=True, help="Run each speed benchmark once with tiny numbers, to see that it works.")
def main(*, names: tuple[str, ...], only_list: bool, output: Path | None, rounds: int, smoke: bool) -> None:
    """Run the named benchmarks, or all of them, and print the results."""
    unknown = set(names) - set(QUESTIONS)
    if unknown:
        raise click.UsageError(f"no question {', '.join(sorted(unknown))}: there are {', '.join(QUESTIONS)}")
    if only_list:
        for name, module in QUESTIONS.items():
            click.echo(f"{name}: {(module.__doc__ or '').splitlines()[0]}")
        return
    effort = SMOKE if smoke else Effort(rounds)
    before = machine()
    click.echo(", ".join(f"{what} {value}" for what, value in before.items()) + "\n")
    answers: dict[str, Answer] = {}
    stolen_percent: dict[str, float] = {}
    for name in names or [name for name, module in QUESTIONS.items() if module in SPEED or not smoke]:
        stolen = Stolen()
        found = answers[name] = QUESTIONS[name].answer(effort)
        stolen_percent[name] = round(stolen.percent(), 1)
        click.echo(f"## {name}: {found.question}\n")
        for table in found.tables if not smoke else (table for table in found.tables if table.title != GOALS):
            click.echo(table.as_markdown() + "\n")
        click.echo(f"Meanwhile the host gave {stolen_percent[name]} % of the cores' time to its other guests.\n")
    if output is not None:
        document = {"machine": before, **_document(answers, stolen_percent)}
        output.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    broken = [f"{name}: {promise}" for name, found in answers.items() for promise in found.broken]
    for promise in broken:
        click.echo(f"does not hold: {promise}", err=True)
    sys.exit(1 if broken else 0)


def _document(answers: dict[str, Answer], stolen_percent: dict[str, float]) -> dict[str, object]:
    return {
        name: {
            "question": found.question,
            "tables": [table.as_document() for table in found.tables],
            "broken": found.broken,
            "stolen_percent": stolen_percent[name],
        }
        for name, found in answers.items()
    }


if __name__ == "__main__":
    main()

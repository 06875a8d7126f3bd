"""Run benchmarks: ``python -m benchmarks [QUESTION ...]``. Each prints tables, and fails when a promise does not hold."""

import sys
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from benchmarks import recovery, replay, schedule
from benchmarks.answer import Answer

QUESTIONS: dict[str, Callable[[], Answer]] = {
    "recovery": recovery.answer,
    "replay": replay.answer,
    "schedule": schedule.answer,
}


@click.command()
@click.argument("names", nargs=-1, metavar="[QUESTION]...")
@click.option("--list", "only_list", is_flag=True, help="List the questions.")
@click.option(
    "--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures into this file."
)
def main(*, names: tuple[str, ...], only_list: bool, output: Path | None) -> None:
    """Measure and print what callkeeper promises; all questions unless some are named."""
    unknown = set(names) - set(QUESTIONS)
    if unknown:
        raise click.UsageError(f"no question {', '.join(sorted(unknown))}: there are {', '.join(QUESTIONS)}")
    if only_list:
        for name, ask in QUESTIONS.items():
            click.echo(f"{name}: {(sys.modules[ask.__module__].__doc__ or '').splitlines()[0]}")
        return
    answers = {name: QUESTIONS[name]() for name in names or QUESTIONS}
    for name, found in answers.items():
        click.echo(f"## {name}: {found.question}\n")
        for table in found.tables:
            click.echo(table.as_markdown() + "\n")
    if output is not None:
        output.write_bytes(msgspec.json.format(msgspec.json.encode(_document(answers))) + b"\n")
    broken = [f"{name}: {promise}" for name, found in answers.items() for promise in found.broken]
    for promise in broken:
        click.echo(f"does not hold: {promise}", err=True)
    sys.exit(1 if broken else 0)


def _document(answers: dict[str, Answer]) -> dict[str, object]:
    return {
        name: {
            "question": found.question,
            "tables": [table.as_document() for table in found.tables],
            "broken": found.broken,
        }
        for name, found in answers.items()
    }


if __name__ == "__main__":
    main()

"""``callkeeper schedule``: the check times in force, drawn, and those that fit an institution's own calls."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from callkeeper.asking import ask_redis
from callkeeper.check_times import rules_in_force
from callkeeper.schedule_view import checks_table, fit_document, fit_lines
from callkeeper.terminal import Failed, say, say_json
from calls.policies import Policies
from calls.queries import Queries
from calls.recording import Recorded, RecordingWrong, parse_recordings
from calls.rules import RuleBook, RulesError, load_rules
from calls.schedule.drawing import draw_svg, draw_text
from calls.schedule.fit import Fit, TooFewCalls, fit
from calls.schedule.model import prior
from calls.schedule.observed import Observation, observe

_rules = click.option("--rules", "rules_file", help="Another rules file than the one in force.")
_institution = click.option("--institution", metavar="KEY", help="Only the calls of this institution.")
_calls = click.option(
    "--calls", "recorded", type=click.File("rb"), help="Calls as written by callkeeper calls export, instead of Redis."
)
_FILE = click.Path(dir_okay=False, path_type=Path, resolve_path=True)
_svg = click.option("--svg", type=_FILE, help="Draw it into this file as well.")


@click.group()
def schedule() -> None:
    """Show when checks are made, and fit the times to your own calls."""


@schedule.command()
@click.option("--own", is_flag=True, help="Over the calls in Redis, instead of the shipped assumption.")
@_calls
@_institution
@_rules
@_svg
def show(
    *, own: bool, recorded: BinaryIO | None, institution: str | None, rules_file: str | None, svg: Path | None
) -> None:
    """Draw the check times in force over when results come and how long calls live."""
    book = _book(rules_file)
    if own or recorded is not None:
        model, over = _fit(book, recorded, institution).model, "your own calls"
    else:
        model, over = prior(), "the shipped assumption"
    title = f"Checks of {book.name}, over {over}"
    say(title, *draw_text(model, book.schedule.at_s).split("\n"))
    if svg is not None:
        svg.write_text(draw_svg(model, book.schedule.at_s, title), encoding="utf-8")


@schedule.command("fit")
@_calls
@_institution
@_rules
@_svg
@click.option("--output", type=_FILE, help="Write the [checks] table into this file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def fit_command(
    *,
    recorded: BinaryIO | None,
    institution: str | None,
    rules_file: str | None,
    svg: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find the best check times for your own settled calls, and say how much they gain.

    Prints a [checks] table for the rules file. Refuses when there are too few calls to tell.
    """
    book = _book(rules_file)
    found = _fit(book, recorded, institution)
    table = checks_table(found, book.checks_unassigned)
    if as_json:
        say_json(msgspec.json.encode(fit_document(found)))
    else:
        say(*fit_lines(found, book.name), "", *table.splitlines())
    if output is not None:
        output.write_text(table, encoding="utf-8")
    if svg is not None:
        svg.write_text(
            draw_svg(found.model, found.schedule.at_s, "Fitted checks, over your own calls"), encoding="utf-8"
        )


def _book(rules_file: str | None) -> RuleBook:
    try:
        return load_rules(rules_file) if rules_file else rules_in_force(os.environ)
    except RulesError as error:
        raise Failed(*error.lines) from None


def _fit(book: RuleBook, recorded: BinaryIO | None, institution: str | None) -> Fit:
    try:
        if recorded is not None:
            seen = _observed(parse_recordings(recorded), book.policies, institution)
        else:
            seen = ask_redis(lambda redis, keys: _observed_in(Queries(redis, keys=keys), book.policies, institution))
        return fit(seen, book.schedule)
    except (TooFewCalls, RecordingWrong) as error:
        raise click.ClickException(str(error)) from None


async def _observed_in(queries: Queries, policies: Policies, institution: str | None) -> list[Observation]:
    """Read call after call: a hundred thousand trails need not fit into memory."""
    seen: list[Observation] = []
    async for call in queries.recordings():
        seen += _observed([call], policies, institution)
    return seen


def _observed(calls: Iterable[Recorded], policies: Policies, institution: str | None) -> list[Observation]:
    mine = (call for call in calls if institution in {None, call.institution_key})
    return [seen for call in mine if (seen := observe(call, policies)) is not None]

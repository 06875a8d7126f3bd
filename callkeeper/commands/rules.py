"""``callkeeper rules``: check a rules file, test it on cases, replay it over recorded calls, read what it came to."""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NoReturn

import click
import msgspec

from callkeeper.asking import Span, ask_redis
from callkeeper.rules_document import rules_document
from callkeeper.rules_view import replay_lines, report_document, report_tables, result_lines
from callkeeper.terminal import say, say_json, terminal_console
from calls.cases import load_cases, try_cases
from calls.queries import Queries
from calls.recording import Recorded, RecordingWrong, parse_recordings
from calls.replay import replay as replay_calls
from calls.report import Report
from calls.report import report as count_calls
from calls.rules import RuleBook, RulesError, load_rules

BAD_FILE = 2
"""Exit code: a file has faults. 1 is for cases that fail."""


@click.group()
def rules() -> None:
    """Check, rehearse and explain the rules."""


@rules.command()
@click.argument("file")
@click.option("--institutions", help="The keys that rules may name, separated by commas. Default: any.")
def check(file: str, institutions: str | None) -> None:
    """Check a rules file (or a shipped one by name) and report every fault with its line.

    Exits with 2 if there is any.
    """
    owned = None if institutions is None else frozenset(key.strip() for key in institutions.split(",") if key.strip())
    book = _load(file, owned)
    live = sum(rule.stage == "live" for rule in book.rules)
    shadow = len(book.rules) - live
    say(
        f"{file}: no faults. {live} live rules, {shadow} in shadow, {len(book.schedule.at_s)} checks, digest {book.digest}"
    )


@rules.command()
def docs() -> None:
    """Print the description of the rules file: facts, law, format, faults, examples (docs/rules.md)."""
    say(*rules_document().split("\n")[:-1])


@rules.command("test")
@click.argument("cases", type=click.Path(path_type=Path))
@click.option("--rules", "file", help="Other rules than the ones that the file names.")
def run_cases(cases: Path, file: str | None) -> None:
    """Try an institution's own examples on its rules.

    Exits with 1 if one fails, with 2 if a file has faults.
    """
    try:
        loaded = load_cases(cases)
    except RulesError as error:
        _refuse(error)
    results = try_cases(loaded, _load(file or loaded.rules))
    say(*result_lines(results, str(cases)))
    if any(result.failures for result in results):
        sys.exit(1)


@rules.command()
@click.argument("file")
@click.option(
    "--calls", "recorded", type=click.File("rb"), required=True, help="As written by callkeeper calls export."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: every call that comes out otherwise.")
def replay(file: str, recorded: BinaryIO, *, as_json: bool) -> None:
    """Run other rules over recorded calls: which come out otherwise, and why."""
    book = _load(file)
    try:
        found = replay_calls(parse_recordings(recorded), book)
    except RecordingWrong as error:
        raise click.ClickException(f"{recorded.name}: {error}") from None
    if as_json:
        for difference in found.differences:
            say_json(msgspec.json.encode(difference))
        return
    say(*replay_lines(found))


@rules.command("report")
@click.option(
    "--since", type=Span(), default="7d", show_default=True, help="Calls settled since then, and the live ones."
)
@click.option("--calls", "recorded", type=click.File("rb"), help="Exported calls instead of those in Redis.")
@click.option("--rules", "file", envvar="CALLKEEPER_RULES", default="default", help="Whose colours of policies count.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show_report(since: timedelta, recorded: BinaryIO | None, file: str, *, as_json: bool) -> None:
    """Show what each rule came to, per institution: matches, shadow matches, what was sent, how it ended.

    Then every call in which a rule in shadow would have done otherwise than the live rules did.
    """
    book = _load(file)
    if recorded is not None:
        try:
            found = count_calls(parse_recordings(recorded), book.policies)
        except RecordingWrong as error:
            raise click.ClickException(f"{recorded.name}: {error}") from None
    else:
        found = ask_redis(lambda redis, keys: _count(Queries(redis, keys=keys), since, book))
    if as_json:
        say_json(msgspec.json.encode(report_document(found)))
        return
    console = terminal_console(width_if_piped=120)
    for part in report_tables(found):
        console.print(part)


async def _count(queries: Queries, since: timedelta, book: RuleBook) -> Report:
    calls: Iterable[Recorded] = [call async for call in queries.recordings(datetime.now(UTC) - since)]
    return count_calls(calls, book.policies)


def _load(file: str, owned: frozenset[str] | None = None) -> RuleBook:
    try:
        return load_rules(file, owned=owned)
    except RulesError as error:
        _refuse(error)


def _refuse(error: RulesError) -> NoReturn:
    """Print every fault of a file and end."""
    say(*error.lines, err=True)
    count = len(error.faults)
    say(f"{error.name}: {count} fault{'' if count == 1 else 's'}", err=True)
    sys.exit(BAD_FILE)

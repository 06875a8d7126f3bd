"""``callkeeper rules``: check a rules file, test it on cases, replay it over recorded calls, report its results."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import click

from callkeeper.app.archive_reader import archive_failed, archive_of_environment, recorded_calls
from callkeeper.app.redis_query import Span, query_redis
from callkeeper.app.terminal import CommandGroup, Failed, Misused, Moment, say, say_json, say_table, terminal_console
from callkeeper.archive.errors import ArchiveAway, LineUnreadable
from callkeeper.calls.institutions import shown
from callkeeper.calls.quantity import quantity
from callkeeper.calls.rules import RuleBook, RulesError, load_rules
from callkeeper.calls.rules.cases import Result, load_cases, try_cases
from callkeeper.calls.rules.diff import changes
from callkeeper.calls.rules.replay import Did, Difference, Replay, compare_books
from callkeeper.calls.rules.replay import replay as replay_calls
from callkeeper.calls.rules.report import Report
from callkeeper.calls.rules.report import report as count_calls
from callkeeper.calls.store.queries import Queries
from callkeeper.calls.store.rules_in_force import in_force_between, read_rules_history
from callkeeper.calls.trail import Recorded
from callkeeper.desk.archived_calls import kept_or_archived_rules

BAD_FILE = 2
"""Exit code: a file has faults. 1 is for cases that fail."""

_PIPED_WIDTH = 120


@click.group(cls=CommandGroup)
def rules() -> None:
    """Check, test and replay the rules."""


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
        f"{file}: no faults. Rules: {live} live, {shadow} in shadow. {len(book.schedule.at_s)} checks, digest {book.digest}",
        *(f"{file}: warning: {line}" for line in (*book.warnings, *book.oversights)),
    )


@rules.command()
@click.argument("digest", required=False)
@click.option("--at", type=Moment(), help="Which decided on this day, or minute (UTC).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def history(digest: str | None, at: datetime | None, *, as_json: bool) -> None:
    """Show which rules workers have started with, newest first, and until when each were in force.

    With DIGEST, which the trail of a call names, print the text of these rules: from Redis, or else from the archive.
    Exits with 1 if none are known.
    """
    if digest is not None:
        _show_text(digest)
        return
    known = query_redis(read_rules_history)
    found = known
    if at is not None:
        begin = at.replace(tzinfo=UTC)
        found = in_force_between(
            known, begin, begin + (timedelta(minutes=1) if at.time() != time() else timedelta(days=1))
        )
    if not found:
        raise Failed("no rules are known for that time; Redis keeps them from the first worker of this release on")
    ends = dict(zip(known, [None, *(each.since for each in known)], strict=False))
    for each in found:
        end = ends[each]
        if as_json:
            say_json({"digest": each.digest, "name": each.name, "since": each.since, "until": end})
            continue
        until = f"until {end:%Y-%m-%d %H:%M:%S}" if end else "still in force"
        say(f"{each.digest}  since {each.since:%Y-%m-%d %H:%M:%S} UTC, {until}  {each.name}")


def _show_text(digest: str) -> None:
    """Print the text of rules by their digest.

    Raises:
        Failed: Neither Redis nor the archive has it.
    """
    try:
        with archive_of_environment() as archive:
            text = query_redis(lambda redis, keys: kept_or_archived_rules(redis, keys, archive, digest))
    except LineUnreadable as error:
        raise Failed(f"{error}; `callkeeper archive verify` says what was changed") from None
    except ArchiveAway as away:
        raise archive_failed(away) from None
    if text is None:
        where = "Redis" if archive is None else "Redis nor in the archive"
        raise Failed(f"there is no text of rules {shown(digest)} in {where}; `callkeeper rules history` lists digests")
    say(*text.decode(errors="replace").removesuffix("\n").split("\n"))


@rules.command("test")
@click.argument("cases", type=click.Path(path_type=Path))
@click.option("--rules", "file", help="Use these rules instead of those that the file names.")
def run_cases(cases: Path, file: str | None) -> None:
    """Test the rules with an institution's own examples.

    Exits with 1 if one fails, with 2 if a file has faults.
    """
    try:
        loaded = load_cases(cases)
    except RulesError as error:
        _refuse(error)
    book = _load(file or loaded.rules)
    try:
        results = try_cases(loaded, book)
    except RulesError as error:
        _refuse(error)
    say(*result_lines(results, str(cases)))
    if any(result.failures for result in results):
        sys.exit(1)


@rules.command()
@click.argument("file")
@click.option("--against", metavar="OLD", help="Compare with these rules, and show what FILE changes of them.")
@click.option("--calls", "recorded", type=click.File("rb"), help="As written by callkeeper calls export.")
@click.option("--archive", "from_archive", is_flag=True, help="Use the archived calls instead.")
@click.option("--since", type=Span(), default=None, help="With --archive: calls that began no longer ago: 24h, 400d.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: every call that ends differently.")
def replay(
    file: str,
    against: str | None,
    recorded: BinaryIO | None,
    since: timedelta | None,
    *,
    from_archive: bool,
    as_json: bool,
) -> None:
    """Apply other rules to recorded calls: show which end differently, and why.

    Differently than they did, or, with --against, than with the rules of OLD.
    """
    book, old = _load(file), None if against is None else _load(against)
    if from_archive is (recorded is not None) and (from_archive or old is None):
        raise Misused("give --calls FILE, or --archive")
    if old is not None and not as_json:
        say(f"{against} (digest {old.digest}) -> {file} (digest {book.digest})")
        say(*(changes(old, book) or ["nothing changes"]))
    if recorded is None and not from_archive:
        return
    first: list[Difference] = []
    report = say_json if as_json else partial(_keep, first)
    with recorded_calls(recorded, since) as calls:
        found = replay_calls(calls, book, report) if old is None else compare_books(calls, old, book, report)
    if not as_json:
        say(*replay_lines(found, first) if old is None else ("", *replay_lines(found, first, "old", "new")))


@rules.command("report")
@click.option(
    "--since", type=Span(), default="7d", show_default=True, help="Calls settled since then, and the live ones."
)
@click.option("--calls", "recorded", type=click.File("rb"), help="All calls of an export instead of those in Redis.")
@click.option("--archive", "from_archive", is_flag=True, help="The archived calls that began since then instead.")
@click.option(
    "--rules", "file", envvar="CALLKEEPER_RULES", default="default", help="The rules file that classifies policies."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show_report(since: timedelta, recorded: BinaryIO | None, file: str, *, from_archive: bool, as_json: bool) -> None:
    """Show each rule's results per institution: matches, matches in shadow, effects sent, outcomes.

    Then list every call in which a rule in shadow disagrees with the live rules.
    """
    book = _load(file)
    if from_archive and recorded is not None:
        raise Misused("give --calls FILE, or --archive")
    if from_archive or recorded is not None:
        with recorded_calls(recorded, since) as calls:
            found = count_calls(calls, book.policies)
    else:
        found = query_redis(lambda redis, keys: _report_of(Queries(redis, keys=keys), since, book))
    if as_json:
        say_json(report_document(found) | {"warnings": book.warnings})
        return
    console = terminal_console(width_if_piped=_PIPED_WIDTH)
    for line in book.warnings:
        console.print(f"warning: {line}", style="yellow", markup=False, highlight=False)
    say_report(found)


async def _report_of(queries: Queries, since: timedelta, book: RuleBook) -> Report:
    calls: Iterable[Recorded] = [call async for call in queries.recordings(datetime.now(UTC) - since)]
    return count_calls(calls, book.policies)


def _load(file: str, owned: frozenset[str] | None = None) -> RuleBook:
    try:
        return load_rules(file, owned=owned)
    except RulesError as error:
        _refuse(error)


def _refuse(error: RulesError) -> NoReturn:
    """Print every fault of a file and exit."""
    say(*error.lines, err=True)
    say(f"{error.name}: {quantity(len(error.faults), 'fault')}", err=True)
    sys.exit(BAD_FILE)


SHOWN = 200
"""Lines of one kind that are shown. The JSON has all."""


def result_lines(results: Sequence[Result], name: str) -> Iterator[str]:
    """Yield the failed cases, each with its failures and the result of every rule."""
    failed = [result for result in results if result.failures]
    for result in failed:
        yield f"{name}:{result.case.line}: case {result.case.name!r} fails"
        yield from (f"    {failure}" for failure in result.failures)
        yield from (f"      {line}" for line in result.explained)
    yield f"{quantity(len(results), 'case')}, {len(results) - len(failed)} pass, {len(failed)} fail"


def _keep(first: list[Difference], difference: Difference) -> None:
    """Keep a difference if it is one of the first, which are shown."""
    if len(first) < SHOWN:
        first.append(difference)


def replay_lines(found: Replay, first: Sequence[Difference], then: str = "then", now: str = "now") -> Iterator[str]:
    """Yield lines that say how many calls end differently, and how; then which, and why."""
    sums = ", ".join(f"{count} {before} to {after}" for (before, after), count in found.sums.most_common())
    undecidable = f", {found.undecidable} were never decided" if found.undecidable else ""
    yield f"{quantity(found.calls, 'call')}: {found.different} end differently, {found.same} the same{undecidable}"
    if sums:
        yield sums
        yield ""
    for difference in first:
        yield f"{difference.institution_key}  {difference.voice_id}"
        yield f"    {then:<4}  {_did(difference.then)}"
        yield f"    {now:<4}  {_did(difference.now)}"
        yield f"    why   {difference.why}"
    left = found.different - len(first)
    if left > 0:
        yield f"... and {left} more: --json lists all"


def _did(effects: Sequence[Did]) -> str:
    return ", then ".join(did.words for did in effects) or "hold"


def say_report(found: Report) -> None:
    """Print a report."""
    say(f"{quantity(found.calls, 'call')}, rules {', '.join(sorted(found.digests)) or 'none'}")
    columns = ("institution", "rule", "calls", "held by law", "in shadow", "would have", "disagree", "sent", "ended")
    rows = (
        (
            institution,
            rule,
            tally.matched,
            tally.held_by_law,
            tally.shadowed,
            _counts(tally.would),
            tally.disagreements,
            _counts(tally.sent),
            _counts(tally.ended),
        )
        for (institution, rule), tally in sorted(found.rules.items())
    )
    say_table(columns, rows)
    if found.disagreements:
        say("", f"{quantity(len(found.disagreements), 'call')} in which shadow and live disagree:")
        _say_disagreements(found)
    for name, count in found.colourless.most_common():
        say(f"policy {name!r} has no colour: {quantity(count, 'call')}")


def _say_disagreements(found: Report) -> None:
    columns = ("institution", "voice id", "rule in shadow", "what it would have done", "what was done")
    first = found.disagreements[:SHOWN]
    rows = ((one.institution_key, one.voice_id, one.rule, one.would, one.live) for one in first)
    say_table(columns, rows)
    left = len(found.disagreements) - SHOWN
    if left > 0:
        say(f"... and {left} more: --json lists all")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def report_document(found: Report) -> dict[str, Any]:
    """Return a report for JSON."""
    return {
        "calls": found.calls,
        "digests": sorted(found.digests),
        "rules": [
            {"institution_key": institution, "rule": rule, "tally": tally}
            for (institution, rule), tally in sorted(found.rules.items())
        ],
        "disagreements": found.disagreements,
        "colourless": dict(found.colourless),
    }

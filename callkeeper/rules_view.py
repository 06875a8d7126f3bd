"""What rules came to, in words for a terminal of 120 columns: results of cases, replays, reports."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from calls.cases import Result
from calls.replay import Did, Replay
from calls.report import Report

SHOWN = 200
"""Lines of one kind that are shown; the rest is in the JSON."""


def result_lines(results: Sequence[Result], name: str) -> Iterator[str]:
    """Say which cases failed, on what, and how the rules fared there."""
    failed = [result for result in results if result.failures]
    for result in failed:
        yield f"{name}:{result.case.line}: case {result.case.name!r} fails"
        yield from (f"    {failure}" for failure in result.failures)
        yield from (f"      {line}" for line in result.explained)
    yield f"{len(results)} cases, {len(results) - len(failed)} pass, {len(failed)} fail"


def replay_lines(found: Replay) -> Iterator[str]:
    """Say which calls come out otherwise, and why."""
    for difference in found.differences[:SHOWN]:
        yield f"{difference.institution_key}  {difference.voice_id}"
        yield f"    then  {_did(difference.then)}"
        yield f"    now   {_did(difference.now)}"
        yield f"    why   {difference.why}"
    left = len(found.differences) - SHOWN
    if left > 0:
        yield f"... and {left} more: --json lists all"
    undecidable = f", {found.undecidable} were never decided" if found.undecidable else ""
    yield f"{found.calls} calls: {len(found.differences)} come out otherwise, {found.same} the same{undecidable}"


def _did(effects: Sequence[Did]) -> str:
    return ", then ".join(did.words for did in effects) or "hold"


def report_tables(found: Report) -> Iterator[RenderableType]:
    """Show what rules came to."""
    yield f"{found.calls} calls, rules {', '.join(sorted(found.digests)) or 'none'}"
    table = Table(
        *("institution", "rule", "calls", "held by law", "in shadow", "would have", "disagree", "sent", "ended"),
        box=None,
    )
    for (institution, rule), tally in sorted(found.rules.items()):
        table.add_row(
            institution,
            rule,
            _count(tally.matched),
            _count(tally.held_by_law),
            _count(tally.shadowed),
            _counts(tally.would),
            _count(tally.disagreements),
            _counts(tally.sent),
            _counts(tally.ended),
        )
    yield table
    if found.disagreements:
        yield f"\n{len(found.disagreements)} calls in which shadow and live disagree:"
        yield _disagreements(found)
    for name, count in found.colourless.most_common():
        yield f"policy {name!r} has no colour: {count} calls"


def _disagreements(found: Report) -> Table:
    table = Table("institution", "voice id", "rule in shadow", "what it would have done", "what was done", box=None)
    for one in found.disagreements[:SHOWN]:
        table.add_row(one.institution_key, one.voice_id, one.rule, one.would, one.live)
    left = len(found.disagreements) - SHOWN
    if left > 0:
        table.add_row("...", f"and {left} more: --json lists all", "", "", "")
    return table


def _count(number: int) -> str:
    return str(number) if number else "-"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "-"


def report_document(found: Report) -> dict[str, Any]:
    """Return a report as JSON shows it."""
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

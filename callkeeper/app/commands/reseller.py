"""``callkeeper reseller``: the service as it answers, for the engineer who connects an institution.

Each command logs in separately and does not use the workers' shared token. None acts on a call: an assign, a check, an
enroll or a reject made here would bypass the law, the budget of 20 and the trail.
"""

from datetime import UTC, datetime

import click

from callkeeper.app.commands.service_terminal import (
    INSTITUTION_COLUMNS,
    QUEUE_COLUMNS,
    Terminal,
    institution_row,
    queue_row,
    service_command,
)
from callkeeper.app.terminal import CommandGroup, Moment

institution_argument = click.argument("institution")
voice_id_argument = click.argument("voice_id")


@click.group(cls=CommandGroup)
def reseller() -> None:
    """Use the service's interface by hand; INSTITUTION is an institution's key."""


@reseller.command()
@institution_argument
@click.option("--search", metavar="TEXT", help="Part of a phone number or of a member's name.")
@click.option("--from", "continue_from", type=int, default=0, show_default=True, help="Where the page starts.")
@click.option("--size", type=int, default=50, show_default=True, help="How many calls at most.")
@click.option("--start", type=Moment(), help="Only calls that started since, UTC.")
@click.option("--end", type=Moment(), help="Only calls that started before, UTC.")
@service_command
def queue(
    terminal: Terminal,
    institution: str,
    search: str | None,
    continue_from: int,
    size: int,
    start: datetime | None,
    end: datetime | None,
) -> None:
    """List INSTITUTION's active calls."""
    entries = terminal.run(
        lambda service: service.queue(
            institution,
            continue_from=continue_from,
            page_size=size,
            search_string=search,
            start_at=_utc(start),
            end_at=_utc(end),
            requested_by=terminal.operator(institution),
        )
    )
    terminal.show(entries, QUEUE_COLUMNS, map(queue_row, entries))


@reseller.command()
@institution_argument
@voice_id_argument
@service_command
def details(terminal: Terminal, institution: str, voice_id: str) -> None:
    """Show a call's record. No check is made."""
    operator = terminal.operator(institution)
    terminal.show_record(
        terminal.run(lambda service: service.details(institution, voice_id, check=False, requested_by=operator))
    )


@reseller.command()
@click.argument("institution", required=False)
@service_command
def institutions(terminal: Terminal, institution: str | None) -> None:
    """List the institutions, or show INSTITUTION's full record."""
    if institution is not None:
        terminal.show_record(terminal.run(lambda service: service.institution(institution)))
        return
    summaries = terminal.run(lambda service: service.institutions())
    terminal.show(summaries, INSTITUTION_COLUMNS, map(institution_row, summaries))


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.replace(tzinfo=UTC)

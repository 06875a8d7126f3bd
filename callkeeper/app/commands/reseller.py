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
from callkeeper.app.terminal import CommandGroup, Misused, Moment
from callkeeper.service import CoreType

_CORE = click.Choice([str(each) for each in CoreType])

institution_argument = click.argument("institution")
voice_id_argument = click.argument("voice_id")


@click.group(cls=CommandGroup)
def reseller() -> None:
    """Use the service's interface by hand; INSTITUTION is an institution's key."""


@reseller.command()
@service_command
def token(terminal: Terminal) -> None:
    """Log in; show the institutions the account can manage."""
    terminal.show_record(terminal.run(lambda service: service.token()))


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
    terminal.show(entries, QUEUE_COLUMNS, map(queue_row, entries), whole={*QUEUE_COLUMNS} - {"candidates"})


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


@reseller.group(cls=CommandGroup)
def institutions() -> None:
    """List, show, add and change institutions; log in as one."""


@institutions.command("list")
@service_command
def list_institutions(terminal: Terminal) -> None:
    """List the institutions."""
    summaries = terminal.run(lambda service: service.institutions())
    terminal.show(summaries, INSTITUTION_COLUMNS, map(institution_row, summaries))


@institutions.command("get")
@institution_argument
@service_command
def get_institution(terminal: Terminal, institution: str) -> None:
    """Show INSTITUTION's full record."""
    terminal.show_record(terminal.run(lambda service: service.institution(institution)))


@institutions.command("add")
@click.argument("fields", nargs=-1, required=True, metavar="NAME=VALUE...")
@service_command
def add_institution(terminal: Terminal, fields: tuple[str, ...]) -> None:
    """Add an institution, for example: name="First Credit Union" core=None."""
    pairs = _pairs(fields)
    terminal.change("add institution", lambda service: service.add_institution(pairs))
    terminal.done("added")


@institutions.command("update")
@institution_argument
@click.option("--name", help="Its new name.")
@click.option("--core", type=_CORE, required=True, help="Its core system's type.")
@service_command
def update_institution(terminal: Terminal, institution: str, name: str | None, core: str) -> None:
    """Change INSTITUTION's name and core type."""
    terminal.change(
        "update institution",
        lambda service: service.update_institution(institution, name=name, core=CoreType(core)),
        institution=institution,
    )
    terminal.done(f"updated: {institution}")


@institutions.command("login-as")
@institution_argument
@service_command
def login_as(terminal: Terminal, institution: str) -> None:
    """Log in as INSTITUTION; show the places to which that gives access."""
    terminal.show_record(terminal.run(lambda service: service.login_as(institution)))


def _pairs(fields: tuple[str, ...]) -> dict[str, object]:
    pairs = dict(field.partition("=")[::2] for field in fields)
    if not all("=" in field for field in fields):
        raise Misused("give each field as NAME=VALUE")
    return dict(pairs)


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.replace(tzinfo=UTC)

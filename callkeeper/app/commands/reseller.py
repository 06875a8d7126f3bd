"""``callkeeper reseller``: every endpoint of the service, for the engineer who connects an institution.

Each command logs in separately and does not use the workers' shared token.
"""

from datetime import UTC, datetime

import click

from callkeeper.app.commands.service_terminal import Terminal, institutions_table, queue_table, service_command
from callkeeper.app.terminal import safe
from callkeeper.service import CoreType, PhoneCall, ValidationType
from callkeeper.service.client import Reseller

_CORE = click.Choice([str(each) for each in CoreType])

institution_argument = click.argument("institution")
voice_id_argument = click.argument("voice_id")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def reseller() -> None:
    """Use the service's interface by hand; INSTITUTION is an institution's key."""


@reseller.command()
@service_command
def token(terminal: Terminal) -> None:
    """Log in; show the institutions the account can manage."""
    terminal.show_record(terminal.run(lambda service: service.token()))


@reseller.command("user-token")
@institution_argument
@service_command
def user_token(terminal: Terminal, institution: str) -> None:
    """Exchange the login for a user token of INSTITUTION."""
    operator = terminal.operator(institution)
    value = terminal.run(lambda service: service.user_token(institution, requested_by=operator))
    terminal.show({"token": value}, value.reveal() if terminal.show_secrets else str(value))


@reseller.command()
@institution_argument
@click.option("--search", metavar="TEXT", help="Part of a phone number or of a member's name.")
@click.option("--from", "continue_from", type=int, default=0, show_default=True, help="Where the page starts.")
@click.option("--size", type=int, default=50, show_default=True, help="How many calls at most.")
@click.option("--start", type=click.DateTime(), help="Only calls that started since, UTC.")
@click.option("--end", type=click.DateTime(), help="Only calls that started before, UTC.")
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
    terminal.show(entries, queue_table(entries))


@reseller.command()
@institution_argument
@click.option("--person", required=True, metavar="ID", help="Who the caller is.")
@click.option("--voice-id", metavar="ID", help="Which call.")
@click.option("--phone-number", metavar="NUMBER", help="Which call; the voice id is ignored then.")
@service_command
def assign(terminal: Terminal, institution: str, person: str, voice_id: str | None, phone_number: str | None) -> None:
    """Assign the caller of a call."""
    settled = terminal.change(
        "assign",
        lambda service: service.assign(
            institution,
            person_id=person,
            requested_by=terminal.operator(institution),
            voice_id=voice_id,
            phone_number=phone_number,
        ),
        institution=institution,
    )
    terminal.done(f"assigned; the voice id to use from now on: {settled}", voiceId=settled)


@reseller.command()
@institution_argument
@voice_id_argument
@click.option("--check", is_flag=True, help="Ask the voice provider; costs one of the call's 20 checks.")
@service_command
def details(terminal: Terminal, institution: str, voice_id: str, check: bool) -> None:
    """Show a call's record."""
    operator = terminal.operator(institution)

    async def details(service: Reseller) -> PhoneCall:
        return await service.details(institution, voice_id, check=check, requested_by=operator)

    place = {"institution": institution, "voice_id": voice_id}
    terminal.show_record(terminal.change("check", details, **place) if check else terminal.run(details))


@reseller.command()
@institution_argument
@voice_id_argument
@click.option("--person", required=True, metavar="ID", help="Whose voice it is.")
@click.option(
    "--how",
    type=click.Choice([str(each) for each in ValidationType]),
    required=True,
    help="How identity was established.",
)
@click.option("--notes", help="For the member's record.")
@yes_option
@service_command
def enroll(
    terminal: Terminal, institution: str, voice_id: str, person: str, how: str, notes: str | None, yes: bool
) -> None:
    """Enroll the caller's voice. The service records a repeated enroll twice."""
    _confirm(f"Enroll the voice of call {voice_id} for person {person} of {institution}?", yes=yes)
    terminal.change(
        "enroll",
        lambda service: service.enroll(
            institution,
            voice_id,
            person_id=person,
            validation_type=ValidationType(how),
            notes=notes,
            requested_by=terminal.operator(institution),
        ),
        institution=institution,
        voice_id=voice_id,
    )
    terminal.done(f"enrolled: {voice_id}")


@reseller.command("reject-voice")
@institution_argument
@voice_id_argument
@yes_option
@service_command
def reject_voice(terminal: Terminal, institution: str, voice_id: str, yes: bool) -> None:
    """Reject the caller's voice. Un-enrolls all of the member's earlier manual authentications."""
    _confirm(
        f"Reject the voice of call {voice_id} of {institution}? All earlier manual authentications of its member "
        "are un-enrolled.",
        yes=yes,
    )
    operator = terminal.operator(institution)
    terminal.change(
        "reject voice",
        lambda service: service.reject_voice(institution, voice_id, requested_by=operator),
        institution=institution,
        voice_id=voice_id,
    )
    terminal.done(f"rejected: {voice_id}")


@reseller.group()
def institutions() -> None:
    """List, show, add and change institutions; log in as one."""


@institutions.command("list")
@service_command
def list_institutions(terminal: Terminal) -> None:
    """List the institutions."""
    summaries = terminal.run(lambda service: service.institutions())
    terminal.show(summaries, institutions_table(summaries))


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


def _confirm(question: str, *, yes: bool) -> None:
    if not yes:
        click.confirm(safe(question), abort=True)


def _pairs(fields: tuple[str, ...]) -> dict[str, object]:
    pairs = dict(field.partition("=")[::2] for field in fields)
    if not all("=" in field for field in fields):
        raise click.ClickException("fields are given as NAME=VALUE")
    return dict(pairs)


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.replace(tzinfo=UTC)

"""``callkeeper tokens`` and ``audit``: who has access, and what they did. Each change is in the audit log."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Final, TypeVar

import click
from msgspec.structs import asdict
from redis.asyncio import Redis

from callkeeper.app.archive_reader import archive_of_environment
from callkeeper.app.redis_query import FORCE_HELP, Span, note_command, query_redis, refuse_unknown_institutions
from callkeeper.app.terminal import (
    CommandGroup,
    Failed,
    Misused,
    choice_option,
    refuse_two_formats,
    say,
    say_json,
    say_table,
)
from callkeeper.calls.store.audit_log import Audited, AuditEvent, AuditFilter, AuditLog, csv_of
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Queries
from callkeeper.desk.access.desk_tokens import DeskTokens, IssuedToken
from callkeeper.desk.access.people import OIDC, Accounts
from callkeeper.desk.access.rights import Rights, Role, operator_in
from callkeeper.desk.archived_calls import audited_or_archived

T = TypeVar("T")
Command = Callable[..., None]

_MOST = 100_000

_NAME: Final = re.compile(r"(?!board\Z)[A-Za-z0-9_.-]{1,40}")
"""Names of tokens. In trails ``board`` means the board itself, so no token has this name."""


def _rights(default: Role | None = None) -> Callable[[Command], Command]:
    """Give a command the options for a role and its institutions, which it gets as ``rights``."""
    role_option = click.option(
        "--role",
        type=click.Choice(Role, case_sensitive=False),
        required=default is None,
        default=default and default.value,
        show_default=True,
        help="What they may do.",
    )
    keys_option = click.option(
        "--institution", "-i", "institutions", multiple=True, help="Key it is limited to; may be given again."
    )
    force_option = click.option("--force", is_flag=True, help=FORCE_HELP)

    def with_options(command: Command) -> Command:
        @wraps(command)
        def with_rights(role: Role, institutions: tuple[str, ...], *, force: bool, **more: Any) -> None:
            if not force:
                refuse_unknown_institutions(institutions)
            command(rights=Rights(role=role, institutions=frozenset(institutions) or None), **more)

        return role_option(keys_option(force_option(with_rights)))

    return with_options


def _checked_name(_context: click.Context, _option: click.Parameter, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Misused("NAME must be 1 to 40 letters, digits, dots, hyphens or underscores, and not board")
    return name


def username(text: str) -> str:
    """Return the core username in a text."""
    operator = operator_in(text)
    if not operator:
        raise click.BadParameter("a core username is 1 to 64 printable ASCII characters")
    return operator


@click.group(cls=CommandGroup)
def tokens() -> None:
    """Issue, list and revoke the tokens by which software uses the desk. Changes apply at once, without a restart."""


@tokens.command()
@click.argument("name", callback=_checked_name)
@click.option(
    "--operator",
    "-o",
    "operators",
    multiple=True,
    type=username,
    help="Core username that it may name; may be given again. Default: any.",
)
@click.option("--expires", type=Span(), help="After how long it expires: 24h, 90d. Default: never.")
@_rights(Role.AGENT)
def issue(name: str, operators: tuple[str, ...], expires: timedelta | None, rights: Rights) -> None:
    """Issue a token and print it once: callkeeper keeps only a hash. Trails show NAME with its statements."""
    now = datetime.now(UTC)
    issued = IssuedToken(
        **asdict(rights),
        name=name,
        operators=frozenset(operators) or None,
        issued_at=now,
        expires_at=now + expires if expires is not None else None,
    )
    what = AuditEvent.TOKEN_CHANGED, f"issued {name}: {_words(rights)}"
    try:
        say(_change(*what, lambda redis, keys: DeskTokens(redis, keys=keys).issue(issued)))
    except ValueError as problem:
        raise Failed(problem) from None


@tokens.command(name="list")
def list_tokens() -> None:
    """List the tokens."""
    rows = (
        (
            token.name,
            token.role,
            _listed(token.institutions),
            _listed(token.operators, "anybody"),
            f"{token.issued_at:%Y-%m-%d}",
            _minute(token.expires_at),
            _minute(used_at),
        )
        for token, used_at in query_redis(lambda redis, keys: DeskTokens(redis, keys=keys).known())
    )
    columns = ("name", "role", "institutions", "operators", "issued", "expires", "last used (UTC)")
    say_table(columns, rows)


@tokens.command()
@click.argument("name")
def revoke(name: str) -> None:
    """Revoke a token, or end the sessions of a person (oidc:SUBJECT@ISSUER). Open streams end within seconds.

    A person can log in again: remove them at the identity provider too.
    """
    what = AuditEvent.TOKEN_CHANGED, f"revoked {name}"
    if name.startswith(OIDC):
        if not _change(*what, lambda redis, keys: Accounts(redis, keys=keys).remove(name)):
            raise Failed(f"nobody called {name} has logged in")
    elif not _change(*what, lambda redis, keys: DeskTokens(redis, keys=keys).revoke(name)):
        raise Failed(f"there is no token {name}")
    say(f"{name}: revoked")


@click.command()
@choice_option("--event", click.Choice(AuditEvent, case_sensitive=False), "Only this event.")
@click.option("--who", help="Only this person or token, or this core username.")
@click.option("--institution", help="Only this institution's.")
@click.option("--call", "voice_id", help="Only this call's, by its voice id.")
@click.option("--since", type=Span(), help="No longer ago than this: 30m, 24h, 7d.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=100, show_default=True, help="Entries at most.")
@click.option("--csv", "as_csv", is_flag=True, help="As CSV.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def audit(since: timedelta | None, limit: int, *, as_csv: bool, as_json: bool, **named: Any) -> None:
    """Show the audit log, newest first: logins, looks at people's data, statements, pauses, changes."""
    refuse_two_formats(as_json=as_json, as_csv=as_csv)
    wanted = AuditFilter(since=datetime.now(UTC) - since if since is not None else None, **named)

    async def read(redis: Redis, keys: Keys) -> list[Audited]:
        with archive_of_environment() as archive:
            found, answered = await audited_or_archived(AuditLog(redis, keys=keys), archive, wanted, most=limit)
        if not answered:
            say("the archive does not answer, or an entry in it cannot be read: entries are missing", err=True)
        if as_csv or as_json:
            await note_command(redis, keys, AuditEvent.EXPORTED, len(found), detail="audit log")
        return found

    found = query_redis(read)
    if not found:
        if wanted.institution:
            known = query_redis(lambda redis, keys: Queries(redis, keys=keys).institutions())
            if problem := known.problem(wanted.institution):
                raise Failed(problem)
        say("no entries", err=True)
    if as_json:
        say_json(*found)
        return
    if as_csv:
        say(*csv_of(found).splitlines())
        return
    columns = ("at (UTC)", "event", "who", "operator", "institution", "call", "detail", "status")
    rows = (_row(audited) for audited in found)
    say_table(columns, rows)


def _row(audited: Audited) -> tuple[object, ...]:
    at, entry = audited.at, audited.entry
    return (at, entry.event, entry.who, entry.operator, entry.institution, entry.voice_id, entry.words, entry.status)


def _change(event: AuditEvent, what: str, work: Callable[[Redis, Keys], Awaitable[T]]) -> T:
    """Change something, and record it in the audit log, unless there was nothing to change; return the result."""

    async def change(redis: Redis, keys: Keys) -> T:
        result = await work(redis, keys)
        if result:
            await note_command(redis, keys, event, detail=what)
        return result

    return query_redis(change)


def _words(rights: Rights) -> str:
    return f"{rights.role} of {_listed(rights.institutions, 'all institutions')}"


def _listed(names: frozenset[str] | None, if_unlimited: str = "all") -> str:
    return if_unlimited if names is None else ", ".join(sorted(names))


def _minute(at: datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M}"

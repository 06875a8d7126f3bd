"""``callkeeper calls``: live calls, the story of one call, and resolving effects with an unknown outcome."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from io import TextIOWrapper
from typing import BinaryIO, Final, TextIO

import click
import msgspec
from redis.asyncio import Redis
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from callkeeper.app.archive_reader import ARCHIVE_URL, archive_of_environment, is_archive_set, recorded_calls
from callkeeper.app.commands.call_lists import EVERYTHING, list_calls
from callkeeper.app.extras import require
from callkeeper.app.redis_query import Span, note_command, query_redis, record_command
from callkeeper.app.terminal import (
    CommandGroup,
    Failed,
    Misused,
    printable_json,
    safe,
    say,
    say_json,
    shown,
    terminal_console,
)
from callkeeper.app.whose_data import erased_in_redis, fail_if_spelled_otherwise, person_of, problem_of
from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.action_status import statuses_of
from callkeeper.calls.call_query import FEWEST_LETTERS, CallQuery
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.effect_resolution import DOUBTFUL, attention_reasons, unresolved, without_service_words
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import InboxFull, Resolved
from callkeeper.calls.quantity import quantity
from callkeeper.calls.record import Call
from callkeeper.calls.rules import load_rules
from callkeeper.calls.spreadsheet import SpreadsheetWriter
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup, Queries
from callkeeper.calls.store.script_runner import Unconfirmed
from callkeeper.calls.story import Line, Story, Tone, brief, story_of
from callkeeper.calls.trail import Entry, Recorded, encode_recorded, recorded, without_typed_words
from callkeeper.desk.access.rights import operator_in
from callkeeper.desk.call_list import CallList
from callkeeper.service.tracing import new_trace

_ARCHIVE_IN_USE: Final = timedelta(days=7)
"""An archive into which nothing was copied for this long is not in use: workers copy entries into one all the time."""


@click.group(cls=CommandGroup)
def calls() -> None:
    """List calls, explain one, export calls, erase a person, resolve effects whose outcome is unknown."""


calls.add_command(list_calls)


@calls.command()
@click.argument("voice_id")
@click.option("--institution", help="Its key; needed only where two institutions have a call of this id.")
@click.option("--all", "wants_all", is_flag=True, help="The whole story: each event, and the result of each rule.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as exported.")
def explain(voice_id: str, institution: str | None, *, wants_all: bool, as_json: bool) -> None:
    """Show what decided a call: what people said, what was known, which rule, what was sent and what came back.

    Times are seconds from the call's start. With --all, under a decision: + the rule decided, - a condition failed, ~ it
    matched in shadow, . it was not asked.
    """
    call, trail = query_redis(lambda redis, keys: _load(Lookup(redis, keys=keys), voice_id, institution))
    if as_json:
        say_json(msgspec.Raw(encode_recorded(recorded(call, trail))))
        return
    whole = story_of(recorded(call, trail), statuses_of(call, trail))
    story = whole if wants_all else brief(whole)
    console = terminal_console(width_if_piped=120)
    console.print(story.heading, style="bold")
    console.print(story_table(story, with_rows=wants_all))
    console.print(story.ending, style="bold")
    if not wants_all:
        console.print("--all shows the whole story", style="dim")


@calls.command()
@click.option(
    "--archive", "from_archive", is_flag=True, help="Archived calls, oldest first, instead of those in Redis."
)
@click.option("--institution", help="Only the calls of this institution.")
@click.option(
    "--since", type=Span(), help="Settled (archived ones: begun) no longer ago: 30m, 24h, 400d. Default: all."
)
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated, without the trails.")
@click.option("--output", type=click.File("wb"), default="-", help="The file to write. Default: standard output.")
def export(
    institution: str | None, since: timedelta | None, output: BinaryIO, *, from_archive: bool, as_csv: bool
) -> None:
    """Write calls and their trails as JSON lines, live ones first, for `callkeeper rules replay`; or as CSV.

    Phone numbers, names and what people typed are left out. Without Redis nothing is exported, because the audit log says
    who did.

    One object a line, `"format": "callkeeper.trail/1"`; the fields are described in docs/rules.md.
    """
    if institution is not None:
        _refuse_unknown(institution, is_archived=from_archive)
    detail, place = "archive" if from_archive else "calls", {"institution": institution or ""}
    if from_archive:
        with recorded_calls(None, since, institution=institution) as found:
            record_command(AuditEvent.EXPORTED, detail=detail, **place)
            count = sum(map(_writer(output, as_csv=as_csv), found))
    else:
        record_command(AuditEvent.EXPORTED, detail=detail, **place)
        write = _writer(output, as_csv=as_csv)
        count = query_redis(lambda redis, keys: _export(Queries(redis, keys=keys), since, institution, write))
    record_command(AuditEvent.EXPORTED, count, detail=f"{detail}, done", **place)
    if getattr(output, "name", "<stdout>") != "<stdout>":
        say(f"{quantity(count, 'call')} exported", err=True)


def _refuse_unknown(institution: str, *, is_archived: bool) -> None:
    """Refuse an institution of which there are no calls: its key is probably mistyped.

    Raises:
        Failed: Redis knows none, or the archive has no chain of one.
    """
    if is_archived:
        require("--archive", "archive")
        from callkeeper.app.commands.archive import (  # noqa: PLC0415  (it imports SQLAlchemy)
            archive_database,
            refuse_unknown_institution,
        )

        with archive_database() as (database, _):
            refuse_unknown_institution(database, institution)
    elif problem := problem_of(institution):
        raise Failed(problem)


def _writer(output: BinaryIO, *, as_csv: bool) -> Callable[[Recorded], int]:
    """Return what writes one call, and returns 1."""
    if not as_csv:
        return lambda call: bool(output.write(printable_json(encode_recorded(without_typed_words(call))) + b"\n"))
    columns = [name for name in Recorded.__struct_fields__ if name != "trail"]
    text = TextIOWrapper(output, encoding="utf-8", newline="", write_through=True)
    writer = SpreadsheetWriter(text)
    writer.row(columns)

    def write(call: Recorded) -> int:
        values = (getattr(call, name) for name in columns)
        writer.row([None if value is None else safe(value) for value in values])
        return 1

    click.get_current_context().call_on_close(text.detach)  # closing it would close the output
    return write


async def _export(
    queries: Queries, since: timedelta | None, institution: str | None, write: Callable[[Recorded], int]
) -> int:
    count = 0
    least = None if since is None else datetime.now(UTC) - since
    async for call in queries.recordings(least):
        count += write(call) if institution in {None, call.institution_key} else 0
    return count


@calls.command()
@click.option("--institution", required=True, help="The institution's key.")
@click.option("--person", help="The member's id.")
@click.option("--phone", help="A phone number: everything personal of the calls from it.")
@click.option("--operator", required=True, help="Who requests it; written down with the erasure.")
@click.option("--reason", required=True, help="Why; written down with the erasure, so it must name nobody.")
@click.option(
    "--former-keys", type=click.File("r"), help="A file with the keys that signed the archive before, one on each line."
)
def erase(
    institution: str, person: str | None, phone: str | None, operator: str, reason: str, former_keys: TextIO | None
) -> None:
    """Erase a person's phone numbers, names, notes and reasons in Redis, and in the archive, if there is one.

    Decisions and ids stay, and the archive's chain. Calls under a legal hold are not changed, nor archived ones of which
    somebody has changed a line: they are named, and the exit code is 1.
    """
    whose, operator = person_of(institution, person, phone), _username(operator)
    if is_archive_set():
        require(f"{ARCHIVE_URL} is set; erasing", "archive")
        from callkeeper.app.commands.archive import erase_in_both  # noqa: PLC0415  (it imports SQLAlchemy)

        erase_in_both(whose, operator, reason, former_keys)
        return
    if query_redis(_is_archived):
        raise Misused(
            f"workers keep an archive: set {ARCHIVE_URL}, so that it is erased there too, but for legal holds"
        )
    if problem := problem_of(institution):
        raise Failed(f"Nothing was erased: {problem}")
    detail = f"erase: {' '.join(reason.split())[:200]}"
    record_command(AuditEvent.ARCHIVE_CHANGED, detail=detail, operator=operator, institution=institution)
    words, spellings = erased_in_redis(whose)
    say(words)
    fail_if_spelled_otherwise(spellings)


async def _is_archived(redis: Redis, keys: Keys) -> bool:
    """Tell whether workers copied the audit log into an archive lately. This process need not know its address."""
    client = in_bytes(redis)
    last = await client.get(keys.audit_archived)
    copied_at = instant(int(last.partition(b"-")[0])) if last is not None else None
    return copied_at is not None and datetime.now(UTC) - copied_at < _ARCHIVE_IN_USE


async def _load(queries: Lookup, voice_id: str, institution: str | None) -> tuple[Call, tuple[Entry, ...]]:
    try:
        call_id = await find_call(queries, voice_id, institution)
    except Failed:
        with archive_of_environment() as archive:
            try:
                found = None if archive is None else await asyncio.to_thread(archive.reader.call, institution, voice_id)
            except ArchiveAway as away:
                raise Failed(f"Redis knows no call {voice_id}, and the archive does not answer") from away
        if found is not None:
            return found
        raise
    call = await queries.load(call_id)
    if call is None:
        raise Failed(f"nothing is known of {voice_id}")
    return call, await queries.trail(call_id)


@calls.command()
@click.argument("voice_id")
@click.option("--applied/--absent", "applied", default=None, help="What the service's record of the call shows.")
@click.option(
    "--effect",
    type=click.Choice([kind.value for kind in DOUBTFUL]),
    help="Which one; needed only if both are unresolved.",
)
@click.option("--seen", is_flag=True, help="You have seen all else for which the call needs a person.")
@click.option("--operator", required=True, help="Who looked; it is written into the trail.")
@click.option("--institution", help="Its key; needed only where two institutions have a call of this id.")
def resolve(
    voice_id: str, applied: bool | None, effect: str | None, operator: str, institution: str | None, *, seen: bool
) -> None:
    """Record what you found out about a call that needs a person. Nothing is sent.

    --applied or --absent answers whether an unresolved enroll or reject was applied. --seen answers nothing: it closes
    what a rule asks, an effect that was refused or not carried out, an enroll that was taken back, and a voice that was
    enrolled as another member's. What you know of the caller is said on the board or at the desk.
    """
    resolution, operator = _resolution(applied=applied, seen=seen), _username(operator)
    if resolution is Resolution.SEEN and effect is not None:
        raise click.UsageError("--effect goes with --applied or --absent")
    kinds = query_redis(
        lambda redis, keys: _resolve(redis, keys, voice_id, institution, effect, resolution, operator=operator)
    )
    say(f"{voice_id}: {', '.join(kinds)}: {resolution}, by {operator}")


def _username(operator: str) -> str:
    """Return the core username of ``--operator``; refuse a text that can be none."""
    name = operator_in(operator)
    if not name:
        raise Misused("--operator must be 1 to 64 printable ASCII characters")
    return name


class Resolution(StrEnum):
    """What a person found: the effect was applied, it was not, or what else waits for a person was seen."""

    APPLIED = "applied"
    ABSENT = "absent"
    SEEN = "seen"


def _resolution(*, applied: bool | None, seen: bool) -> Resolution:
    """Return which one of the three options was given; refuse none, and --seen beside another."""
    match applied, seen:
        case True, False:
            return Resolution.APPLIED
        case False, False:
            return Resolution.ABSENT
        case None, True:
            return Resolution.SEEN
        case _:
            raise click.UsageError(
                "give --applied or --absent, as the service's record of the call shows; "
                "or --seen, if nothing is unresolved"
            )


async def _resolve(
    redis: Redis,
    keys: Keys,
    voice_id: str,
    institution: str | None,
    effect: str | None,
    resolution: Resolution,
    *,
    operator: str,
) -> list[str]:
    """Record a resolution. Return what it closes.

    Raises:
        click.ClickException: Nothing waits for this resolution, or it is not clear what is meant.
    """
    queries = Lookup(redis, keys=keys)
    call_id = await find_call(queries, voice_id, institution)
    call = await queries.load(call_id)
    doubtful: list[str] = [kind for kind in (unresolved(call) if call else []) if effect in {None, kind.value}]
    if resolution is Resolution.SEEN:
        if doubtful:
            raise click.ClickException(f"{', '.join(doubtful)} of {voice_id} is unresolved: say --applied or --absent")
        closed = [without_service_words(why) for why in attention_reasons(call)] if call else []
        missing = f"nothing of {voice_id} can be marked as seen"
    else:
        if len(doubtful) > 1:
            kinds = " and ".join(doubtful)
            raise click.ClickException(f"{kinds} of {voice_id} are unresolved: say which with --effect")
        closed = doubtful
        missing = f"no {effect or 'effect'} of {voice_id} is unresolved"
    if not closed:
        raise click.ClickException(missing)
    note = Resolved(
        applied=resolution is Resolution.APPLIED,
        effect=effect,
        operator=operator,
        said_at=datetime.now(UTC),
        wish=new_trace(),
    )
    try:
        await Store(redis, keys=keys).note(call_id, note, even_settled=True)
        place = {"institution": call_id.institution_key, "voice_id": call_id.voice_id}
        await note_command(redis, keys, AuditEvent.RESOLVED, operator=operator, **place)
    except InboxFull as error:
        raise click.ClickException(f"nothing was written: {error}") from error
    except Unconfirmed as error:
        raise click.ClickException("it is recorded, but no replica of Redis confirmed it: say it again") from error
    return closed


async def find_call(queries: Lookup, voice_id: str, institution: str | None) -> CallId:
    """Return the one call with an id, or with an id that begins so.

    Raises:
        Failed: There is none, or several.
    """
    everywhere = await queries.find(voice_id) or await _beginning(queries, voice_id)
    found = [call_id for call_id in everywhere if institution in {None, call_id.institution_key}]
    keys = ", ".join(call_id.institution_key for call_id in everywhere)
    if not found and institution is not None:
        problem = (await queries.institutions()).problem(institution)
        if problem is not None:
            raise Failed(problem)
        elsewhere = f"; it is a call of {keys}" if keys else ""
        raise Failed(f"nothing is known of {voice_id} at {institution}{elsewhere}")
    if not found:
        raise Failed(f"nothing is known of {voice_id}; search with callkeeper calls list")
    if len(found) > 1:
        raise Failed(f"{voice_id} is a call of {keys}: say which with --institution")
    return found[0]


async def _beginning(queries: Lookup, prefix: str) -> list[CallId]:
    """Return the one call whose id begins with a prefix.

    Raises:
        Failed: There are several.
    """
    if len(prefix) < FEWEST_LETTERS:
        return []
    listed = CallList(queries, None, load_rules(None))
    found = await listed.find(EVERYTHING, CallQuery(id_prefix=prefix), most=5)
    if len(found.calls) > 1:
        ids = ", ".join(call.voice_id for call in found.calls)
        raise Failed(f"several calls have ids that begin with {prefix}: {ids}")
    return [CallId(call.institution_key, call.voice_id) for call in found.calls]


_STYLES = {
    Tone.EVENT: "",
    Tone.READ: "dim",
    Tone.CHECK: "cyan",
    Tone.SAID: "magenta",
    Tone.DECIDED: "bold",
    Tone.EFFECT: "yellow",
    Tone.TROUBLE: "bold red",
}
_ROW_STYLES = {"+": "green", "-": "dim", "~": "blue", ".": "dim"}


def story_table(story: Story, *, with_rows: bool) -> RenderableType:
    """Return the story's lines; ``with_rows`` shows the result of every rule in every decision."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for line in story.lines:
        table.add_row(_when(line), shown(line.text, _STYLES[line.tone]))
        for each in line.meanings:
            table.add_row("", _indented(shown(f"{each.name}: {each.words}", "dim")))
        width = max((len(safe(row.rule)) for row in line.rows), default=0)
        for row in line.rows if with_rows else ():
            text = f"{row.mark} {safe(row.rule):<{width}}  {row.text}"
            table.add_row("", _indented(shown(text, _ROW_STYLES[row.mark])))
    return table


def _indented(text: RenderableType) -> Padding:
    """Return a text whose lines all begin four columns to the right, also those that do not fit into one."""
    return Padding(text, (0, 0, 0, 4))


def _when(line: Line) -> str:
    until = f" to {line.until_s:.1f}" if line.until_s is not None else ""
    return f"{line.at_s:.1f}{until} s"

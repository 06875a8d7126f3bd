"""``callkeeper calls``: what is live, what happened to one call, and closing what only a person can close."""

import csv
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO
from uuid import uuid4

import click
import msgspec
from redis.asyncio import Redis
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from callkeeper.redis_query import Span, enqueue_reconcile, query_redis
from callkeeper.settings import StoreSettings
from callkeeper.terminal import Failed, Misused, printable_json, safe, say, say_json, shown, terminal_console
from calls.evidence import TAKEN_BACK, needs_person
from calls.finding import FEWEST_LETTERS, CallQuery, parse_query
from calls.ledger import EffectKind, EffectState
from calls.notes import InboxFull, Resolved
from calls.record import ASKED, CHECK_LIMIT, Call
from calls.store.keys import CallId, Keys, parse_member
from calls.store.queries import Queries
from calls.store.store import Store
from calls.story import Line, Row, Story, Tone, tell
from calls.trail import Entry, encode_recorded, recorded
from desk.finding import find_calls
from reseller.endpoints import is_voice_id


@click.group()
def calls() -> None:
    """List calls, tell one call's story, export them, resolve effects that are in doubt."""


@calls.command("list")
@click.option("--settled", type=click.IntRange(1, 10_000), default=None, help="The last N settled calls instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_calls(settled: int | None, *, as_json: bool) -> None:
    """List the live calls, oldest first, and what needs a person."""
    found, attention = query_redis(lambda redis, keys: _list(Queries(redis, keys=keys), settled))
    if as_json:
        for call in found:
            say_json(msgspec.json.encode(_json_of(call)))
        return
    console = terminal_console(width_if_piped=120)
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("institution", "voice id", "phase", "age", "person", "status", "checks", "effects"):
        table.add_column(name, overflow="fold", no_wrap=name == "voice id")  # the other commands need the whole id
    now = datetime.now(UTC)
    for call in found:
        table.add_row(*_cells(call, now))
    console.print(table)
    for member, why in attention.items():
        console.print(f"needs a human: {_plain(member)}: {why}", style="bold red")


@calls.command()
@click.argument("words", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated, with a line of names.")
def find(words: tuple[str, ...], *, as_json: bool, as_csv: bool) -> None:
    """Find calls by WORDS, all of which have to fit.

    A word is: last digits or a whole phone number, a member's name or id, a voice id or its beginning, an institution, a
    time such as 10:40 (UTC), a state. Without WORDS they are read from standard input, where no list of processes shows
    them. Exits with 1 if there is none.
    """
    typed = " ".join(words) or sys.stdin.readline().strip()
    country = StoreSettings.load(os.environ).country
    query = parse_query(typed, country=country, zone=UTC)
    if query.is_empty:
        raise Misused("say what is known of the call, such as its last digits")
    any_id = typed if is_voice_id(typed) else ""
    found = query_redis(
        lambda redis, keys: find_calls(Queries(redis, keys=keys), query, any_id=any_id, state=_state, most=1000)
    )
    if as_csv:
        writer = csv.DictWriter(sys.stdout, _COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(
            {name: safe(str(value or "")) for name, value in _json_of(call).items()} for call in found.calls
        )
    elif as_json:
        for call in found.calls:
            say_json(msgspec.json.encode(_json_of(call)))
    else:
        table = Table(box=None, padding=(0, 1, 0, 0))
        for name in ("began (UTC)", "institution", "voice id", "digits", "person", "state"):
            table.add_column(name, overflow="fold", no_wrap=name == "voice id")
        for call in found.calls:
            table.add_row(*_found_cells(call))
        terminal_console(width_if_piped=160).print(table)
    if found.is_cut or found.is_partial:
        say("not all calls were searched: say more", err=True)
    if not found.calls:
        raise Failed("no call is known that fits all of it")


_COLUMNS = (
    "started_at",
    "institution_key",
    "voice_id",
    "alternate_id",
    "phone_last4",
    "person_id",
    "phase",
    "reason",
    "status",
)


def _state(call: Call) -> str:
    """Return the words by which a call's state can be looked for."""
    status = call.reading.status if call.reading else ""
    return f"{call.phase} {call.reason or ''} {status}"


def _found_cells(call: Call) -> list[str]:
    began = call.started_at or call.first_seen_at or call.hinted_at
    return [
        f"{began:%Y-%m-%d %H:%M:%S}" if began else "",
        call.institution_key,
        call.voice_id,
        (call.phone_number or "")[-4:],
        call.person_id or "",
        str(call.reason or call.phase),
    ]


async def _list(queries: Queries, settled: int | None) -> tuple[list[Call], dict[str, str]]:
    source = queries.live() if settled is None else queries.settled(settled)
    return [call async for call in source], await queries.attention()


@calls.command()
@click.argument("voice_id")
@click.option("--institution", help="Its key; needed only where two institutions have a call of this id.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def show(voice_id: str, institution: str | None, *, as_json: bool) -> None:
    """Show a call and everything that happened to it, by voice id or alternate id."""
    call, trail = query_redis(lambda redis, keys: _show(Queries(redis, keys=keys), voice_id, institution))
    if as_json:
        say_json(msgspec.json.encode(_json_of(call)))
        for entry in trail:
            say_json(msgspec.json.encode(entry))
        return
    _tell(call, trail, with_rows=False)


@calls.command()
@click.argument("voice_id")
@click.option("--institution", help="Its key; needed only where two institutions have a call of this id.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as exported.")
def explain(voice_id: str, institution: str | None, *, as_json: bool) -> None:
    """Tell a call's whole story: what was heard, decided by which rule and why, sent, answered, and by whom.

    Times are seconds from the call's start. Under a decision: + the rule decided, - a condition failed, ~ it matched in
    shadow, . it was not asked.
    """
    call, trail = query_redis(lambda redis, keys: _show(Queries(redis, keys=keys), voice_id, institution))
    if as_json:
        say_json(encode_recorded(recorded(call, trail)))
        return
    _tell(call, trail, with_rows=True)


@calls.command()
@click.argument("institution", required=False)
def reconcile(institution: str | None) -> None:
    """List the queue of one INSTITUTION now, or of all: a worker does it as a job, which the RQ dashboard shows.

    Workers list every queue by themselves every few seconds. Use this after the service's operator has mended something.
    Exits with 2 if there is no such institution.
    """
    known = query_redis(lambda redis, keys: Queries(redis, keys=keys).institutions())
    if institution is not None and (problem := known.problem(institution)):
        raise Misused(f"Nothing was enqueued: {problem}")
    wanted = sorted(known.names) if institution is None else [institution]
    if not wanted:
        raise click.ClickException("callkeeper knows no institution yet; start a worker first")
    for key, job_id in zip(wanted, enqueue_reconcile(wanted), strict=True):
        say(f"{known.called(key)}: {job_id}")


def _tell(call: Call, trail: tuple[Entry, ...], *, with_rows: bool) -> None:
    console = terminal_console(width_if_piped=120)
    story = tell(recorded(call, trail))
    console.print(story.heading, style="bold")
    console.print(story_table(story, with_rows=with_rows))
    console.print(story.ending, style="bold")


@calls.command()
@click.option("--since", type=Span(), default=None, help="Settled no longer ago than this: 30m, 24h, 7d. Default: all.")
@click.option("--output", type=click.File("wb"), default="-", help="The file to write. Default: standard output.")
def export(since: timedelta | None, output: BinaryIO) -> None:
    """Write calls and their trails as JSON lines, live ones first: what `callkeeper rules replay` reads.

    One object a line, `"format": "callkeeper.trail/1"`; the fields are described in docs/rules.md.
    """
    count = query_redis(lambda redis, keys: _export(Queries(redis, keys=keys), since, output))
    if output.name != "<stdout>" and count == 0:
        say("no calls", err=True)


async def _export(queries: Queries, since: timedelta | None, output: BinaryIO) -> int:
    count = 0
    least = None if since is None else datetime.now(UTC) - since
    async for call in queries.recordings(least):
        output.write(printable_json(encode_recorded(call)) + b"\n")
        count += 1
    return count


async def _show(queries: Queries, voice_id: str, institution: str | None) -> tuple[Call, tuple[Entry, ...]]:
    call_id = await _find(queries, voice_id, institution)
    call = await queries.load(call_id)
    if call is None:
        raise click.ClickException(f"nothing is known of {voice_id}")
    return call, await queries.trail(call_id)


@calls.command()
@click.argument("voice_id")
@click.option("--applied/--absent", "applied", default=None, help="What the service's own record of the call shows.")
@click.option("--seen", is_flag=True, help="You have seen that an enroll was taken back, or what a rule asks.")
@click.option("--operator", required=True, help="Who looked; it is written into the trail.")
@click.option("--institution", help="Its key; needed only where two institutions have a call of this id.")
def resolve(voice_id: str, applied: bool | None, operator: str, institution: str | None, *, seen: bool) -> None:
    """Say what became of an enroll or reject that is unresolved, or that you have seen a call. Nothing is sent."""
    if (applied is None) is not seen:
        raise click.UsageError(
            "say --applied or --absent: what the service's own record of the call shows; or --seen, if nothing is unresolved"
        )
    kinds = query_redis(
        lambda redis, keys: _resolve(redis, keys, voice_id, institution, applied=applied, operator=operator)
    )
    what = "seen" if applied is None else "applied" if applied else "absent"
    say(f"{', '.join(kinds)} of {voice_id}: {what}, by {operator}")


async def _resolve(
    redis: "Redis", keys: Keys, voice_id: str, institution: str | None, *, applied: bool | None, operator: str
) -> list[str]:
    queries = Queries(redis, keys=keys)
    call_id = await _find(queries, voice_id, institution)
    call = await queries.load(call_id)
    kinds: list[str] = [kind for kind in EffectKind if call and call.effect(kind).state is EffectState.UNRESOLVED]
    if applied is None and kinds:
        raise click.ClickException(f"{', '.join(kinds)} of {voice_id} is unresolved: say --applied or --absent")
    if applied is None and call is not None:
        kinds += [TAKEN_BACK] if needs_person(call) else []
        kinds += [f"{ASKED} {call.asked.rule!r}"] if call.asked is not None and call.asked.closed_by is None else []
    if not kinds:
        what = "no effect of {} is unresolved" if applied is not None else "nothing of {} waits for a person"
        raise click.ClickException(what.format(voice_id))
    note = Resolved(applied=bool(applied), operator=operator, said_at=datetime.now(UTC), wish=uuid4().hex)
    try:
        await Store(redis, keys=keys).note(call_id, note, even_settled=True)
    except InboxFull as error:
        raise click.ClickException(f"nothing was written: {error}") from error
    return kinds


@calls.command()
@click.argument("voice_id")
@click.option("--institution", help="Its key; needed only where two institutions have a call of this id.")
def redeliver(voice_id: str, institution: str | None) -> None:
    """Try again to send the outcomes of a call that were not taken for a day."""
    query_redis(lambda redis, keys: _redeliver(redis, keys, voice_id, institution))
    say(f"outcomes of {voice_id}: sent again by the next worker that is free")


async def _redeliver(redis: "Redis", keys: Keys, voice_id: str, institution: str | None) -> None:
    call_id = await _find(Queries(redis, keys=keys), voice_id, institution)
    await Store(redis, keys=keys.outbox).nudge(call_id)


async def _find(queries: Queries, voice_id: str, institution: str | None) -> CallId:
    everywhere = await queries.find(voice_id) or await _beginning(queries, voice_id)
    found = [call_id for call_id in everywhere if institution in {None, call_id.institution_key}]
    keys = ", ".join(call_id.institution_key for call_id in everywhere)
    if not found and institution is not None:
        problem = (await queries.institutions()).problem(institution)
        if problem is not None:
            raise Misused(problem)
        elsewhere = f"; it is a call of {keys}" if keys else ""
        raise Failed(f"nothing is known of {voice_id} at {institution}{elsewhere}")
    if not found:
        raise Failed(f"nothing is known of {voice_id}")
    if len(found) > 1:
        raise Failed(f"{voice_id} is a call of {keys}: say which with --institution")
    return found[0]


async def _beginning(queries: Queries, prefix: str) -> list[CallId]:
    """Return the one call whose id begins so.

    Raises:
        Failed: There are several.
    """
    if len(prefix) < FEWEST_LETTERS:
        return []
    found = await find_calls(queries, CallQuery(id_prefix=prefix), state=_state, most=5)
    if len(found.calls) > 1:
        ids = ", ".join(call.voice_id for call in found.calls)
        raise Failed(f"several calls have ids that begin with {prefix}: {ids}")
    return [CallId(call.institution_key, call.voice_id) for call in found.calls]


def _json_of(call: Call) -> dict[str, Any]:
    """Return a call as JSON shows it: no names, no whole phone number."""
    reading = call.reading
    return {
        "institution_key": call.institution_key,
        "voice_id": call.voice_id,
        "alternate_id": call.alternate_id,
        "phase": call.phase,
        "reason": call.reason,
        "phone_last4": (call.phone_number or "")[-4:],
        "person_id": call.person_id,
        "candidates": len(call.candidates),
        "status": reading.status if reading else None,
        "policies": reading.policies if reading else (),
        "checks_used": call.checks_used,
        "started_at": call.started_at,
        "next_check_at": call.next_check_at,
        "effects": {kind: call.effect(kind).state for kind in EffectKind},
    }


def _cells(call: Call, now: datetime) -> list[str]:
    reading = call.reading
    born = call.started_at or call.first_seen_at
    effects = [f"{kind} {call.effect(kind).state}" for kind in EffectKind if call.effect(kind).state != "none"]
    return [
        call.institution_key,
        call.voice_id,
        call.reason or call.phase,
        f"{(now - born).total_seconds():.0f} s" if born else "",
        call.person_id or f"{len(call.candidates)} candidates",
        (reading.status if reading else None) or "",
        f"{call.checks_used}/{CHECK_LIMIT}",
        ", ".join(effects),
    ]


def _plain(member: str) -> str:
    owner = parse_member(member)
    return f"{owner.institution_key} {owner.voice_id}" if isinstance(owner, CallId) else owner


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
    """Return the story's lines; ``with_rows`` shows how every rule fared in every decision."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for line in story.lines:
        table.add_row(_when(line), shown(line.text, _STYLES[line.tone]))
        width = max((len(safe(row.rule)) for row in line.rows), default=0)
        for row in line.rows if with_rows else ():
            table.add_row("", _rule_row(row, width))
    return table


def _when(line: Line) -> str:
    until = f" to {line.until_s:.1f}" if line.until_s is not None else ""
    return f"{line.at_s:.1f}{until} s"


def _rule_row(row: Row, width: int) -> Text:
    return shown(f"    {row.mark} {safe(row.rule):<{width}}  {row.text}", _ROW_STYLES[row.mark])

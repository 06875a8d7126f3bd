"""``callkeeper calls list``: live calls, or those that match, as a table, JSON lines or CSV."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click
from redis.asyncio import Redis

from callkeeper.app.archive_reader import archive_of_environment
from callkeeper.app.environment import SettingsWrong
from callkeeper.app.redis_query import query_redis
from callkeeper.app.settings import RuleSettings, StoreSettings
from callkeeper.app.terminal import (
    Failed,
    Misused,
    choice_option,
    refuse_two_formats,
    safe,
    say,
    say_json,
    say_table,
    terminal_console,
)
from callkeeper.calls.call_query import CallQuery, FilterWrong, filtered, parse_query
from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.item_names import CallId, parse_member
from callkeeper.calls.quantity import quantity
from callkeeper.calls.record import CHECK_LIMIT, Call, Reason
from callkeeper.calls.rules import RuleBook, RulesError, load_rules
from callkeeper.calls.spreadsheet import SpreadsheetWriter
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup, Queries
from callkeeper.desk.access.rights import Rights, Role
from callkeeper.desk.board.states import STATE_STYLES, STATE_WORDS, state_named, state_of
from callkeeper.desk.call_list import CSV_COLUMNS, CallList, FoundCalls, ListSection, csv_row
from callkeeper.service.endpoints import is_voice_id

EVERYTHING = Rights(role=Role.ADMIN)
"""The rights of a command: a person with a shell may see everything."""

_MOST = 10_000
_PIPED_WIDTH = 1000
"""Width if the output is no terminal: lines are not wrapped or cut, because other commands need whole ids."""


class _StateChoice(click.Choice[str]):
    """A state by the word that lists show. Its name, as in JSON, and other spellings are taken, too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        with suppress(FilterWrong):
            return state_named(value)
        return super().convert(value, param, ctx)


@click.command("list")
@click.argument("words", nargs=-1)
@click.option("--institution", help="Only calls of the institution with this key.")
@choice_option("--state", _StateChoice(STATE_WORDS), "Only calls that lists and the board show in this state.")
@choice_option(
    "--outcome", click.Choice([reason.value for reason in Reason]), "Only calls that were settled for this reason."
)
@click.option("--rule", help="Only calls in which this rule decided.")
@click.option("--policy", help="Only calls with this policy, now or in a check.")
@click.option("--operator", help="Only calls about which this person made a statement.")
@click.option("--since", help="Only calls that began no longer ago than 30m, 24h, 7d, or since 2026-11-22T10:40 (UTC).")
@click.option("--until", help="Only calls that began before then; like --since.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated, with a line of names.")
def list_calls(words: tuple[str, ...], *, as_json: bool, as_csv: bool, **filters: str | None) -> None:
    """List the live calls, oldest first, and those that need a person; or all that match WORDS and filters.

    With WORDS or filters other than --institution, settled and archived calls are searched, too. A word is: last digits
    or a whole phone number, a member's name or id, a voice id or its beginning, an institution, a time such as 10:40
    (UTC), a state such as rejected, outcome:enrolled, person:ID, operator:NAME, rule:"NAME", digest:DIGEST. `-` reads
    them from standard input, so that the list of processes does not show them. Exits with 1 if no call matches.
    """
    refuse_two_formats(as_json=as_json, as_csv=as_csv)
    typed = sys.stdin.readline().strip() if words == ("-",) else " ".join(words)
    query = _query(typed, filters)
    if words and query.is_empty:
        raise Misused("give words to search for, such as the last digits")
    if replace(query, institution_key=None).is_empty and not words:
        _list_live(query, as_json=as_json, as_csv=as_csv)
    else:
        _list_found(query, typed, as_json=as_json, as_csv=as_csv)


def _list_live(query: CallQuery, *, as_json: bool, as_csv: bool) -> None:
    """Print the live calls of all institutions, or of one, and what needs a person there."""
    book = _book()

    async def ask(redis: Redis, keys: Keys) -> tuple[FoundCalls, dict[str, str]]:
        lookup = Lookup(redis, keys=keys)
        await _check(lookup, query.institution_key)
        found = await CallList(lookup, None, book).find(EVERYTHING, query, (ListSection.LIVE,), most=_MOST)
        return found, await lookup.attention()

    found, attention = query_redis(ask)
    calls = sorted(found.calls, key=lambda call: call.life.began_at or datetime.max.replace(tzinfo=UTC))
    _print(calls, book, as_json=as_json, as_csv=as_csv)
    if not (as_json or as_csv):
        console = terminal_console(width_if_piped=_PIPED_WIDTH)
        for member, why in attention.items():
            if query.institution_key in {None, _institution_of(member)}:
                console.print(f"needs a person: {_plain(member)}: {why}", style="bold red")
    if found.is_partial:
        say("not all calls were searched: there are too many", err=True)


def _list_found(query: CallQuery, typed: str, *, as_json: bool, as_csv: bool) -> None:
    """Print live, settled and archived calls that match.

    Raises:
        Failed: None does.
    """
    book = _book()

    async def ask(redis: Redis, keys: Keys) -> FoundCalls:
        lookup = Lookup(redis, keys=keys)
        await _check(lookup, query.institution_key)
        any_id = typed if is_voice_id(typed) else ""
        with archive_of_environment() as archive:
            return await CallList(lookup, archive, book).find(EVERYTHING, query, any_id=any_id, most=1000)

    found = query_redis(ask)
    _print(found.calls, book, as_json=as_json, as_csv=as_csv)
    if found.is_archive_missing:
        say("the archive was not searched: it does not answer", err=True)
    if found.is_cut or found.is_partial:
        say("not all calls were searched: give more words", err=True)
    if not found.calls:
        raise Failed("no call matches all words")


def _institution_of(member: str) -> str:
    owner = parse_member(member)
    return owner.institution_key if isinstance(owner, CallId) else owner


def _query(typed: str, filters: Mapping[str, str | None]) -> CallQuery:
    query = parse_query(typed, country=StoreSettings.load(os.environ).country, zone=UTC)
    given = {name: text for name, text in filters.items() if text}
    try:
        return filtered(query, given, state_named=state_named, now=datetime.now(UTC))
    except FilterWrong as wrong:
        if wrong.name == "q":
            raise Misused(wrong) from wrong
        raise click.BadParameter(str(wrong), param_hint=f"--{wrong.name}") from wrong


def _book() -> RuleBook:
    """Return the rules that classify policies: those of the settings, or the shipped ones if those are invalid."""
    try:
        return RuleSettings.load(os.environ).book()
    except (SettingsWrong, RulesError):
        return load_rules(None)


async def _check(queries: Queries, institution: str | None) -> None:
    if institution is not None and (problem := (await queries.institutions()).problem(institution)):
        raise Failed(problem)


def _print(calls: Sequence[Call], book: RuleBook, *, as_json: bool, as_csv: bool) -> None:
    if as_csv:
        writer = SpreadsheetWriter(sys.stdout)
        writer.row(CSV_COLUMNS)
        for call in calls:
            writer.row(safe(str(value or "")) for value in csv_row(call, book))
    elif as_json:
        say_json(*({**json_of(call), "state": state_of(call, book).name} for call in calls))
    else:
        columns = ("began (UTC)", "institution", "voice id", "digits", "person", "state", "checks", "effects")
        rows = (_cells(call, book) for call in calls)
        say_table(columns, rows)


def _cells(call: Call, book: RuleBook) -> list[object]:
    candidates = len(call.seen.candidates)
    effects = [f"{kind} {call.effect(kind).state}" for kind in EffectKind if call.effect(kind).state != "none"]
    return [
        call.life.began_at,
        call.institution_key,
        call.voice_id,
        call.names.last_digits,
        call.seen.person_id or quantity(candidates, "candidate"),
        STATE_STYLES[state_of(call, book).name].word,
        f"{call.plan.checks_used}/{CHECK_LIMIT}",
        ", ".join(effects),
    ]


def json_of(call: Call) -> dict[str, Any]:
    """Return a call for JSON, without names and whole phone numbers."""
    reading = call.seen.reading
    return {
        "institution_key": call.institution_key,
        "voice_id": call.voice_id,
        "alternate_id": call.names.alternate_id,
        "phase": call.life.phase,
        "reason": call.life.reason,
        "phone_last4": call.names.last_digits,
        "person_id": call.seen.person_id,
        "candidates": len(call.seen.candidates),
        "status": reading.status if reading else None,
        "policies": reading.policies if reading else (),
        "checks_used": call.plan.checks_used,
        "started_at": call.life.started_at,
        "next_check_at": call.plan.next_check_at,
        "effects": {kind: call.effect(kind).state for kind in EffectKind},
    }


def _plain(member: str) -> str:
    owner = parse_member(member)
    return f"{owner.institution_key} {owner.voice_id}" if isinstance(owner, CallId) else owner

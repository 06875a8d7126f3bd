"""``callkeeper service``: show which requests may not go now. ``retry`` tries again, ``survey`` says how it answers."""

import click
from redis.asyncio import Redis

from callkeeper.app.commands.service_survey import survey
from callkeeper.app.redis_query import note_command, query_redis
from callkeeper.app.terminal import CommandGroup, safe, say, say_json
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.breakers import ACCOUNT, Breaker, retry_service
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.service_gate_table import GateRow, gate_table


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--json", "wants_json", is_flag=True, help="As JSON.")
@click.pass_context
def service(context: click.Context, *, wants_json: bool) -> None:
    """Show which requests to the service are stopped or limited: of all institutions, of one, or of one kind.

    Each is limited to a rate, closed until it is tried again, or stopped by a person. After five failures in a row, workers
    do not list an institution's calls, or send no requests about them. If logins fail, or both for several institutions,
    they send none at all. They try again every 3 seconds, and continue after the first success.
    """
    if context.invoked_subcommand is not None:
        return
    rows = query_redis(gate_table)
    if wants_json:
        say_json([_as_json(row) for row in rows])
    elif not rows:
        say("All requests may go: none are stopped or limited.")
    for row in [] if wants_json else rows:
        say(f"{_name(row.institution_key)}, {row.requests}: {row.state}; {safe(row.words)}")


@service.command()
def retry() -> None:
    """Let workers try again at once, also a refused login. Use this after the cause is repaired."""

    async def change(redis: Redis, keys: Keys) -> list[Breaker]:
        breakers = await retry_service(redis, keys)
        await note_command(redis, keys, AuditEvent.RETRIED)
        return breakers

    breakers = query_redis(change)
    if not breakers:
        say("No requests were stopped. A login that was refused can be tried again now.")
    for breaker in breakers:
        say(f"Tried now: {_name(breaker.institution_key)}: {breaker.words}")


service.add_command(survey)


def _name(institution_key: str) -> str:
    return "all institutions" if institution_key == ACCOUNT else f"institution {safe(institution_key)}"


def _as_json(row: GateRow) -> dict[str, object]:
    return {
        "institution": row.institution_key or None,
        "requests": row.requests,
        "state": row.state,
        "because": row.words,
        "since": row.since.isoformat() if row.since else None,
        "until": row.until.isoformat() if row.until else None,
        "per_second": row.per_s,
    }

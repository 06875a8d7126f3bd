"""``callkeeper outcomes``: the delivery log of outcome webhooks, replays and test messages."""

import asyncio
from datetime import UTC, datetime, timedelta

import click
from redis.asyncio import Redis

from callkeeper.app.commands.calls import find_call
from callkeeper.app.redis_query import Span, note_command, query_redis
from callkeeper.app.terminal import CommandGroup, Failed, Misused, say, say_json, say_table
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.delivery_log import KEPT_ATTEMPTS, Attempt, DeliveryLog, Replays, place_of
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup

POLL_EVERY_S = 0.2
NOBODY_POSTS = "no worker posts outcomes: set CALLKEEPER_OUTCOME_URL and CALLKEEPER_OUTCOME_SECRET for the workers"


@click.group(cls=CommandGroup)
def outcomes() -> None:
    """Show which outcomes were posted, post them again, post a test."""


@outcomes.command()
@click.argument("message_id", required=False)
@click.option("--failed", is_flag=True, help="Only attempts that the receiver did not accept.")
@click.option("--limit", type=click.IntRange(1, KEPT_ATTEMPTS), default=50, show_default=True, help="Attempts at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def log(message_id: str | None, limit: int, *, failed: bool, as_json: bool) -> None:
    """List the last attempts, newest first: all, or those for one MESSAGE_ID."""
    attempts = query_redis(lambda redis, keys: DeliveryLog(redis, keys.outbox).read(message_id=message_id))
    shown = [attempt for attempt in attempts if not (failed and attempt.was_taken)][:limit]
    if as_json:
        say_json(*shown)
        return
    columns = ("at (UTC)", "message id", "attempt", "result", "took", "next (UTC)")
    say_table(columns, map(_cells, shown))


def _cells(attempt: Attempt) -> list[object]:
    return [
        attempt.at,
        attempt.id,
        "replay" if attempt.is_replay else str(attempt.n),
        attempt.result,
        f"{attempt.took_ms} ms",
        attempt.next_at,
    ]


@outcomes.command()
@click.argument("which", required=False, metavar="[MESSAGE_ID | VOICE_ID]")
@click.option(
    "--failed-since", type=Span(), default=None, help="All that failed no longer ago than this: 30m, 24h, 7d."
)
@click.option("--institution", help="Its key; needed only where two institutions have a call of this id.")
def replay(which: str | None, failed_since: timedelta | None, institution: str | None) -> None:
    """Post outcomes again: one by MESSAGE_ID, the undelivered ones of a call, or all that failed since a time.

    A receiver recognises a repetition by its webhook-id. A worker posts them; `callkeeper outcomes log` shows the
    result.
    """
    if (which is None) is (failed_since is None):
        raise click.UsageError("give one MESSAGE_ID or VOICE_ID, or --failed-since")
    if failed_since is not None:
        since = datetime.now(UTC) - failed_since
        count = query_redis(lambda redis, keys: _replay_failed(redis, keys, since))
        say(f"outcomes of {quantity(count, 'call')}: posted again by the next worker that is free")
        return
    query_redis(lambda redis, keys: _replay(redis, keys, str(which), institution))
    say(f"{which}: posted again by the next worker that is free")


async def _refuse_if_nobody_posts(redis: Redis, keys: Keys) -> None:
    """Refuse a request that no worker would carry out."""
    if await DeliveryLog(redis, keys.outbox).receiver() is None:
        raise Misused(NOBODY_POSTS)


async def _replay_failed(redis: Redis, keys: Keys, since: datetime) -> int:
    await _refuse_if_nobody_posts(redis, keys)
    await note_command(redis, keys, AuditEvent.REDELIVERED, detail="replay-failed")
    return await Replays(redis, keys.outbox).failed_since(since)


async def _replay(redis: Redis, keys: Keys, which: str, institution: str | None) -> None:
    queries, replays = Lookup(redis, keys=keys), Replays(redis, keys.outbox)
    place = place_of(which)
    call_id = place[0] if place else await find_call(queries, which, institution)
    if await queries.load(call_id) is None:
        raise Failed(f"nothing is known of {call_id.voice_id}")
    await _refuse_if_nobody_posts(redis, keys)
    at = {"institution": call_id.institution_key, "voice_id": call_id.voice_id}
    await note_command(redis, keys, AuditEvent.REDELIVERED, detail="replay", **at)
    await (replays.one(*place) if place else replays.call(call_id))


@outcomes.command()
@click.option("--wait", "wait_s", type=click.FloatRange(0, 120), default=20.0, help="Seconds to wait for the answer.")
def test(wait_s: float) -> None:
    """Post a test message and show the receiver's answer. Exits with 1 if it did not accept it."""
    attempt = query_redis(lambda redis, keys: _test(redis, keys, wait_s))
    if attempt is None:
        raise Failed(
            f"not posted within {wait_s:g} s: is a worker alive, and does the receiver answer? See callkeeper doctor"
        )
    words = f"{attempt.result} after {attempt.took_ms} ms"
    if not attempt.was_taken:
        raise Failed(f"not accepted: {words}")
    say(f"accepted: {words}")


async def _test(redis: Redis, keys: Keys, wait_s: float) -> Attempt | None:
    log = DeliveryLog(redis, keys.outbox)
    await _refuse_if_nobody_posts(redis, keys)
    name = await Replays(redis, keys.outbox).test()
    for _ in range(int(wait_s / POLL_EVERY_S)):
        found = await log.read(1, message_id=name)
        if found:
            return found[0]
        await asyncio.sleep(POLL_EVERY_S)
    return None

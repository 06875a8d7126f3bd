"""``callkeeper service``: show where requests are stopped, and since when. ``retry`` tries again at once."""

import click
import msgspec
from redis.asyncio import Redis

from callkeeper.redis_query import query_redis
from callkeeper.terminal import safe, say, say_json
from calls.store.breakers import ACCOUNT, Breaker, open_breakers, retry_service
from calls.store.keys import Keys


@click.group(invoke_without_command=True)
@click.option("--json", "wants_json", is_flag=True, help="As JSON.")
@click.pass_context
def service(context: click.Context, *, wants_json: bool) -> None:
    """Show where requests are stopped now: the whole service, or single institutions.

    After five failures in a row, workers do not list an institution's calls, or send no requests about them. If logins
    fail, or both for several institutions, they send none at all. They try again every 3 seconds, and continue after the
    first success.
    """
    if context.invoked_subcommand is not None:
        return

    async def look(redis: "Redis", keys: Keys) -> list[Breaker]:
        return await open_breakers(redis, keys)

    breakers = query_redis(look)
    if wants_json:
        say_json(msgspec.json.encode([_as_json(breaker) for breaker in breakers]))
    elif not breakers:
        say("No requests are stopped.")
    for breaker in [] if wants_json else breakers:
        say(_line(breaker))


@service.command()
def retry() -> None:
    """Let workers try again at once, also a refused login. Use this after the cause is repaired."""

    async def change(redis: "Redis", keys: Keys) -> list[Breaker]:
        return await retry_service(redis, keys)

    breakers = query_redis(change)
    if not breakers:
        say("No requests were stopped. A login that was refused can be tried again now.")
    for breaker in breakers:
        say(f"Tried now: {_line(breaker)}")


def _line(breaker: Breaker) -> str:
    name = "the service" if breaker.institution_key == ACCOUNT else f"institution {safe(breaker.institution_key)}"
    return f"{name}: {breaker.words}"


def _as_json(breaker: Breaker) -> dict[str, object]:
    return {
        "institution": breaker.institution_key or None,
        "endpoints": breaker.scope.kind,
        "because": breaker.why,
        "failures": breaker.failures,
        "since": breaker.since.isoformat() if breaker.since else None,
        "tried_at": breaker.tried_at.isoformat(),
    }

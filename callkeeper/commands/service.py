"""``callkeeper service``: what of the service is left alone, and since when; ``retry`` has it tried at once."""

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
    """Show what workers leave alone: the whole service, or single institutions.

    After five failures in a row an institution is left alone by all workers, and the service where logins or several
    institutions fail. It is tried every 3 seconds; the first success ends that.
    """
    if context.invoked_subcommand is not None:
        return

    async def look(redis: "Redis", keys: Keys) -> list[Breaker]:
        return await open_breakers(redis, keys)

    breakers = query_redis(look)
    if wants_json:
        say_json(msgspec.json.encode([_as_json(breaker) for breaker in breakers]))
    elif not breakers:
        say("The service is asked as usual.")
    for breaker in [] if wants_json else breakers:
        say(_line(breaker))


@service.command()
def retry() -> None:
    """Have workers try at once whatever is left alone, a refused login too: when its cause is repaired."""

    async def change(redis: "Redis", keys: Keys) -> list[Breaker]:
        return await retry_service(redis, keys)

    breakers = query_redis(change)
    if not breakers:
        say("Nothing is left alone; a login that was refused may be tried now.")
    for breaker in breakers:
        say(f"Tried now: {_line(breaker)}")


def _line(breaker: Breaker) -> str:
    name = "the service" if breaker.institution_key == ACCOUNT else f"institution {safe(breaker.institution_key)}"
    return f"{name}: {breaker.words}"


def _as_json(breaker: Breaker) -> dict[str, object]:
    return {
        "institution": breaker.institution_key or None,
        "because": breaker.why,
        "failures": breaker.failures,
        "since": breaker.since.isoformat() if breaker.since else None,
        "tried_at": breaker.tried_at.isoformat(),
    }

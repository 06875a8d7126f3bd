"""``callkeeper pause`` and ``callkeeper resume``: a person stops what is automatic, and lets it go on."""

from collections.abc import Callable
from datetime import UTC, datetime

import click
from redis.asyncio import Redis

from callkeeper.asking import ask_redis
from callkeeper.pause_view import pause_lines
from calls.keys import Keys
from calls.pause import EVERYWHERE, Pause, Pauses, PauseScope
from calls.pausing import Pausing


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Give both commands the same options."""
    for option in (
        click.option(
            "--operator", required=True, help="Who asks for it; written into the trail of every call it holds."
        ),
        click.option("--because", required=True, help="Why; written there too."),
        click.option("--institution", help="Only this institution's calls. Default: all."),
        click.option("--all", "scope", flag_value=PauseScope.ALL.value, help="Assigns and automatic checks as well."),
        click.option("--effects", "scope", flag_value=PauseScope.EFFECTS.value, help="Enrolls and rejects only."),
    ):
        command = option(command)
    return command


@click.command()
@_options
def pause(scope: str | None, institution: str | None, because: str, operator: str) -> None:
    """Stop enrolls and rejects (--effects, the default), or everything automatic but reading (--all).

    No effect is sent from the moment this returns. It lasts until `callkeeper resume`, over restarts too. What the rules ask
    for meanwhile is written down as held, and decided again after it.
    """
    asked = Pause(
        scope=PauseScope(scope or PauseScope.EFFECTS),
        operator=_said(operator, "--operator"),
        because=_said(because, "--because"),
        at=datetime.now(UTC),
    )

    async def change(redis: "Redis", keys: Keys) -> Pauses:
        pausing = Pausing(redis, keys=keys)
        await pausing.pause(institution, asked)
        return await pausing.pauses()

    _show(ask_redis(change))


@click.command()
@_options
def resume(scope: str | None, institution: str | None, because: str, operator: str) -> None:
    """Lift a pause, of one institution or the one over all. What it held is decided again, from what is true then.

    With --effects only a pause of effects is lifted: one that was made with --all stays.
    """
    operator, because = _said(operator, "--operator"), _said(because, "--because")

    async def change(redis: "Redis", keys: Keys) -> Pauses:
        pausing = Pausing(redis, keys=keys)
        known = (await pausing.pauses()).by_institution.get(institution or EVERYWHERE)
        if known is None:
            raise click.ClickException(f"there is no pause of {institution or 'all institutions'}")
        if scope == PauseScope.EFFECTS and known.scope is PauseScope.ALL:
            raise click.ClickException(f"this pause is --all (by {known.operator}): lift it with --all")
        await pausing.resume(institution, operator=operator, because=because, at=datetime.now(UTC))
        return await pausing.pauses()

    _show(ask_redis(change))


def _said(text: str, option: str) -> str:
    """Return a text on one line that says something.

    Raises:
        click.UsageError: It says nothing.
    """
    said = " ".join(text.split())[:200]
    if not said:
        raise click.UsageError(f"{option} must say something: it is what the trail will show")
    return said


def _show(pauses: Pauses) -> None:
    """Say what is paused now."""
    for line in pause_lines(pauses) or ["nothing is paused"]:
        click.echo(line)

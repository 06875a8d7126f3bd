"""``callkeeper pause``, ``resume`` and ``pauses``: a person stops what is automatic, lets it go on, reads who did."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import click
import msgspec
from redis.asyncio import Redis

from callkeeper.pause_view import current_pauses, held_lines, history_lines, pause_lines, place, resumed_lines
from callkeeper.redis_query import query_redis
from callkeeper.terminal import Misused, say, say_json
from calls.keys import Keys
from calls.known import KnownInstitutions, shown
from calls.pause import EVERYWHERE, Pause, Pauses, PauseScope
from calls.pausing import PastPause, Pausing, past_pauses, why_not_resumed
from calls.queries import Queries
from reseller.keys import is_institution_key

Command = Callable[..., None]

_ADVICE: Final = (
    "Nothing was paused. --force takes a key that callkeeper cannot know yet; "
    "to pause all institutions, leave --institution out."
)


def _who_and_why(command: Command) -> Command:
    """Give a command the options that say who changes something, and why."""
    because = click.option("--because", required=True, help="Why. It is kept in the history of pauses.")
    operator = click.option(
        "--operator", required=True, help="Your core username. It is kept in the history of pauses."
    )
    return because(operator(command))


@click.command()
@_who_and_why
@click.option(
    "--institution",
    "institutions",
    metavar="KEY",
    multiple=True,
    help="Only this institution's calls; may be given again. Default: all institutions.",
)
@click.option("--all", "wants_all", is_flag=True, help="Assigns and automatic checks as well.")
@click.option("--effects", "wants_effects", is_flag=True, help="Enrolls and rejects only: the default.")
@click.option("--force", is_flag=True, help="Take an institution that callkeeper cannot know yet.")
def pause(
    institutions: tuple[str, ...],
    because: str,
    operator: str,
    *,
    wants_all: bool,
    wants_effects: bool,
    force: bool,
) -> None:
    """Stop enrolls and rejects (--effects, the default), or everything automatic but reading (--all).

    No effect is sent from the moment this returns. The pause lasts until `callkeeper resume`, over restarts too. What the
    rules ask for meanwhile is written down as held, and decided again after it.

    Exits with 2 and writes nothing if there is no such institution.
    """
    if wants_all and wants_effects:
        raise click.UsageError("--all and --effects exclude each other: --all stops enrolls and rejects too")
    asked = Pause(
        scope=PauseScope.ALL if wants_all else PauseScope.EFFECTS,
        operator=_said(operator, "--operator"),
        because=_said(because, "--because"),
        at=datetime.now(UTC),
    )
    places: Sequence[str | None] = tuple(dict.fromkeys(institutions)) or (None,)

    async def change(redis: "Redis", keys: Keys) -> tuple[KnownInstitutions, Pauses]:
        pausing, known = Pausing(redis, keys=keys), await Queries(redis, keys=keys).institutions()
        _check(institutions, known, force=force)
        if not wants_effects:
            _refuse_to_weaken(places, asked.scope, await pausing.pauses())
        for each in places:
            await pausing.pause(each, asked)
        return known, await pausing.pauses()

    known, pauses = query_redis(change)
    say(*held_lines(places, asked.scope, known))
    _show(pauses, known)


@click.command()
@_who_and_why
@click.option(
    "--institution",
    "institutions",
    metavar="KEY",
    multiple=True,
    help="Lift the pause of this institution; may be given again. Default: lift the pause of all institutions.",
)
@click.option("--all", "_wants_all", is_flag=True, help="Lift the pause whatever it stops: the default.")
@click.option("--effects", "wants_effects", is_flag=True, help="Lift it only if it stops enrolls and rejects alone.")
def resume(
    institutions: tuple[str, ...], because: str, operator: str, *, _wants_all: bool, wants_effects: bool
) -> None:
    """Lift a pause: of one institution, or the one that was made for all.

    What it held is decided again, from what is true then. A pause for all and one of an institution are lifted separately:
    `callkeeper pauses` shows which there are. Exits with 2 if there is no such pause.
    """
    operator, because = _said(operator, "--operator"), _said(because, "--because")
    places: Sequence[str | None] = tuple(dict.fromkeys(institutions)) or (None,)

    async def change(redis: "Redis", keys: Keys) -> tuple[Pauses, KnownInstitutions]:
        pausing, known = Pausing(redis, keys=keys), await Queries(redis, keys=keys).institutions()
        pauses = await pausing.pauses()
        problems = [problem for each in places if (problem := why_not_resumed(each, pauses, known))]
        if problems:
            raise Misused(*problems)
        for each in places:
            found = pauses.by_institution[EVERYWHERE if each is None else each]
            if wants_effects and found.scope is PauseScope.ALL:
                raise click.ClickException(f"this pause is --all (by {found.operator}): lift it without --effects")
        for each in places:
            await pausing.resume(each, operator=operator, because=because, at=datetime.now(UTC))
        return await pausing.pauses(), known

    left, known = query_redis(change)
    say(*resumed_lines(places, left, known))
    _show(left, known)


@click.command()
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Pauses at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: what is paused `now`, then the history.")
def pauses(limit: int, *, as_json: bool) -> None:
    """Show what is paused now, and the history: who paused what, when and why, and who resumed it.

    The history holds the last 200 pauses and resumptions.
    """

    async def read(redis: "Redis", keys: Keys) -> tuple[Pauses, KnownInstitutions, list[PastPause]]:
        pausing, known = Pausing(redis, keys=keys), await Queries(redis, keys=keys).institutions()
        return await pausing.pauses(), known, past_pauses(await pausing.history())[:limit]

    now, known, past = query_redis(read)
    if as_json:
        for row in [*current_pauses(now, known), *past]:
            say_json(msgspec.json.encode(row))
        return
    _show(now, known)
    say(*["", "history, newest first:", *history_lines(past)] if past else [])


def _check(institutions: Sequence[str], known: KnownInstitutions, *, force: bool) -> None:
    """Refuse institutions that do not exist.

    Raises:
        Misused: One is unknown and not forced, or no institution can have such a key.
    """
    problems = []
    for key in institutions:
        problem = known.problem(key)
        if problem is not None and force:
            problem = _why_not_forced(key, known, problem)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise Misused(*problems, _ADVICE)


def _why_not_forced(key: str, known: KnownInstitutions, problem: str) -> str | None:
    """Return why --force does not take a key either; None if it does."""
    if not is_institution_key(key) or key == EVERYWHERE:
        return f"{shown(key)} cannot be the key of an institution"
    if known.is_known_in_other_letters(key):
        return f"{problem} --force does not take a key that differs from a known one in upper and lower case only."
    return None


def _refuse_to_weaken(places: Sequence[str | None], scope: PauseScope, pauses: Pauses) -> None:
    """Refuse to replace a pause of everything by one of effects, unless --effects says that this is meant.

    Raises:
        click.ClickException: Assigns and automatic checks would go on.
    """
    for each in places:
        found = pauses.more_than(each, scope)
        if found is not None:
            raise click.ClickException(
                f"{place(each or EVERYWHERE)}: {found.scope.words} is paused there already ({found.reason}). "
                "Nothing was changed. "
                "--effects would let assigns and automatic checks go on."
            )


def _said(text: str, option: str) -> str:
    """Return a text on one line that says something.

    Raises:
        click.UsageError: It says nothing.
    """
    said = " ".join(text.split())[:200]
    if not said:
        raise click.UsageError(f"{option} must say something: it is what the history of pauses shows")
    return said


def _show(pauses: Pauses, known: KnownInstitutions) -> None:
    """Say what is paused now, and which of it holds nothing."""
    lines = pause_lines(pauses, known)
    say("paused now:" if lines else "nothing is paused")
    for line, problem in lines:
        say(f"  {line}", *[f"    holds no call now: {problem}"] if problem else [])

"""``callkeeper pause``, ``resume`` and ``pauses``: a person stops automatic actions, resumes them, and lists pauses."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import click
from msgspec.structs import asdict
from redis.asyncio import Redis

from callkeeper.app.redis_query import FORCE_HELP, note_command, query_redis
from callkeeper.app.terminal import Failed, say, say_json
from callkeeper.calls.institutions import KnownInstitutions, shown
from callkeeper.calls.pause import EVERYWHERE, Pause, Pauses, PauseScope, why_not_resumed
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.pausing import PastPause, Pausing, past_pauses
from callkeeper.calls.store.queries import Queries
from callkeeper.service.endpoints import is_institution_key

Command = Callable[..., None]

_ADVICE: Final = (
    "Nothing was paused. --force takes a key that callkeeper cannot know yet; "
    "to pause all institutions, leave --institution out."
)

_NO_WORKER: Final = (
    "No worker is alive in this Redis under this prefix. If workers run, their REDIS_URL or CALLKEEPER_REDIS_PREFIX is "
    "another one, and they are not paused."
)

_NEEDED: Final = "--reason WHY --operator NAME [--institution KEY]... [OPTIONS]"
"""The usage line, which is printed beside an error: nobody has to look it up in a hurry."""


def _who_and_why(command: Command) -> Command:
    """Give a command the options --operator and --reason."""
    reason = click.option(
        "--reason", required=True, help="Why. It is kept in the history of pauses and in archived calls: name nobody."
    )
    operator = click.option(
        "--operator", required=True, help="Your core username. It is kept in the history of pauses."
    )
    return reason(operator(command))


@click.command(options_metavar=_NEEDED)
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
@click.option("--force", is_flag=True, help=FORCE_HELP)
def pause(
    institutions: tuple[str, ...],
    reason: str,
    operator: str,
    *,
    wants_all: bool,
    wants_effects: bool,
    force: bool,
) -> None:
    """Stop enrolls and rejects (--effects, the default), or everything automatic but reading (--all).

    After this returns, no effect is sent. The pause lasts until `callkeeper resume`, also over restarts. Trails record
    what the rules ask for meanwhile as held. After the pause, these calls are decided again.

    Exits with 1 and writes nothing if there is no such institution.
    """
    if wants_all and wants_effects:
        raise click.UsageError("--all and --effects exclude each other: --all stops enrolls and rejects too")
    asked = Pause(
        scope=PauseScope.ALL if wants_all else PauseScope.EFFECTS,
        operator=_one_line(operator, "--operator"),
        because=_one_line(reason, "--reason"),
        at=datetime.now(UTC),
    )
    places: Sequence[str | None] = tuple(dict.fromkeys(institutions)) or (None,)

    async def change(redis: Redis, keys: Keys) -> tuple[KnownInstitutions, Pauses, bool]:
        from callkeeper.calls.metrics.snapshot import FigureReader  # noqa: PLC0415  (it imports RQ)

        pausing, known = Pausing(redis, keys=keys), await Queries(redis, keys=keys).institutions()
        _check(institutions, known, force=force)
        if not wants_effects:
            _refuse_to_weaken(places, asked.scope, await pausing.pauses())
        for each in places:
            await pausing.pause(each, asked)
            place_key = EVERYWHERE if each is None else each
            await note_command(
                redis, keys, AuditEvent.PAUSED, operator=asked.operator, institution=place_key, detail=asked.scope
            )
        processes = await FigureReader(redis, keys=keys).processes()
        return known, await pausing.pauses(), any(process.kind == "worker" for process in processes)

    known, pauses, is_obeyed = query_redis(change)
    say(*held_lines(places, asked.scope, known))
    _show(pauses, known)
    if not is_obeyed:
        say(_NO_WORKER, err=True)


@click.command(options_metavar=_NEEDED)
@_who_and_why
@click.option(
    "--institution",
    "institutions",
    metavar="KEY",
    multiple=True,
    help="Lift the pause of this institution; may be given again. Default: lift the pause of all institutions.",
)
def resume(institutions: tuple[str, ...], reason: str, operator: str) -> None:
    """Lift a pause: of one institution, or the one that was made for all.

    The calls that it held are decided again, with the facts of that moment. A pause for all and one of an institution
    are lifted separately; `callkeeper pauses` shows them. Exits with 1 if there is no such pause.
    """
    operator, because = _one_line(operator, "--operator"), _one_line(reason, "--reason")
    places: Sequence[str | None] = tuple(dict.fromkeys(institutions)) or (None,)

    async def change(redis: Redis, keys: Keys) -> tuple[Pauses, KnownInstitutions]:
        pausing, known = Pausing(redis, keys=keys), await Queries(redis, keys=keys).institutions()
        pauses = await pausing.pauses()
        problems = [problem for each in places if (problem := why_not_resumed(each, pauses, known))]
        if problems:
            raise Failed(*problems)
        for each in places:
            await pausing.resume(each, operator=operator, because=because, at=datetime.now(UTC))
            place_key = EVERYWHERE if each is None else each
            await note_command(redis, keys, AuditEvent.RESUMED, operator=operator, institution=place_key)
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

    async def read(redis: Redis, keys: Keys) -> tuple[Pauses, KnownInstitutions, list[PastPause]]:
        pausing, known = Pausing(redis, keys=keys), await Queries(redis, keys=keys).institutions()
        return await pausing.pauses(), known, past_pauses(await pausing.history())[:limit]

    now, known, past = query_redis(read)
    if as_json:
        say_json(*current_pauses(now, known), *past)
        return
    _show(now, known)
    say(*["", "history, newest first:", *history_lines(past)] if past else [])


def _check(institutions: Sequence[str], known: KnownInstitutions, *, force: bool) -> None:
    """Refuse institutions that do not exist, unless they are forced and could exist."""
    problems = []
    for key in institutions:
        problem = known.problem(key)
        if problem is not None and force:
            problem = _why_not_forced(key, known, problem)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise Failed(*problems, _ADVICE)


def _why_not_forced(key: str, known: KnownInstitutions, problem: str) -> str | None:
    """Return why --force does not accept a key either, or None if it does."""
    if not is_institution_key(key) or key == EVERYWHERE:
        return f"{shown(key)} cannot be the key of an institution"
    if known.is_known_in_other_letters(key):
        return f"{problem} --force does not take a key that differs from a known one in upper and lower case only."
    return None


def _refuse_to_weaken(places: Sequence[str | None], scope: PauseScope, pauses: Pauses) -> None:
    """Refuse to replace a pause of everything by one of effects, unless --effects was passed."""
    for each in places:
        found = pauses.more_than(each, scope)
        if found is not None:
            raise click.ClickException(
                f"{place(each or EVERYWHERE)}: {found.scope.words} is paused there already ({found.reason}). "
                "Nothing was changed. "
                "--effects would let assigns and automatic checks continue."
            )


def _one_line(text: str, option: str) -> str:
    """Return a text on one line; refuse a blank one."""
    line = " ".join(text.split())[:200]
    if not line:
        raise click.UsageError(f"{option} must not be blank: the history of pauses shows it")
    return line


def _show(pauses: Pauses, known: KnownInstitutions) -> None:
    """Print the pauses in force, and which of them stop nothing."""
    lines = pause_lines(pauses, known)
    say("paused now:" if lines else "nothing is paused")
    for line, problem in lines:
        say(f"  {line}", *[f"    holds no call now: {problem}"] if problem else [])


def place(key: str) -> str:
    """Return a pause's institution in words."""
    return "all institutions" if key == EVERYWHERE else key


def current_pauses(pauses: Pauses, known: KnownInstitutions) -> list[dict[str, object]]:
    """Return every pause in force for JSON. ``now`` tells it from the history; ``problem``: why it stops no call."""
    return [
        {"now": {"institution": key, **asdict(pause), "problem": _problem(key, known)}}
        for key, pause in sorted(pauses.by_institution.items())
    ]


def pause_lines(pauses: Pauses, known: KnownInstitutions) -> list[tuple[str, str]]:
    """Return a line for each pause, and the problem of its key, or ''. A pause with a problem holds no call."""
    return [
        (
            f"{place(key)}: {pause.words} (since {_when(pause.at)})",
            _problem(key, known) or "",
        )
        for key, pause in sorted(pauses.by_institution.items())
    ]


def held_lines(paused: Sequence[str | None], scope: PauseScope, known: KnownInstitutions) -> list[str]:
    """Return lines with the new pauses: each institution by name and key, with its number of live calls. None is all."""
    keys = sorted(known.names) if None in paused else sorted({key for key in paused if key is not None})
    whose = "all institutions" if None in paused else quantity(len(keys), "institution")
    live = sum(known.live.get(key, 0) for key in keys)
    lines = [f"Paused: {scope.words} of {whose}, {quantity(live, 'live call')}"]
    return [*lines, *(f"  {_held(key, known)}" for key in keys)]


def resumed_lines(resumed: Sequence[str | None], left: Pauses, known: KnownInstitutions) -> list[str]:
    """Return lines with the lifted pauses, and where the pause of all institutions (``left``) is still in force."""
    still = "; the pause of all institutions is still in force" if EVERYWHERE in left.by_institution else ""
    return [f"resumed: {place(EVERYWHERE) if key is None else known.called(key) + still}" for key in resumed]


def history_lines(pauses: Sequence[PastPause]) -> list[str]:
    """Return lines with the history, newest first: when, where, how much, by whom and why, and what ended it."""
    return [line for past in pauses for line in (_begun(past), f"    {_ended(past)}")]


def _problem(key: str, known: KnownInstitutions) -> str | None:
    return None if key == EVERYWHERE else known.problem(key)


def _held(key: str, known: KnownInstitutions) -> str:
    if key not in known.names:
        if known.is_list_stored:
            return f"{key}: holds no call now: {known.problem(key)}"
        return f"{key}: not known yet; its calls are paused once there are any"
    return f"{known.called(key)}: {quantity(known.live.get(key, 0), 'live call')}"


def _begun(past: PastPause) -> str:
    change = past.begun
    scope = "" if change.scope is None else change.scope.words
    return f"{_when(change.at)}  {place(change.institution)}: {scope}, by {change.operator}: {change.because}"


def _ended(past: PastPause) -> str:
    end = past.ended
    if end is None:
        return "in force"
    how = "resumed" if end.scope is None else f"replaced by a pause of {end.scope.words}"
    return f"until {_when(end.at)}: {how}, by {end.operator}: {end.because}"


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"

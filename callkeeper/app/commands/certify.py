"""``callkeeper service certify``: the checklist of the first day with a service, on one supervised test call.

docs/go-live.md has the chapter that it follows. It reads what callkeeper has kept, and sends nothing to anybody.
"""

import os
import sys
from pathlib import Path
from typing import Final

import click
from redis.asyncio import Redis

from callkeeper.app.certification.evidence import Installation, read_installation
from callkeeper.app.certification.report import as_json, conclusion, markdown
from callkeeper.app.certification.supervision import CallPlan, Supervision
from callkeeper.app.certification.verdicts import PromiseState, PromiseVerdict, all_hold, verdicts
from callkeeper.app.redis_query import query_redis
from callkeeper.app.terminal import Failed, Misused, say, terminal_console
from callkeeper.calls.item_names import CallId
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Queries

_COLOURS: Final = {PromiseState.HOLDS: "green", PromiseState.NOT_SEEN: "yellow", PromiseState.DOES_NOT_HOLD: "bold red"}


class CannotRun(Failed):
    """The checklist cannot be gone through; the message says why, and what to do. Nothing was written."""

    exit_code = click.UsageError.exit_code


@click.command()
@click.option("--institution", metavar="KEY", help="Whose test call it is; needed if there are several institutions.")
@click.option("--voice-id", metavar="ID", help="Certify this call, live or settled, instead of the next new one.")
@click.option("--yes", is_flag=True, help="Ask nothing: take the next new call, and wait for its end.")
@click.option("--spoke", is_flag=True, help="The caller of this call speaks: do not judge the silence.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(1, 3600),
    default=300.0,
    show_default=True,
    help="Seconds to wait for the call, and again for its end.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, resolve_path=True),
    default=Path("certificate"),
    show_default=True,
    metavar="NAME",
    help="Write NAME.md and NAME.json.",
)
def certify(
    *, institution: str | None, voice_id: str | None, yes: bool, spoke: bool, wait_s: float, output: Path
) -> None:
    """Supervise a test call in watch-only mode, and write what it showed of each promise.

    Follows the chapter "The first day with the real service" of docs/go-live.md. It reads what callkeeper has recorded; it
    asks the service nothing and sends nothing. The reports have no personal data. Exits with 0 if every required
    promise holds, with 1 if one does not hold or was not seen, with 2 if it cannot be run.
    """
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise CannotRun(f"the report cannot be written in {output.parent}: choose another --output")
    try:
        call_id = query_redis(lambda redis, keys: _chosen(redis, keys, institution, voice_id))
        key = call_id if isinstance(call_id, str) else call_id.institution_key
        installation = query_redis(lambda redis, keys: read_installation(redis, keys, key))
        _refuse_unless_ready(installation, key)
        _tell_mode(installation, key)
        plan = CallPlan(
            institution_key=key,
            asks=not yes and voice_id is None,
            call_id=None if isinstance(call_id, str) else call_id,
            wait_s=wait_s,
            was_silent=not spoke,
        )
        evidence = Supervision(plan).run()
    except (click.Abort, KeyboardInterrupt):
        raise CannotRun("stopped, and nothing was written. Without a terminal, give --yes or --voice-id ID") from None
    except Failed as error:
        raise CannotRun(*error.message.splitlines()) from None
    found = verdicts(evidence)
    _print(found)
    paths = (output.with_name(f"{output.name}.md"), output.with_name(f"{output.name}.json"))
    try:
        paths[0].write_text(markdown(evidence, found), encoding="utf-8")
        paths[1].write_bytes(as_json(evidence, found))
    except OSError as error:
        raise CannotRun(
            f"{paths[0]} and its JSON cannot be written: {error.strerror}; choose another --output"
        ) from None
    say("", conclusion(found), f"Written: {paths[0]} and {paths[1]}")
    sys.exit(0 if all_hold(found) else 1)


async def _chosen(redis: Redis, keys: Keys, institution: str | None, voice_id: str | None) -> CallId | str:
    """Return the call to certify, or the institution whose next call it is.

    Raises:
        CannotRun: There is none.
        Misused: It must be named, or is named wrongly.
    """
    queries = Queries(redis, keys=keys)
    known = await queries.institutions()
    if institution is not None and (problem := known.problem(institution)):
        raise Misused(problem)
    if voice_id is not None:
        calls = [each for each in await queries.find(voice_id) if institution in {None, each.institution_key}]
        if not calls:
            raise CannotRun(f"nothing is known of a call {voice_id!r}: is the id right, and is a worker alive?")
        if len(calls) > 1:
            keys_of = ", ".join(sorted(each.institution_key for each in calls))
            raise Misused(f"several institutions have a call of this id: {keys_of}; give --institution")
        return calls[0]
    if institution is not None:
        return institution
    if not known.names:
        raise CannotRun("callkeeper knows no institution yet: start a worker, and run callkeeper doctor")
    if len(known.names) > 1:
        raise Misused(f"give --institution: one of {', '.join(sorted(known.names))}")
    return next(iter(known.names))


def _refuse_unless_ready(installation: Installation, institution_key: str) -> None:
    """Refuse a test call that nobody would handle, or that could enroll or reject its caller."""
    if not installation.workers:
        raise CannotRun("no worker is alive: start callkeeper worker, and run callkeeper doctor")
    if installation.unknown:
        raise CannotRun(
            f"what the rules {', '.join(installation.unknown)} of a worker do is not known here: "
            "restart the workers with this release"
        )
    if installation.sending:
        names = ", ".join(repr(name) for name in installation.sending)
        raise CannotRun(
            f"NOT in watch-only mode: at {institution_key} these rules are live, and enroll or reject: {names}.",
            "A test call could change its caller's voice. Start the workers with CALLKEEPER_RULES=watch-only, or give",
            'these rules stage = "shadow" for this institution. Then run this again.',
        )


def _tell_mode(installation: Installation, institution_key: str) -> None:
    say(f"Watch-only mode: no live rule enrolls or rejects at {institution_key}.")
    if installation.assigns:
        say("But [assign] automatic is on: workers will assign the caller by themselves.")
    if not installation.webs:
        say("No web process is alive: pushes cannot arrive. Start callkeeper web.")


def _print(found: tuple[PromiseVerdict, ...]) -> None:
    """Print the verdicts, each with what to do about it."""
    console = terminal_console(soft_wrap=True)
    console.print()
    for verdict in found:
        console.print(f"{verdict.state:<14}", style=_COLOURS[verdict.state], end="")
        console.print(f" {verdict.promise}: {verdict.evidence}")
        if verdict.remedy and not verdict.is_good:
            console.print(f"               -> {verdict.remedy}")

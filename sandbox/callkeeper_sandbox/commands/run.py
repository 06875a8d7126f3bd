"""``callkeeper run``: everything in one terminal."""

import shlex
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import click
import httpx
from redis.exceptions import RedisError
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from callkeeper.app.process import take_foreground
from callkeeper.app.terminal import Failed, Misset, shown, terminal_console
from callkeeper.calls.quantity import quantity
from callkeeper.service.network_failure import network_failure
from callkeeper_sandbox.demo.comparison import SETTLES_WITHIN_S, Audit, Comparison, Fate, Picture
from callkeeper_sandbox.demo.demonstration import Demo, demonstration
from callkeeper_sandbox.demo.embedded_redis import DataInUse, EmbeddedRedisFailed
from callkeeper_sandbox.demo.fleet import Fleet, FleetFailed
from callkeeper_sandbox.demo.given_settings import GivenSettings, SettingsRefused

_REASONS = {
    "authenticated": "green",
    "enrolled": "green",
    "rejected": "red",
    "red": "red",
    "undecided": "yellow",
    "unassigned": "yellow",
    "lost": "yellow",
    "unresolved": "red",
}


def addresses(demo: Demo) -> Text:
    """Return the addresses and logins. Lines are not wrapped, so that they can be copied whole."""
    activate = _shown(Path(sys.prefix) / "bin" / "activate")
    curl = f'curl -H "Authorization: Bearer {demo.desk_token}" "{demo.web_url}/desk/calls?limit=2"'
    lines = {
        "board": f"{demo.web_url}/board  (jobs at /rq, figures at /metrics)",
        "login": demo.admin,
        "sandbox": f"{demo.service_url}/  (start calls, see pushes, send samples)",
        "desk token": demo.desk_token,
        "desk API": curl,
        **_outcomes(demo),
        "redis": demo.redis_url,
        "commands": f". {activate}; . {_shown(demo.environ_file)}; callkeeper calls list",
    }
    texts = (Text.assemble(shown(f"{name:<12}", "bold"), shown(value)) for name, value in lines.items())
    return Text.assemble("\n").join(texts)


def _outcomes(demo: Demo) -> dict[str, str]:
    """Return where outcomes are posted and where their key is, if they are posted."""
    url = demo.environ.get("CALLKEEPER_OUTCOME_URL")
    key = f"signed with CALLKEEPER_OUTCOME_SECRET in {_shown(demo.environ_file)}"
    return {"outcomes": f"{url}  ({key})"} if url else {}


def _shown(path: Path) -> str:
    """Return a path relative to this folder, quoted for the shell. It has a slash, which ``.`` needs to find a file."""
    here = Path.cwd()
    shown_path = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return shlex.quote(shown_path if "/" in shown_path else f"./{shown_path}")


def picture_panel(picture: Picture, seconds: float) -> RenderableType:
    """Return the live display: our calls, the sandbox's counts, and broken promises."""
    tables = Table.grid(padding=(0, 4))
    tables.add_row(_ours(picture), _theirs(picture))
    faults = picture.faults()
    verdict = shown("; ".join(faults), "bold red") if faults else shown("no promise broken", "green")
    return Group(tables, verdict, shown(f"running for {seconds:.0f} s; Ctrl-C stops everything", "dim"))


def _ours(picture: Picture) -> Table:
    table = Table(title="callkeeper", title_justify="left", show_header=False, box=None)
    table.add_row("live", str(picture.live))
    for reason, colour in _REASONS.items():
        if picture.reasons[reason]:
            table.add_row(shown(reason, colour), str(picture.reasons[reason]))
    table.add_row("checks counted", str(picture.checks_used))
    table.add_row("need a person", str(picture.attention))
    return table


def _theirs(picture: Picture) -> Table:
    counts, pushes = picture.requests, picture.service["pushes"]
    table = Table(title="what the sandbox counted", title_justify="left", show_header=False, box=None)
    rows = {
        "calls": f"{picture.service['calls']} ({picture.service['live']} live)",
        "pushes accepted": f"{pushes['accepted']} of {pushes['sent']} sent, {pushes['lost']} lost on purpose",
        "listings": str(counts.get("queue", 0)),
        "assigns": str(counts.get("assign", 0)),
        "checks": f"{counts.get('check', 0)} (most for one call: {picture.service['most_checks_arrived']} of 20)",
        "reads": str(counts.get("read", 0)),
        "enrolls": str(counts.get("enroll", 0)),
        "rejects": str(counts.get("reject_voice", 0)),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


_FATES = {
    Fate.LIVE: "{} live",
    Fate.SETTLED: "{} settled",
    Fate.SETTLING: f"{{}} ended and still being settled (within {SETTLES_WITHIN_S:.0f} s)",
    Fate.OVERDUE: "{} overdue",
    Fate.IGNORED: "{} from ignored numbers, which the service never lists",
    Fate.TOO_SHORT: "{} too short to be found",
    Fate.EARLIER: "{} ended before this run without a record",
}
_ALWAYS_SHOWN = {Fate.LIVE, Fate.SETTLED}


def summary_lines(audit: Audit) -> list[str]:
    """Return the closing summary: what happened to the sandbox's calls, and whether all promises were kept."""
    service, counts = audit.service, audit.requests
    fates = [
        text.format(audit.fates[each]) for each, text in _FATES.items() if audit.fates[each] or each in _ALWAYS_SHOWN
    ]
    reasons = [f"{count} {reason}" for reason, count in audit.reasons.most_common()]
    faults = audit.faults()
    kept = (
        f"no ended call waits longer than {SETTLES_WITHIN_S:.0f} s to be settled,"
        " no call used more than 20 checks, no enroll or reject was sent twice"
    )
    return [
        f"The sandbox made {quantity(audit.fates.total(), 'call')}: {', '.join(fates)}.",
        (
            f"Requests: {quantity(counts.get('assign', 0), 'assign')}, {quantity(counts.get('check', 0), 'check')}"
            f" (at most {service['most_checks_arrived']} for one call, 20 are allowed),"
            f" {quantity(counts.get('enroll', 0), 'enroll')}, {quantity(counts.get('reject_voice', 0), 'reject')}."
        ),
        f"Settled as: {', '.join(reasons) or 'none yet'}.",
        f"Audit failed: {'; '.join(faults)}." if faults else f"Audit passed: {kept}.",
    ]


_POLL_EVERY_S = 0.5


class _Stopped(Exception):
    """The run was asked to stop while its processes started."""


@click.command()
@click.option(
    "--data",
    default=Path("data"),
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    show_default=True,
    help="Folder of all data and logs; a second run continues with it.",
)
@click.option("--workers", default=2, type=click.IntRange(1, 16), show_default=True, help="Number of worker processes.")
@click.option("--seed", default=1, show_default=True, help="Seed of the simulated calls.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port of the web process. Default: a free one.")
@click.option(
    "-e",
    "--set",
    "lines",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of web and workers, such as CALLKEEPER_OUTCOME_URL=http://localhost:9001/. May be repeated.",
)
@click.option(
    "--env-file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path, resolve_path=True),
    help="A file with such settings, one in each line. May be repeated.",
)
@click.option("--seconds", type=float, default=None, help="Stop after so many seconds. Default: at Ctrl-C.")
def run(
    data: Path,
    workers: int,
    seed: int,
    port: int,
    lines: tuple[str, ...],
    files: tuple[Path, ...],
    seconds: float | None,
) -> None:
    """Run Redis, a stand-in for the service, web, workers and simulated calls; show what happens.

    Everything listens on this machine only, on free ports. A second run continues with the data of the first. Settings
    of docs/configuration.md can be given: a receiver of outcomes, origins of pages, an identity provider, a rules file,
    an archive. What ends is started again, as a platform would. Exits with 1 if a promise was broken, or if a process
    does not run at the end.
    """
    try:
        given = GivenSettings.of(files, lines, port=port)
    except (SettingsRefused, UnicodeDecodeError) as error:
        raise Misset(*str(error).splitlines()) from error
    take_foreground()
    stop = _stop_event()
    console = terminal_console()
    console.print("starting Redis, the sandbox, web and workers ...")
    ended: list[str] = []

    def leave_if_asked() -> None:
        if stop.is_set():
            console.print("Stopping.")
            raise _Stopped

    fleet = Fleet(data / "logs", leave_if_asked)
    try:
        with demonstration(data, workers=workers, seed=seed, archive=True, given=given, fleet=fleet) as demo:
            try:
                with Comparison(demo.redis_url, demo.service_url) as comparison:
                    _show(console, demo, comparison, stop, seconds)
                    console.print("Stopping.")
                    audit = comparison.audit()
            finally:
                ended = demo.ended()
            took_s = demo.fleet.stop()
    except _Stopped:
        console.print("All processes stopped. They had not all started, so there is nothing to audit.", soft_wrap=True)
        return
    except DataInUse as error:
        raise Failed(
            f"{error}. Is another `make run` running? Stop it first, or use another folder:"
            ' make run ARGS="--data another-folder"'
        ) from error
    except (FleetFailed, EmbeddedRedisFailed) as error:
        raise Failed(*str(error).splitlines()) from error
    except (RedisError, httpx.HTTPError) as error:
        part = ", ".join(ended) or ("Redis" if isinstance(error, RedisError) else "the sandbox")
        why = network_failure(error)
        raise Failed(f"a part of the demonstration does not answer: {part} ({why}). See {data / 'logs'}") from error
    except OSError as error:
        raise Failed(f"cannot use {error.filename or data}: {error.strerror}") from error
    for line in summary_lines(audit):
        console.print(line, soft_wrap=True)
    console.print(f"All processes stopped within {max(took_s.values()):.1f} s. Logs: {data / 'logs'}", soft_wrap=True)
    if ended:
        console.print(f"Not running at the end: {', '.join(ended)}", style="bold red")
    if ended or audit.faults():
        sys.exit(1)


def _stop_event() -> threading.Event:
    """Return the event that Ctrl-C, SIGTERM and a closed terminal set. The processes are then stopped in order."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _show(console: Console, demo: Demo, comparison: Comparison, stop: threading.Event, seconds: float | None) -> None:
    """Print the addresses, then show the live display on a terminal, until stopped or until the sandbox ends."""
    started_s = time.monotonic()

    def goes_on() -> bool:
        is_in_time = seconds is None or time.monotonic() < started_s + seconds
        for name in demo.revive():
            console.print(f"{name} had ended and was started again.", style="yellow")
        return is_in_time and not stop.is_set() and "sandbox" not in demo.ended()

    console.print(addresses(demo), soft_wrap=True)
    if not console.is_terminal:
        while goes_on():
            stop.wait(_POLL_EVERY_S)
        return
    console.print()
    with Live(console=console, auto_refresh=False, screen=False) as live:
        while goes_on() and sys.stdout.isatty():  # false once the window is closed
            with suppress(RedisError):  # it is started again
                live.update(picture_panel(comparison.snapshot(), time.monotonic() - started_s), refresh=True)
            stop.wait(_POLL_EVERY_S)

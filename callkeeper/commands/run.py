"""``callkeeper run``: everything in one terminal."""

import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import click
import httpx
from redis.exceptions import RedisError
from rich.console import Console
from rich.live import Live

from callkeeper.demo import Demo, demonstration
from callkeeper.embedded import DataInUse, EmbeddedRedisFailed
from callkeeper.fleet import FleetFailed
from callkeeper.foreground import take_foreground
from callkeeper.live_view import addresses, picture_panel, summary_lines
from callkeeper.observer import Observer
from callkeeper.terminal import Failed, terminal_console

_LOOK_EVERY_S = 0.5


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
@click.option("--seconds", type=float, default=None, help="Stop after so many seconds. Default: at Ctrl-C.")
def run(data: Path, workers: int, seed: int, seconds: float | None) -> None:
    """Run Redis, a stand-in for the service, web, workers and simulated calls; show what happens.

    Everything listens on this machine only, on free ports; a second run continues with the data of the first. Exits with 1
    if a promise was broken or a process ended.
    """
    take_foreground()
    stop = _stop_event()
    console = terminal_console()
    console.print("starting Redis, the sandbox, web and workers ...")
    try:
        with demonstration(data, workers=workers, seed=seed) as demo:
            with Observer(demo.redis_url, demo.service_url) as observer:
                _show(console, demo, observer, stop, seconds)
                audit = observer.audit()
            ended = demo.ended()
            took_s = demo.fleet.stop()
    except DataInUse as error:
        raise Failed(
            f"{error}. Is another `make run` running? Stop it first, or use another folder:"
            ' make run ARGS="--data another-folder"'
        ) from error
    except (FleetFailed, EmbeddedRedisFailed) as error:
        raise Failed(*str(error).splitlines()) from error
    except (RedisError, httpx.HTTPError) as error:
        raise Failed(f"a part of the demonstration does not answer: {error}. See {data / 'logs'}") from error
    except OSError as error:
        raise Failed(f"cannot use {error.filename or data}: {error.strerror}") from error
    for line in summary_lines(audit):
        console.print(line, soft_wrap=True)
    console.print(f"All processes stopped within {max(took_s.values()):.1f} s. Logs: {data / 'logs'}", soft_wrap=True)
    if ended:
        console.print(f"Ended by themselves: {', '.join(ended)}", style="bold red")
    if ended or audit.faults():
        sys.exit(1)


def _stop_event() -> threading.Event:
    """Return the event that Ctrl-C, SIGTERM and a closed terminal set; the processes are then ended in order."""
    stop = threading.Event()

    def told(_signum: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, told)
    return stop


def _show(console: Console, demo: Demo, observer: Observer, stop: threading.Event, seconds: float | None) -> None:
    """Print the addresses, then show the picture until told to stop; without a terminal, wait."""
    started_s = time.monotonic()
    console.print(addresses(demo), soft_wrap=True)
    if not console.is_terminal:
        stop.wait(seconds)
        return
    console.print()
    with Live(console=console, auto_refresh=False, screen=False) as live:
        while not stop.is_set() and not demo.ended() and sys.stdout.isatty():  # no longer, once the window is closed
            passed_s = time.monotonic() - started_s
            if seconds is not None and passed_s >= seconds:
                return
            live.update(picture_panel(observer.look(), passed_s), refresh=True)
            stop.wait(_LOOK_EVERY_S)

"""``callkeeper run``: everything in one terminal."""

import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.live import Live

from callkeeper.demo import Demo, Observer, demonstration
from callkeeper.embedded import EmbeddedRedisFailed
from callkeeper.fleet import FleetFailed
from callkeeper.live_view import addresses, picture_panel, summary_lines
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
@click.option("--seed", default=1, show_default=True, help="Of the simulated calls.")
@click.option("--seconds", type=float, default=None, help="Stop by itself after so long. Default: until Ctrl-C.")
def run(data: Path, workers: int, seed: int, seconds: float | None) -> None:
    """Run Redis, a stand-in for the service, web, workers and simulated calls; show what happens.

    Everything listens on this machine only, on free ports; a second run goes on with the data of the first. Exits with 1
    if a promise was broken or a process ended.
    """
    console = terminal_console()
    stop = _stop_event()
    console.print("starting ...")
    try:
        with demonstration(data, workers=workers, seed=seed) as demo:
            with Observer(demo.redis_url, demo.service_url) as observer:
                _show(console, demo, observer, stop, seconds)
                picture = observer.look(audit=True)
            ended = demo.ended()
            took_s = demo.fleet.stop()
    except (FleetFailed, EmbeddedRedisFailed) as error:
        raise Failed(*str(error).splitlines()) from error
    for line in summary_lines(picture):
        console.print(line)
    console.print(f"All processes left within {max(took_s.values()):.1f} s. Logs: {data / 'logs'}")
    if ended:
        console.print(f"Ended by themselves: {', '.join(ended)}", style="bold red")
    if ended or picture.faults():
        sys.exit(1)


def _stop_event() -> threading.Event:
    """Return what Ctrl-C and SIGTERM set; the processes are then ended in order."""
    stop = threading.Event()

    def told(_signum: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, told)
    return stop


def _show(console: Console, demo: Demo, observer: Observer, stop: threading.Event, seconds: float | None) -> None:
    """Show the picture until told to stop; without a terminal, print the addresses once."""
    started_s = time.monotonic()
    if not console.is_terminal:
        console.print(addresses(demo))
        stop.wait(seconds)
        return
    with Live(console=console, auto_refresh=False, screen=False) as live:
        while not stop.is_set() and not demo.ended():
            passed_s = time.monotonic() - started_s
            if seconds is not None and passed_s >= seconds:
                return
            live.update(picture_panel(demo, observer.look(), passed_s), refresh=True)
            stop.wait(_LOOK_EVERY_S)

"""``callkeeper worker``: one worker process."""

import sys

import click

from callkeeper.app.process import prepare, report_unstarted, telemetry_of
from callkeeper.app.settings import WorkerSettings
from callkeeper.app.terminal import say
from callkeeper.calls.rules import RulesError


@click.command()
def worker() -> None:
    """Run one worker: claim what is due, handle every call, until it is stopped."""
    from callkeeper.app.wiring import run_worker  # noqa: PLC0415

    settings, log = prepare(WorkerSettings, "worker")
    try:
        with telemetry_of(settings, "worker", log):
            run_worker(settings, log)
    except RulesError as error:
        report_unstarted(settings.store, "worker")
        say("the rules have faults, nothing was started:", *(f"  {line}" for line in error.lines), err=True)
        sys.exit(2)

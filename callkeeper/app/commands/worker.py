"""``callkeeper worker``: one worker process."""

import sys

import click
from msgspec.structs import replace

from callkeeper.app.logs import leave_now
from callkeeper.app.process import prepare, report_unstarted, telemetry_of
from callkeeper.app.settings import WorkerSettings
from callkeeper.app.terminal import say
from callkeeper.calls.rules import RulesError


@click.command()
def worker() -> None:
    """Run one worker: claim what is due, handle every call, until it is stopped."""
    from callkeeper.app.wiring import AccountInUse, run_worker  # noqa: PLC0415  (not for --help)

    settings, log = prepare(WorkerSettings, "worker")
    try:
        with telemetry_of(settings, "worker", log):
            run_worker(settings, log)
    except AccountInUse as error:
        for prefix in (settings.store.key_prefix, *error.prefixes):  # the other's board is the one that people look at
            report_unstarted(replace(settings.store, key_prefix=prefix), "worker")
        raise
    except RulesError as error:
        report_unstarted(settings.store, "worker")
        say("the rules have faults, nothing was started:", *(f"  {line}" for line in error.lines), err=True)
        sys.exit(2)
    leave_now(0)  # Python would wait for its threads, so for a name server that does not answer

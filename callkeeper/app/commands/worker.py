"""``callkeeper worker``: one worker process."""

import os
import sys

import click

from callkeeper.app.logs import divert_crashes, set_up_logging
from callkeeper.app.process import (
    keep_own_secrets,
    report_unstarted,
    require_extras,
    require_single_redis,
    telemetry_of,
    warn_of_unknown_variables,
)
from callkeeper.app.settings import WorkerSettings
from callkeeper.app.terminal import say
from callkeeper.calls.rules import RulesError


@click.command()
def worker() -> None:
    """Run one worker: claim what is due, handle every call, until it is stopped."""
    from callkeeper.app.wiring import run_worker  # noqa: PLC0415

    removed = keep_own_secrets(WorkerSettings)
    settings = WorkerSettings.load(os.environ)
    require_extras(settings)
    require_single_redis(settings.store.redis)
    log = set_up_logging(settings.store.log_format)
    divert_crashes(log)
    if removed:
        log.warning("secrets_removed", variables=removed)
    warn_of_unknown_variables(log)
    try:
        with telemetry_of(settings, "worker", log):
            run_worker(settings, log)
    except RulesError as error:
        report_unstarted(settings.store, "worker")
        say("the rules have faults, nothing was started:", *(f"  {line}" for line in error.lines), err=True)
        sys.exit(2)

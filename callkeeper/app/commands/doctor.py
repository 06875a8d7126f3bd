"""``callkeeper doctor``: can this installation do its work?"""

import asyncio
import os
import sys
from typing import Any

import click
from rich.console import Console

from callkeeper.app.doctor import Finding, ProcessKind, Severity, examine
from callkeeper.app.doctor.one_call import call_findings
from callkeeper.app.redis_query import query_redis
from callkeeper.app.terminal import Failed, say_json, terminal_console

_COLOURS = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.FAULT: "bold red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--before-deploy", is_flag=True, help="For the release step: skip what only runs after a deployment.")
@click.option(
    "--only",
    type=click.Choice(["web", "worker"]),
    help="Check only this process, if its settings are separate. Default: web and worker together.",
)
@click.option("--call", "any_id", metavar="ID", help="Say what this call showed instead, by its record and its trail.")
def doctor(*, as_json: bool, before_deploy: bool, only: ProcessKind | None, any_id: str | None) -> None:
    """Check settings, rules, Redis, the service, the workers and the pushes; name each fault and its remedy.

    Logs in to the service once. It changes nothing, except that --before-deploy stores the variables that this version
    knows, migrates the tables of an archive, and does what `callkeeper migrate` does. Exits with 1 if there is a fault.
    docs/operations.md has a section for every line. --call asks the service nothing.
    """
    console = terminal_console(soft_wrap=True)
    if any_id is not None:
        _judge_call(console, any_id, as_json=as_json)

    async def diagnose() -> bool:
        has_fault = False
        async for finding in examine(os.environ, before_deploy=before_deploy, only=only):
            has_fault |= finding.severity is Severity.FAULT
            _print_finding(console, finding, as_json=as_json)
        return has_fault

    sys.exit(1 if asyncio.run(diagnose()) else 0)


def _judge_call(console: Console, any_id: str, *, as_json: bool) -> None:
    """Print what a call showed of each promise, and exit."""
    findings = query_redis(lambda redis, keys: call_findings(redis, keys, any_id))
    if not findings:
        raise Failed(f"nothing is known of a call {any_id!r}: is the id right, and is a worker alive?")
    for finding in findings:
        _print_finding(console, finding, as_json=as_json)
    sys.exit(any(finding.severity is Severity.FAULT for finding in findings))


def _print_finding(console: Console, finding: Finding, *, as_json: bool) -> None:
    if as_json:
        say_json(_row(finding))
        return
    console.print(f"{finding.severity:<8}", style=_COLOURS[finding.severity], end="")
    console.print(f" {finding.what}: {finding.detail}")
    if finding.remedy:
        console.print(f"         -> {finding.remedy}")


def _row(finding: Finding) -> dict[str, Any]:
    """Return a finding for JSON; ``what`` is the topic and its subject."""
    return {
        "what": finding.what,
        "topic": finding.topic,
        "about": finding.about or None,
        "state": finding.severity,
        "detail": finding.detail,
        "remedy": finding.remedy or None,
    }

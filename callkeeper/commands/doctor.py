"""``callkeeper doctor``: can this installation do its work?"""

import asyncio
import os
import sys

import click
import msgspec
from rich.console import Console

from callkeeper.doctor import Finding, State, examine

_COLOURS = {State.OK: "green", State.WARNING: "yellow", State.FAULT: "bold red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def doctor(*, as_json: bool) -> None:
    """Look at settings, rules, Redis, the service and the workers; name each fault and its remedy.

    Exits with 1 if there is a fault.
    """
    console = Console()

    async def look() -> bool:
        has_fault = False
        async for finding in examine(os.environ):
            has_fault |= finding.state is State.FAULT
            _tell(console, finding, as_json=as_json)
        return has_fault

    sys.exit(1 if asyncio.run(look()) else 0)


def _tell(console: Console, finding: Finding, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(finding))
        return
    console.print(f"[{_COLOURS[finding.state]}]{finding.state:<8}[/] {finding.what}: {finding.detail}", highlight=False)
    if finding.remedy:
        console.print(f"         -> {finding.remedy}", highlight=False)

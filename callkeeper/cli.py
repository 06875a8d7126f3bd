"""The command line: a group that imports a subcommand only when it is called.

Lazy, because ``callkeeper web`` must not pay for the imports of ``callkeeper run``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from callkeeper.environment import SettingsWrong
from callkeeper.terminal import Failed, prepare_terminal, safe_error

_COMMANDS = {
    "web": "callkeeper.commands.web:web",
    "worker": "callkeeper.commands.worker:worker",
    "run": "callkeeper.commands.run:run",
    "sandbox": "callkeeper.commands.sandbox:sandbox",
    "doctor": "callkeeper.commands.doctor:doctor",
    "calls": "callkeeper.commands.calls:calls",
    "rules": "callkeeper.commands.rules:rules",
    "pause": "callkeeper.commands.pause:pause",
    "resume": "callkeeper.commands.pause:resume",
    "pauses": "callkeeper.commands.pause:pauses",
    "reseller": "callkeeper.commands.reseller:reseller",
    "schedule": "callkeeper.commands.schedule:schedule",
    "service": "callkeeper.commands.service:service",
    "secret": "callkeeper.commands.secret:secret",
}


class LazyGroup(click.Group):
    """A group whose subcommands are imported by name when first needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all subcommands without importing them."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand, or None for an unknown name."""
        target = _COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, name = target.split(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)  # noqa: S101  (a broken table, not bad input)
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the options that come before the subcommand's name."""
        prepare_terminal()
        with _errors_made_safe():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; wrong settings end it with a message that names them."""
        with _errors_made_safe():
            return super().invoke(ctx)


@contextmanager
def _errors_made_safe() -> Iterator[None]:
    """Let no error message reach the terminal as others wrote it."""
    try:
        yield
    except SettingsWrong as wrong:
        raise Failed(*str(wrong).splitlines()) from None
    except click.ClickException as error:
        raise safe_error(error) from None


@click.group(cls=LazyGroup)
@click.version_option(package_name="callkeeper")
def main() -> None:
    """Receive call events, watch every call until it is decided, enroll or reject by rule."""

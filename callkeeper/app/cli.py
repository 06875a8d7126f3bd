"""The command line: a group that imports a subcommand only when it is called.

So ``callkeeper web`` does not import what ``callkeeper run`` needs, and ``callkeeper --help`` imports no subcommand.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from callkeeper.app.environment import SettingsWrong
from callkeeper.app.extras import require
from callkeeper.app.terminal import Failed, Misset, prepare_terminal, safe_error


class CommandEntry(NamedTuple):
    """A command's module in `callkeeper.app.commands`, its line in the list of commands, and the extra that it needs.

    The module of another distribution has its full name. The summary is the first sentence of the command's own help.
    """

    module: str
    summary: str
    extra: str = ""


COMMANDS: Final = {
    "alerts": CommandEntry("alerts", "Show which alerts were sent, acknowledge an incident, send a test."),
    "archive": CommandEntry(
        "archive", "Keep calls for years: prepare the tables, verify the chains, hold, retire.", "archive"
    ),
    "audit": CommandEntry(
        "tokens_and_audit",
        "Show the audit log, newest first: logins, looks at people's data, statements, pauses, changes.",
    ),
    "calls": CommandEntry(
        "calls", "List calls, explain one, export calls, erase a person, resolve effects whose outcome is unknown."
    ),
    "doctor": CommandEntry(
        "doctor",
        "Check settings, rules, Redis, the service, the workers and the pushes; name each fault and its remedy.",
    ),
    "migrate": CommandEntry(
        "migrate", "Continue with the data of a release up to 0.4.0: copy it, and leave the original to that release."
    ),
    "outcomes": CommandEntry("outcomes", "Show which outcomes were posted, post them again, post a test."),
    "pause": CommandEntry(
        "pause_and_resume",
        "Stop enrolls and rejects (--effects, the default), or everything automatic but reading (--all).",
    ),
    "pauses": CommandEntry(
        "pause_and_resume",
        "Show what is paused now, and the history: who paused what, when and why, and who resumed it.",
    ),
    "reseller": CommandEntry("reseller", "Use the service's interface by hand; INSTITUTION is an institution's key."),
    "resume": CommandEntry("pause_and_resume", "Lift a pause: of one institution, or the one that was made for all."),
    "rules": CommandEntry("rules", "Check, test and replay the rules."),
    "run": CommandEntry(
        "callkeeper_sandbox.commands.run",
        "Run Redis, a stand-in for the service, web, workers and simulated calls; show what happens.",
        "sandbox",
    ),
    "sandbox": CommandEntry(
        "callkeeper_sandbox.commands.sandbox",
        "Run a stand-in for the voice-verification service.",
        "sandbox",
    ),
    "secret": CommandEntry("new_secret", "Print a new secret, with the line for the environment."),
    "service": CommandEntry(
        "service",
        "Show which requests to the service are stopped or limited: of all institutions, of one, or of one kind.",
    ),
    "tokens": CommandEntry("tokens_and_audit", "Issue, list and revoke the tokens by which software uses the desk."),
    "web": CommandEntry(
        "web",
        "Run the web process: push events, health checks, the desk, the board and the RQ dashboard.",
    ),
    "worker": CommandEntry("worker", "Run one worker: claim what is due, handle every call, until it is stopped."),
}
"""Every command, in the order of the list."""


class LazyGroup(click.Group):
    """A group whose subcommands are imported when one of them is run, not to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand, or None for an unknown name.

        Raises:
            Failed: It needs an extra that is not installed.
        """
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if entry.extra:
            require(f"callkeeper {cmd_name}", entry.extra)
        module = entry.module if "." in entry.module else f"callkeeper.app.commands.{entry.module}"
        command = getattr(import_module(module), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101  (a broken table, not bad input)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand that the arguments name; of an unknown name, say which was probably meant.

        Raises:
            Misset: A setting is misspelled.
        """
        try:
            found = super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None
        if found[0] not in _WITHOUT_CHECK and not ctx.resilient_parsing:
            from callkeeper.app.settings import refuse_misspelled  # noqa: PLC0415  (not for --help)

            refuse_misspelled(os.environ)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name].summary) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the options that come before the subcommand's name."""
        prepare_terminal()
        with _errors_made_safe():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; wrong settings end it with a message that names them."""
        with _errors_made_safe():
            return super().invoke(ctx)


_WITHOUT_CHECK: Final = {"doctor", "run", "sandbox", "web", "worker"}
"""Commands that work beside misspelled settings, or check for them themselves: processes report that they do not start.

The doctor names such settings. The others read none of ours.
"""


@contextmanager
def _errors_made_safe() -> Iterator[None]:
    """Make error messages safe for the terminal: they may quote text from outside. At Ctrl-C, end by the signal.

    If a command ended otherwise at Ctrl-C, a shell's loop would go on with the next one.
    """
    try:
        yield
    except SettingsWrong as wrong:
        raise Misset(*str(wrong).splitlines()) from None
    except click.ClickException as error:
        raise safe_error(error) from None
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        raise Failed(f"the output cannot be written: {error.strerror}") from None
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        raise


@click.group(cls=LazyGroup)
@click.version_option(package_name="callkeeper")
def main() -> None:
    """Receive call events, watch every call until it is decided, enroll or reject by rule."""

"""Safe printing on a terminal.

Callers, agents, institutions and the service choose texts that our commands print: voice ids, reasons, names, error
messages. Such a text could contain control characters for the terminal, or a line break that forges a line of ours. All
commands print through this module, so every text goes through `safe`.
"""

import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from io import TextIOWrapper
from textwrap import fill
from types import TracebackType
from typing import Any, Final, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callkeeper.calls.traceback_filter import filtered_traceback

_LONGEST_SUMMARY: Final = 400
"""Characters of a command's summary in the help of its group."""

_LISTED_WIDTH: Final = 48
"""Characters of a line of an option's choices, beside the option's name, on a terminal with 80 columns."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
"""Invisible characters that Python calls printable: Unicode's Default_Ignorable_Code_Point, and two blank symbols."""


def is_visible(text: str) -> bool:
    """Tell whether a text is one line in which every character can be seen."""
    return text.isprintable() and not _BLANK.search(text)


def safe(value: object) -> str:
    r"""Return a value as one line in which every character can be seen.

    Control characters, escape sequences, line and paragraph separators, characters that change the direction of
    writing, invisible and blank characters and lone surrogates become escapes such as ``\x1b``.
    """
    text = str(value)
    return text if is_visible(text) else "".join(map(_visible, text))


def _visible(character: str) -> str:
    return character if is_visible(character) else character.encode("unicode_escape").decode()


def shown(value: object, style: str = "") -> Text:
    """Return a value as a cell of a table; unlike a ``str``, it can have a style."""
    return Text(safe(value), style=style)


def say(*lines: object, err: bool = False) -> None:
    """Print each value as one line."""
    for line in lines:
        click.echo(safe(line), err=err)


def printable_json(document: bytes) -> bytes:
    r"""Return a JSON document with every character that cannot be seen written as ``\u`` and four digits.

    Programs read the same values. JSON requires this only below U+0020, but terminals also obey U+009B.
    """
    text = document.decode()
    return document if is_visible(text) else "".join(map(_visible_in_json, text)).encode()


def _visible_in_json(character: str) -> str:
    return character if is_visible(character) or character == "\n" else json.dumps(character)[1:-1]


def say_json(*values: object, indent: int = -1) -> None:
    """Print each value as JSON: as one line, or indented."""
    for value in values:
        click.echo(printable_json(msgspec.json.format(msgspec.json.encode(value), indent=indent)))


_AT_END_OF_LINE: Final = re.compile(r" +(?=\n)")


class _SafeConsole(Console):
    """A console that makes every ``str`` safe, also in tables, and fills up no line for a program that reads it."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print; if the output is no terminal, without blanks at the ends of lines, which tables have."""
        if self.is_terminal:
            super().print(*objects, **how)
            return
        with self.capture() as printed:
            super().print(*objects, **how)
        click.echo(_AT_END_OF_LINE.sub("", printed.get()), nl=False, file=self.file)

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a ``str`` in its printed form. Rich calls this for every ``str``."""
        return super().render_str(safe(text), **how)


def terminal_console(*, width_if_piped: int | None = None, soft_wrap: bool = False, stderr: bool = False) -> Console:
    """Return a console for tables and styles, without markup, emoji names and automatic highlighting."""
    console = _SafeConsole(markup=False, emoji=False, highlight=False, soft_wrap=soft_wrap, stderr=stderr)
    if width_if_piped and not console.is_terminal:
        console.width = width_if_piped
    return console


_WIDE: Final = 10_000
"""Columns of a table that is printed as wide as it is. A terminal that is narrower breaks its lines."""


def say_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table without lines; if it has no rows, say so on standard error.

    Empty cells and zeros are blank, instants are printed to the second.
    """
    table, console = Table(*columns, box=None, padding=(0, 1, 0, 0)), terminal_console()
    console.width = _WIDE
    for row in rows:
        table.add_row(*map(_cell, row))
    console.print(table)
    if not table.row_count:
        say("none", err=True)


def _cell(value: object) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else safe(value or "")


class Failed(click.ClickException):
    """A command failed; the message has one line or more."""

    def __init__(self, *lines: object) -> None:
        super().__init__("\n".join(map(safe, lines)))


class Misset(Failed):
    """The settings are wrong; the message names each fault. Nothing was done."""

    exit_code = click.UsageError.exit_code


class Misused(click.UsageError):
    """The command line is wrong; the message has one line or more."""

    def __init__(self, *lines: object) -> None:
        super().__init__("\n".join(map(safe, lines)))


def refuse_two_formats(*, as_json: bool, as_csv: bool) -> None:
    """Refuse a command line that asks for two formats of one output."""
    if as_json and as_csv:
        raise Misused("--json and --csv exclude each other")


class CommandGroup(click.Group):
    """A group of commands. Its help has the whole first sentence of each; click would cut it off at one line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the name and the first sentence of each command."""
        summaries = [(name, one.get_short_help_str(_LONGEST_SUMMARY)) for name, one in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(summaries)


def choice_option(name: str, choices: click.Choice[Any], text: str) -> Callable[[Decorated], Decorated]:
    """Return an option with many choices. Its help lists them below the text; click makes one long word of them."""
    listed = ", ".join(choices.normalize_choice(each, None) for each in choices.choices)
    help_text = f"{text} One of:\n\n\b\n{fill(listed, _LISTED_WIDTH, break_on_hyphens=False)}"
    return click.option(name, type=choices, metavar=name.removeprefix("--").upper(), help=help_text)


class Moment(click.DateTime):
    """A day, or a minute of it, on the command line; its help and errors show examples and not the formats of a library."""

    def __init__(self) -> None:
        super().__init__(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the time."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail("must be a day or a time such as 2026-11-22 or 2026-11-22T10:40 (UTC)", param, ctx)


def safe_error(error: click.ClickException) -> click.ClickException:
    """Return an error that prints safely: as one line, except for our own line breaks."""
    if isinstance(error, Failed | Misused | click.exceptions.NoArgsIsHelpError):  # the latter is our own help
        return error
    message = safe(error.format_message().replace("\n\t", " "))  # click separates choices like this
    return click.UsageError(message, error.ctx) if isinstance(error, click.UsageError) else Failed(message)


def prepare_terminal() -> None:
    """Replace letters that the terminal cannot show, and print tracebacks and libraries' warnings safely.

    Both may contain text from outside. ``callkeeper web`` and ``worker`` replace this by their log.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.excepthook = _say_crash
    threading.excepthook = _say_thread_crash
    logging.lastResort = _SafeHandler(logging.WARNING)


class _SafeHandler(logging.Handler):
    """Prints a library's message in one line, without the message of an exception."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.name}: {record.getMessage()}", err=True)


def _say_thread_crash(crash: threading.ExceptHookArgs) -> None:
    if crash.exc_value is not None:
        _say_crash(crash.exc_type, crash.exc_value, None)


def _say_crash(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    say("callkeeper failed: this is a bug, or Redis contains invalid data:", *filtered_traceback(error), err=True)

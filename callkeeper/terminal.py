"""Printing on a terminal: what others wrote is shown and never obeyed.

Callers, agents, institutions and the service choose texts that our commands print: voice ids, reasons, names, error
messages. A terminal obeys control characters, and a line break in a reason looks like a line of ours. All commands print
through this module, so no text reaches the terminal without `safe`.
"""

import json
import logging
import re
import sys
import threading
from io import TextIOWrapper
from types import TracebackType
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from calls.traceback_filter import filtered_traceback

_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
"""Invisible characters that Python calls printable: Unicode's Default_Ignorable_Code_Point, and two blank symbols."""


def is_visible(text: str) -> bool:
    """Tell whether a text is one line in which every character can be seen."""
    return text.isprintable() and not _BLANK.search(text)


def safe(value: object) -> str:
    r"""Return a value as one line in which every character can be seen.

    Control characters, escape sequences, line and paragraph separators, characters that change the direction of writing,
    invisible and blank characters and lone surrogates become escapes such as ``\x1b``.
    """
    text = str(value)
    return text if is_visible(text) else "".join(map(_visible, text))


def _visible(character: str) -> str:
    return character if is_visible(character) else character.encode("unicode_escape").decode()


def shown(value: object, style: str = "") -> Text:
    """Return a value as a cell of a table; unlike a ``str``, it can have a style."""
    return Text(safe(value), style=style)


def say(*lines: object, err: bool = False) -> None:
    """Print lines; each stays one line, whatever it holds."""
    for line in lines:
        click.echo(safe(line), err=err)


def printable_json(document: bytes) -> bytes:
    r"""Return a JSON document with every character that cannot be seen written as ``\u`` and four digits.

    It means the same to a program. JSON itself only requires this below U+0020; terminals obey U+009B too.
    """
    text = document.decode()
    return document if is_visible(text) else "".join(map(_visible_in_json, text)).encode()


def _visible_in_json(character: str) -> str:
    return character if is_visible(character) or character == "\n" else json.dumps(character)[1:-1]


def say_json(document: bytes) -> None:
    """Print a JSON document."""
    click.echo(printable_json(document))


class _SafeConsole(Console):
    """A console that makes every ``str`` safe: those that are printed, and those in tables."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a ``str`` as what is printed for it. Rich calls this for every ``str``."""
        return super().render_str(safe(text), **how)


def terminal_console(*, width_if_piped: int | None = None, soft_wrap: bool = False, stderr: bool = False) -> Console:
    """Return a console for tables and styles: no markup, no names of emoji, no colours by guess.

    Args:
        width_if_piped: Columns where the output is no terminal; else 80.
        soft_wrap: Leave the breaking of long lines to the terminal.
        stderr: Write to standard error.
    """
    console = _SafeConsole(markup=False, emoji=False, highlight=False, soft_wrap=soft_wrap, stderr=stderr)
    if width_if_piped and not console.is_terminal:
        console.width = width_if_piped
    return console


class Failed(click.ClickException):
    """A command cannot go on; the message has one line or more."""

    def __init__(self, *lines: object) -> None:
        super().__init__("\n".join(map(safe, lines)))


class Misused(click.UsageError):
    """The command line is wrong; the message has one line or more."""

    def __init__(self, *lines: object) -> None:
        super().__init__("\n".join(map(safe, lines)))


def safe_error(error: click.ClickException) -> click.ClickException:
    """Return an error that prints safely: one line, except where the lines are our own."""
    if isinstance(error, Failed | Misused):
        return error
    message = safe(error.format_message().replace("\n\t", " "))  # click lists choices so
    return click.UsageError(message, error.ctx) if isinstance(error, click.UsageError) else Failed(message)


def prepare_terminal() -> None:
    """Make sure that printing never fails for a letter that the terminal lacks, and that bugs and libraries print safely.

    Python's traceback ends with the exception's message, which may hold what others wrote; so may a library's warning.
    ``callkeeper web`` and ``worker`` replace this by their log.
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
        """Print a message."""
        say(f"{record.name}: {record.getMessage()}", err=True)


def _say_thread_crash(crash: threading.ExceptHookArgs) -> None:
    if crash.exc_value is not None:
        _say_crash(crash.exc_type, crash.exc_value, None)


def _say_crash(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    say(
        "callkeeper failed; this is a bug, or Redis holds what no version writes:", *filtered_traceback(error), err=True
    )

"""The commands that a Markdown document shows: lines of ``sh`` blocks, and code in a sentence that begins with a program."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

PROGRAMS: Final = frozenset(
    {".", "apt-get", "callkeeper", "cd", "cp", "curl", "docker", "export", "git", "honcho", "make", "pip", "python"}
    | {"python3", "redis-server", "source"}
)
"""Code in a sentence is a command if one of these comes first, and something follows."""

_FENCE: Final = re.compile(r"\s*```(\w*)")
_SPAN: Final = re.compile(r"`([^`]+)`")


class Command(NamedTuple):
    """A command as the document shows it, and the line on which it stands."""

    text: str
    line: int


def commands(markdown: str) -> list[Command]:
    """Return every command of a document, in its order.

    Raises:
        ValueError: A block says neither ``sh`` (each line is a command) nor ``text`` (none is).
    """
    found: list[Command] = []
    language: str | None = None
    prose: list[str] = []
    for number, line in enumerate(markdown.splitlines(), 1):
        fence = _FENCE.match(line)
        prose.append("" if fence or language is not None else line)
        if fence and language is None:
            language = fence.group(1)
            if language not in {"sh", "text"}:
                raise ValueError(f"line {number}: a block must say sh or text")
        elif fence:
            language = None
        elif (language == "sh" and line.strip()) or (language is None and _is_indented_command(line)):
            found.append(Command(line.strip(), number))
    return sorted([*found, *_in_sentences("\n".join(prose))], key=lambda command: command.line)


def script(markdown: str) -> str:
    """Return all ``sh`` blocks of a document but the first one, to be typed into one shell that stops at a failure."""
    blocks = re.findall(r"^```sh\n(.*?)^```", markdown, re.DOTALL | re.MULTILINE)
    return "\n".join(["set -e", *blocks[1:]])


def _is_indented_command(line: str) -> bool:
    return line.startswith("    ") and line.split()[0:1] != [] and line.split(maxsplit=1)[0] in PROGRAMS


def _in_sentences(prose: str) -> Iterator[Command]:
    """Find commands between backquotes; they may go on in the next line."""
    for span in _SPAN.finditer(prose):
        words = span.group(1).replace(r"\|", "|").split()
        if len(words) > 1 and words[0] in PROGRAMS:
            yield Command(" ".join(words), prose.count("\n", 0, span.start()) + 1)

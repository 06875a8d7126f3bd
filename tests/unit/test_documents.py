"""All documents: short lines, links that lead somewhere, commands that exist, one short glossary."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from callkeeper.app.cli import main
from callkeeper.desk.openapi import document

ROOT = Path(__file__).parents[2]
LONGEST = 119
FOLDERS = ("", "docs", "deploy", "tests", "tests/sandbox")
PAGES = sorted(str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^(?:\$ )?(callkeeper [a-z][^#|]*)")


def text_of(name: str) -> str:
    """Return a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_lines_are_short() -> None:
    """Every line has less than 120 characters, tables included, so that a page can be read in a terminal and in a diff."""
    lines = ((name, line) for name in PAGES for line in text_of(name).splitlines())
    assert [(name, line) for name, line in lines if len(line) > LONGEST] == []


def test_links_lead_somewhere() -> None:
    """Every link to a file finds it, and every link to a heading finds the heading."""
    for name in PAGES:
        text = re.sub(r"`[^`]*`", "", _BLOCK.sub("", text_of(name)))
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", text):
            path = (ROOT / name).parent / target if target else ROOT / name
            assert path.exists(), (name, target)
            if anchor and path.suffix == ".md":
                assert anchor in anchors(path.read_text(encoding="utf-8")), (name, anchor)


def test_document_of_the_desk_is_the_one_that_is_served() -> None:
    """``docs/openapi.json`` can be read without a running desk, and is never older than the code."""
    assert (ROOT / "docs" / "openapi.json").read_bytes() == document() + b"\n", (
        "python -m callkeeper.desk.openapi > docs/openapi.json"
    )


def test_glossary_has_ten_terms_at_most() -> None:
    """There is one glossary, in docs/guarantees.md."""
    glossaries = {name: text_of(name).partition("## Glossary\n")[2].partition("\n## ")[0] for name in PAGES}
    terms = {name: len(re.findall(r"^- \*\*", text, re.MULTILINE)) for name, text in glossaries.items() if text}
    assert set(terms) == {"docs/guarantees.md"}
    assert terms["docs/guarantees.md"] <= 10


def test_commands_exist() -> None:
    """Every command of a page can be parsed: its subcommands and options exist. The changelog names those that went."""
    for name in (page for page in PAGES if page != "CHANGELOG.md"):
        text = text_of(name)
        shown = [line for kind, block in _BLOCK.findall(text) if kind == "sh" for line in block.splitlines()]
        shown += re.findall(r"^    (\S.*)$", text, re.MULTILINE)
        shown += [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", _BLOCK.sub("", text))]
        for command in filter(None, map(_COMMAND.match, shown)):
            _parse(name, command[1])


def test_every_command_is_used_in_a_page() -> None:
    """A command that no page tells anybody to use is not needed. The changelog does not count."""
    pages = " ".join(" ".join(text_of(name).split()) for name in PAGES if name != "CHANGELOG.md")
    unused = [name for name, _ in _commands(main, "callkeeper") if not re.search(rf"{re.escape(name)}(?![\w-])", pages)]
    assert unused == []


def _commands(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is no group, with all its words."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands(found, *path, name)


def _parse(page: str, command: str) -> None:
    words = shlex.split(command.rstrip("\\ "))[1:]
    place: click.Command = main
    while words and isinstance(place, click.Group):
        found = place.get_command(click.Context(place), words[0])
        assert found is not None, (page, command)
        place, words = found, words[1:]
    options = {name for parameter in place.params for name in (*parameter.opts, *parameter.secondary_opts)}
    named = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert named <= options | {"--help", "--version"}, (page, command)

"""The command line as a whole: what holds for every command."""

from collections.abc import Iterator

import click

from callkeeper.cli import main


def _options(command: click.Command, *path: str) -> Iterator[tuple[str, click.Option]]:
    """Return every option of a command and its subcommands, each with the words that lead to it."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from _options(inner, *path, name)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield " ".join((*path, parameter.opts[0])), parameter


def test_path_options_are_absolute() -> None:
    """An option that takes a path hands it over absolute, also its default: a program may change its folder."""
    found = {name: option.type for name, option in _options(main) if isinstance(option.type, click.Path)}
    assert {"run --data", "sandbox --state-file"} <= found.keys()
    assert [name for name, type_ in found.items() if not type_.resolve_path] == []

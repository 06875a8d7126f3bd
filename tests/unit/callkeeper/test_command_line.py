"""Laws of all commands."""

from collections.abc import Iterator

import click

from callkeeper.cli import COMMANDS, main


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
    """An option that takes a path returns it absolute, also its default, because a command may change its folder."""
    found = {name: option.type for name, option in _options(main) if isinstance(option.type, click.Path)}
    assert {"run --data", "sandbox --state-file"} <= found.keys()
    assert [name for name, type_ in found.items() if not type_.resolve_path] == []


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    """The list imports no command. Each of its summaries is the first sentence of the command's help."""
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in COMMANDS}
    said = {name: command.get_short_help_str(200) for name, command in commands.items() if command is not None}
    assert said == {name: entry.summary for name, entry in COMMANDS.items()}
    assert list(COMMANDS) == sorted(COMMANDS)


def test_a_shell_completes_the_names_of_commands() -> None:
    """Completion offers the matching names, with their summaries."""
    items = main.shell_complete(click.Context(main), "paus")
    assert [(item.value, item.help) for item in items] == [
        (name, COMMANDS[name].summary) for name in ("pause", "pauses")
    ]

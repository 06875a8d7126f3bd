"""Laws of all commands."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from callkeeper.app.cli import COMMANDS, main


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


def test_two_formats_of_one_output_are_refused() -> None:
    """Whoever asks for both would get one of them without a word."""
    offered = {name for name, _ in _options(main)}
    both = {command for name in offered if (command := name.removesuffix(" --csv")) + " --json" in offered}
    assert both - offered >= {"audit", "calls list"}
    for command in both - offered:
        refused = CliRunner(env={"REDIS_URL": ""}).invoke(main, [*command.split(), "--json", "--csv"])
        assert (refused.exit_code, "--json and --csv exclude each other" in refused.output) == (2, True), command


def test_help_lists_many_choices_below_what_the_option_is_for() -> None:
    """A word of three hundred characters cannot be read. No word is cut at its hyphen, so that it can be copied."""
    found = dict(_options(main))
    long = {name: said for name, option in found.items() if len(said := option.make_metavar(click.Context(main))) > 60}
    assert long == {}
    state = found["calls list --state"]
    assert isinstance(state.type, click.Choice)
    output = CliRunner().invoke(main, ["calls", "list", "--help"]).output
    assert [word for word in state.type.choices if f"{word}," not in output] == [state.type.choices[-1]]


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


GROUPS = (
    "",
    "alerts",
    "archive",
    "calls",
    "outcomes",
    "reseller",
    "rules",
    "tokens",
)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_without_a_command_prints_its_help(group: str) -> None:
    """The help has its own lines, and is not printed as an error in one line."""
    result = CliRunner().invoke(main, [group] if group else [])
    assert result.exit_code == 2
    assert "\nCommands:\n" in result.output
    assert "Error" not in result.output
    assert "\\n" not in result.output


@pytest.mark.parametrize("group", [*GROUPS, "service"])
def test_the_help_of_a_group_says_of_each_command_what_it_does(group: str) -> None:
    """No summary is cut off: half a sentence does not say what a command erases."""
    output = CliRunner().invoke(main, [*group.split(), "--help"]).output
    assert "..." not in output.partition("\nCommands:\n")[2]


def test_a_mistyped_command_is_suggested() -> None:
    """The error names the command that was probably meant."""
    result = CliRunner().invoke(main, ["puase"])
    assert result.exit_code == 2
    assert "No such command 'puase'" in result.output
    assert "'pause'" in result.output


def test_wrong_settings_are_misuse() -> None:
    """A wrong setting ends a command with 2, like a wrong option: nothing was done."""
    result = CliRunner(env={"REDIS_URL": "127.0.0.1:6379"}).invoke(main, ["pauses"])
    assert result.exit_code == 2
    assert "REDIS_URL: must start with" in result.output


def test_redis_that_does_not_answer_is_named_with_the_remedy() -> None:
    """The error names the address, and the setting to look at."""
    result = CliRunner(env={"REDIS_URL": "redis://127.0.0.1:1/0"}).invoke(main, ["pauses"])
    assert result.exit_code == 1
    assert "Redis at redis://127.0.0.1:1/0 does not answer: connection refused" in result.output
    assert "REDIS_URL" in result.output


def test_usage_of_pause_names_what_it_needs() -> None:
    """A key without its option is refused, and the usage line beside the error shows the option."""
    result = CliRunner().invoke(main, ["pause", "cu-1", "--reason", "x", "--operator", "you"])
    assert result.exit_code == 2
    assert "--institution KEY" in result.output
    assert "--reason" in result.output


@pytest.mark.parametrize(
    "command", [["rules", "history", "--at"], ["reseller", "queue", "cu-1", "--start"]], ids=" ".join
)
def test_time_that_cannot_be_read_is_answered_with_one_that_can(command: list[str]) -> None:
    """The error and the help show a time, and not the placeholders of a library."""
    result = CliRunner().invoke(main, [*command, "yesterday"])
    assert result.exit_code == 2
    assert "2026-11-22T10:40 (UTC)" in result.output
    assert "%Y" not in result.output + CliRunner().invoke(main, [*command[:2], "--help"]).output

"""``callkeeper completion``: shell scripts that complete commands and options."""

import click
from click.shell_completion import get_completion_class

from callkeeper.app.terminal import say

VARIABLE = "_CALLKEEPER_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: callkeeper completion bash > ~/.local/share/bash-completion/completions/callkeeper
    zsh:  callkeeper completion zsh > a folder of $fpath, as _callkeeper
    fish: callkeeper completion fish > ~/.config/fish/completions/callkeeper.fish
    """  # noqa: D301  (click looks for the character)
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101  (click has these three)
    say(*found(context.find_root().command, {}, "callkeeper", VARIABLE).source().splitlines())

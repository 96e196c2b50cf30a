"""Defines the command `completion`, which prints a script that completes words in a shell."""

from __future__ import annotations

import click

from beam_tfrecord.cli.base import print_result
from beam_tfrecord.cli.help import GroupedCommand
from beam_tfrecord.cli.log import log_options


@click.command(cls=GroupedCommand, short_help="Print a completion script.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@log_options
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes SHELL (bash, zsh or fish) complete commands, flags and paths.

    \b
    bash: add to ~/.bashrc:  eval "$(beam-tfrecord completion bash)"
    zsh:  add to ~/.zshrc:   eval "$(beam-tfrecord completion zsh)"
    fish: beam-tfrecord completion fish > ~/.config/fish/completions/beam-tfrecord.fish
    """  # noqa: D301 - click keeps the lines after \b
    from click.shell_completion import get_completion_class

    program = ctx.find_root()
    name = str(program.info_name)
    made = get_completion_class(shell)
    assert made is not None
    # The variable that click reads in `cli.main`.
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    print_result(made(program.command, {}, name, variable).source().rstrip("\n"))

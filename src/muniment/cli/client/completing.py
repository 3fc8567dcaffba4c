"""`muniment completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    r"""Print the completion of commands for a shell; it needs no network.

    \b
    bash: eval "$(muniment completion bash)" in ~/.bashrc
    zsh:  eval "$(muniment completion zsh)" in ~/.zshrc
    fish: muniment completion fish > ~/.config/fish/completions/muniment.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choices are the names of click's classes
    click.echo(kind(context.find_root().command, {}, "muniment", "_MUNIMENT_COMPLETE").source())

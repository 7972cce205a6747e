"""`redis-acker completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script.

    \b
    Examples:
      eval "$(redis-acker completion bash)"    # in ~/.bashrc
      eval "$(redis-acker completion zsh)"     # in ~/.zshrc
      redis-acker completion fish | source     # in config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "redis-acker", "_REDIS_ACKER_COMPLETE").source())

"""The command line: `redis-acker`."""

from __future__ import annotations

import click

from redis_acker.cli.demo import demo
from redis_acker.errors import AckerError

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""


class Commands(click.Group):
    """Turns what ends a command early into a line for people and an exit code for programs."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except AckerError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="redis-acker", prog_name="redis-acker", message="%(prog)s %(version)s")
def main() -> None:
    """An exact, idempotent acker on Redis.

    It follows every message's tree of work to one final event: completed or failed.
    """


main.add_command(demo)

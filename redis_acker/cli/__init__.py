"""The command line: `redis-acker`."""

from __future__ import annotations

from importlib import import_module

import click

from redis_acker.cli.exits import explained

# Name -> (module:attribute, its line in the help), under headings. A command is imported when it is called: one that
# only asks whether the servers are there must not wait for all the others.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Look": {
        "pending": ("redis_acker.cli.pending:pending", "List pending roots, oldest first."),
        "inspect": ("redis_acker.cli.inspect:inspect", "Show all that is known of one root."),
        "stats": ("redis_acker.cli.stats:stats", "Show counters, rates, ages and memory."),
        "top": ("redis_acker.cli.top:top", "Show the same as stats, live."),
    },
    "Act": {
        "rotate": ("redis_acker.cli.rotate:rotate", "Age every bucket; --watch runs as a service."),
        "drain": ("redis_acker.cli.drain:drain", "Take failed and expired roots out for replay."),
        "replay": ("redis_acker.cli.replay:replay", "Give failed messages back to their source."),
        "dead": ("redis_acker.cli.dead:dead", "List, show, replay and purge dead letters."),
        "fail": ("redis_acker.cli.fail:fail", "Fail roots at once."),
        "extend": ("redis_acker.cli.extend:extend", "Restart the clock of pending roots."),
    },
    "Check": {
        "doctor": ("redis_acker.cli.doctor:doctor", "Check servers and settings, with remedies."),
        "health": ("redis_acker.cli.health:health", "Tell whether every shard can be reached."),
        "ready": ("redis_acker.cli.ready:ready", "Tell whether the namespace can take work."),
        "acl": ("redis_acker.cli.acl:acl", "Print least-privilege ACL rules for a role."),
    },
    "Try": {
        "demo": ("redis_acker.cli.demo:demo", "Track a Spark job, and balance its books."),
        "bench": ("redis_acker.cli.bench:bench", "Measure what the servers do per second."),
        "completion": ("redis_acker.cli.completion:completion", "Print the shell completion script."),
    },
}

_TARGETS = {name: target for group in COMMANDS.values() for name, (target, _) in group.items()}


class Commands(click.Group):
    """The commands of the table, each imported at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_TARGETS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _TARGETS:
            return None
        module, _, attribute = _TARGETS[cmd_name].partition(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, group in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(10), text) for name, (_, text) in group.items()])

    def invoke(self, ctx: click.Context) -> object:
        with explained():
            return super().invoke(ctx)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="redis-acker", prog_name="redis-acker", message="%(prog)s %(version)s")
def main() -> None:
    """An exact, idempotent acker on Redis.

    It follows every message's tree of work to one final event: completed or
    failed. Name the servers with --url or REDIS_ACKER_URL, the namespace with
    --namespace or REDIS_ACKER_NAMESPACE.

    \b
    Start here:
      redis-acker demo
      redis-acker doctor --url redis://localhost:6379
      redis-acker pending --url redis://localhost:6379 --older-than 5m

    Exit codes: 0 well, 1 something is wrong, 2 usage, 3 a server is not
    reachable or refuses access, 4 not found, 130 interrupted.
    """

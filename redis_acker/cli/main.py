"""`redis-acker`: the list of commands."""

from __future__ import annotations

from importlib import import_module

import click

from redis_acker.cli.exits import explained

# Heading -> name -> (module:attribute, its line in the help). A command is imported only when it is called: a probe
# must not wait for what the others need.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Look": {
        "pending": ("redis_acker.cli.pending:pending", "List pending roots, oldest first."),
        "inspect": ("redis_acker.cli.inspect:inspect", "Show everything known about one root."),
        "stats": ("redis_acker.cli.stats:stats", "Show counters, rates, ages and memory."),
        "top": ("redis_acker.cli.top:top", "Show what stats shows, live."),
        "ui": ("redis_acker.cli.ui:ui", "Show a live page in the browser."),
        "metrics": ("redis_acker.cli.metrics:metrics", "Serve metrics for Prometheus."),
    },
    "Act": {
        "rotate": ("redis_acker.cli.rotate:rotate", "Age every bucket; --watch runs as a service."),
        "drain": ("redis_acker.cli.drain:drain", "Take failed and expired roots out for replay."),
        "replay": ("redis_acker.cli.replay:replay", "Give failed messages back to their source."),
        "dead": ("redis_acker.cli.dead:dead", "List, show, replay and purge dead letters."),
        "runs": ("redis_acker.cli.runs:runs", "List, show and drop runs of Spark jobs."),
        "quarantine": ("redis_acker.cli.quarantine:quarantine", "List and purge what could not be read."),
        "scripts": ("redis_acker.cli.scripts:scripts", "Load the Lua scripts into the servers."),
        "pause": ("redis_acker.cli.pauses:pause", "Stop spouts from handing out messages."),
        "resume": ("redis_acker.cli.pauses:resume", "Let paused spouts go on."),
        "fail": ("redis_acker.cli.roots:fail", "Fail roots at once."),
        "extend": ("redis_acker.cli.roots:extend", "Restart the clock of pending roots."),
    },
    "Check": {
        "doctor": ("redis_acker.cli.doctor:doctor", "Check servers and settings, and say what to fix."),
        "health": ("redis_acker.cli.probes:health", "Check that every server answers."),
        "ready": ("redis_acker.cli.probes:ready", "Check that the namespace can take work."),
        "acl": ("redis_acker.cli.acl:acl", "Print least-privilege ACL rules for a role."),
    },
    "Try": {
        "demo": ("redis_acker.cli.demo:demo", "Track a Spark job that loses a worker."),
        "bench": ("redis_acker.cli.bench:bench", "Measure how fast the servers are."),
        "completion": ("redis_acker.cli.completion:completion", "Print the shell completion script."),
    },
}

_TARGETS = {name: target for group in COMMANDS.values() for name, (target, _) in group.items()}


class Commands(click.Group):
    """The commands of the table, each imported when it is called."""

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
    """Know for every message whether all the work it caused is done.

    redis-acker keeps a ledger in Redis. Every message is a root there, pending
    until its whole tree of work is completed, or it fails or times out.

    Name the servers with --url or REDIS_ACKER_URL, and the namespace with
    --namespace or REDIS_ACKER_NAMESPACE.

    \b
    Start here:
      redis-acker demo
      redis-acker doctor --url redis://localhost:6379
      redis-acker pending --url redis://localhost:6379 --older-than 5m

    Exit codes: 0 ok, 1 something is wrong, 2 usage error, 3 a server cannot be
    reached or refuses access, 4 not found, 130 interrupted.
    """

"""`redis-acker health` and `redis-acker ready`: the probes of a container or a load balancer."""

from __future__ import annotations

from dataclasses import asdict

import click

from redis_acker.cli import exits
from redis_acker.cli.options import DURATION, Store, store_options
from redis_acker.cli.output import counted
from redis_acker.errors import escaped

_timeout_option = click.option(
    "--timeout", type=DURATION, default="800ms", metavar="TIME", show_default=True, help="Give up after this time."
)


@click.command()
@_timeout_option
@store_options
def health(store: Store, timeout: int) -> None:
    """Check that every server answers.

    For liveness probes: the exit code is 0 if every server answers, 3 if one
    does not, or refuses access. The namespace need not exist.

    \b
    Examples:
      redis-acker health --url redis://localhost:6379
      redis-acker health --timeout 2s --json
    """
    from redis_acker.views.probes import Probe

    with Probe(store.target, store.namespace, timeout_s=timeout / 1000) as probe:
        found = probe.reach()
    if store.out.as_json:
        store.out.document("health", found)
    else:
        store.out.line(f"OK: {'the server' if found.servers == 1 else f'all {found.servers} servers'} answered.")


@click.command()
@_timeout_option
@store_options
@click.pass_context
def ready(ctx: click.Context, store: Store, timeout: int) -> None:
    """Check that the namespace can take work.

    For readiness probes: every shard is there, no server is out of memory, and
    rotation is not overdue. The exit code is 0 if that is so, 1 if it is not,
    3 if a server cannot be reached, 4 if the namespace does not exist.

    \b
    Examples:
      redis-acker ready --namespace shop
      until redis-acker ready; do sleep 1; done
    """
    from redis_acker.views.probes import Probe

    with Probe(store.target, store.namespace, timeout_s=timeout / 1000) as probe:
        found = probe.readiness()
    if store.out.as_json:
        store.out.document("ready", {"ready": not found.problems, **asdict(found)})
    elif not found.problems:
        store.out.line(f"Ready: {counted(found.shards, 'shard')}, memory left, rotation on time.")
    for problem in found.problems:
        click.echo(escaped(f"Error: {problem}"), err=True)
    if found.problems:
        ctx.exit(exits.PROBLEM if found.shards else exits.NOT_FOUND)

"""`redis-acker ready`: a probe that asks whether the namespace can take work."""

from __future__ import annotations

from dataclasses import asdict

import click

from redis_acker.cli import exits
from redis_acker.cli.health import TIMEOUT_OPTION
from redis_acker.cli.options import Store, store_options


@click.command()
@TIMEOUT_OPTION
@store_options
@click.pass_context
def ready(ctx: click.Context, store: Store, timeout: int) -> None:
    """Tell whether the namespace can take work.

    For a readiness probe: every shard is there, no server is out of memory, and
    rotation is not overdue. The exit code is 0 if all is well, 1 if something
    is not, 3 if a server cannot be reached, 4 if the namespace does not exist.

    \b
    Examples:
      redis-acker ready --namespace shop
      until redis-acker ready; do sleep 1; done
    """
    from redis_acker.probes import Probe

    with Probe(store.target, store.namespace, timeout_s=timeout / 1000) as probe:
        found = probe.look_whether_ready()
    if store.out.as_json:
        store.out.document("ready", {"ready": not found.problems, **asdict(found)})
    elif not found.problems:
        store.out.line(f"Ready: {found.shards} shard{'' if found.shards == 1 else 's'}, memory left, rotation in time.")
    for problem in found.problems:
        click.echo(f"Error: {problem}", err=True)
    if found.problems:
        ctx.exit(exits.PROBLEM if found.shards else exits.NOT_FOUND)

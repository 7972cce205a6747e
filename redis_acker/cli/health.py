"""`redis-acker health`: a probe that asks whether every shard can be reached."""

from __future__ import annotations

import click

from redis_acker.cli.options import DURATION, Store, store_options

TIMEOUT_OPTION = click.option(
    "--timeout", type=DURATION, default="800ms", metavar="TIME", show_default=True, help="Give up after this time."
)


@click.command()
@TIMEOUT_OPTION
@store_options
def health(store: Store, timeout: int) -> None:
    """Tell whether every shard can be reached.

    For the liveness probe of a container or a load balancer: the exit code is 0
    if every server answers, 3 if one does not, or refuses access. The namespace
    need not exist.

    \b
    Examples:
      redis-acker health --url redis://localhost:6379
      redis-acker health --timeout 2s --json
    """
    from redis_acker.probes import Probe

    with Probe(store.target, store.namespace, timeout_s=timeout / 1000) as probe:
        found = probe.reach()
    if store.out.as_json:
        store.out.document("health", found)
    else:
        store.out.line(f"Well: {'the server' if found.servers == 1 else f'all {found.servers} servers'} answered.")

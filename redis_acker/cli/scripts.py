"""`redis-acker scripts`: brings the Lua scripts to the servers."""

from __future__ import annotations

from functools import partial

import click

from redis_acker.cli.options import PATIENCE_S, Store, store_options
from redis_acker.cli.output import counted
from redis_acker.errors import AccessDenied, ServerUnavailable


@click.group()
def scripts() -> None:
    """Load the Lua scripts into the servers.

    A server knows no scripts after a restart or failover. Drivers and rotators
    load them on every server; executors may run them, but not load any.

    \b
    Examples:
      redis-acker scripts load
      redis-acker scripts load --url redis://localhost:6379 --json
    """


@scripts.command()
@store_options
def load(store: Store) -> None:
    """Load the scripts on every server that does not know them.

    For users of the roles spout, rotator and operator. Needed only where
    executors start before any driver or rotator. May be run at any time and
    by many at once; the namespace need not exist.

    \b
    Examples:
      redis-acker scripts load
      redis-acker scripts load --json | jq .loaded
    """
    from redis_acker.store.connect import open_servers
    from redis_acker.store.keys import key_prefix
    from redis_acker.store.scripts import every_script
    from redis_acker.store.transport import Transport, is_denied, why

    servers = open_servers(store.target, partial(key_prefix, store.namespace))
    try:
        results = Transport(servers, retry_for_s=PATIENCE_S).load_scripts()
    finally:
        servers.close()
    for one in results:
        if one.error is not None and is_denied(one.error):
            raise AccessDenied(
                f"{one.server} does not let this user load scripts ({why(one.error)}): use one of the role spout, "
                "rotator or operator."
            )
        if one.error is not None:
            raise ServerUnavailable(
                f"{one.server} did not answer ({why(one.error)}): check that it runs and can be reached."
            )
    total = len(every_script())
    if store.out.as_json:
        data = [{"server": one.server, "loaded": one.scripts, "known": total - one.scripts} for one in results]
        store.out.lines("scripts_loaded", data)
        return
    for one in results:
        store.out.line(f"{one.server}: {counted(one.scripts, 'script')} loaded, {total - one.scripts} were there.")

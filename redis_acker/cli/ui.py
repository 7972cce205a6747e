"""`redis-acker ui`: a live page in the browser."""

from __future__ import annotations

import logging
import secrets

import click

from redis_acker.cli.logs import start_logs
from redis_acker.cli.options import Store, store_options
from redis_acker.cli.services import listening_options, needs, stop_signal, try_store
from redis_acker.errors import BadInput

DEFAULT_PORT = 8464

TOKEN_VARIABLE = "REDIS_ACKER_UI_TOKEN"

LEAST_TOKEN = 12
"""Characters of a token."""

log = logging.getLogger(__name__)


@click.command()
@listening_options(DEFAULT_PORT, can="look")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A host name to answer to.")
@click.option("--allow-actions", is_flag=True, help="Allow actions with the token.")
@click.option(
    "--token", envvar=TOKEN_VARIABLE, metavar="TEXT", help=f"The token; made up if missing.  [env: {TOKEN_VARIABLE}]"
)
@store_options
def ui(store: Store, port: int, address: str, hosts: tuple[str, ...], allow_actions: bool, token: str | None) -> None:
    """Show a live page in the browser.

    Rates, pending roots by age, latency, spouts, shards, servers, failures, one
    root's story and the dead letters, until SIGTERM or Ctrl-C. However many
    pages are open, the store is read once every two seconds.

    With --allow-actions, those who enter the token may replay and purge dead
    letters, fail and extend roots, and pause and resume spouts.

    \b
    Examples:
      redis-acker ui
      redis-acker ui --allow-actions
      redis-acker ui --address 0.0.0.0 --allow-host ops.example.com
    """
    if token is not None and len(token) < LEAST_TOKEN:
        raise BadInput(f"The token has {len(token)} characters: use {LEAST_TOKEN} or more.")
    with needs("ui"):
        from redis_acker.ui.poller import Poller
        from redis_acker.ui.server import PageServer
    start_logs(as_json=store.out.as_json)
    stop = stop_signal()
    try_store(store)
    made_up = secrets.token_urlsafe(16) if allow_actions and token is None else None
    poller = Poller(lambda: store.acker)
    server = PageServer(
        poller,
        namespace=store.namespace,
        token=(token or made_up) if allow_actions else None,
        port=port,
        address=address,
        hosts=hosts,
    )
    poller.start()
    log.info("Serving the page.", extra={"namespace": store.namespace, "url": server.url})
    if made_up:
        click.echo(f"Token for actions: {made_up}", err=True)  # for whoever started it, and not for the log
    server.run(stop)
    poller.stop()
    log.info("Stopped.")

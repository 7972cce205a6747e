"""`redis-acker metrics`: an endpoint for Prometheus."""

from __future__ import annotations

import logging

import click

from redis_acker.cli.logs import start_logs
from redis_acker.cli.options import Store, store_options
from redis_acker.cli.services import listening_options, needs, stop_signal, try_store

log = logging.getLogger(__name__)

DEFAULT_PORT = 9464
"""Among the ports that Prometheus exporters have chosen, OpenTelemetry's."""


@click.command()
@listening_options(DEFAULT_PORT, can="read the metrics")
@store_options
def metrics(store: Store, port: int, address: str) -> None:
    """Serve metrics for Prometheus.

    Counters, ages and latencies of one namespace under /metrics, until SIGTERM
    or Ctrl-C. A scrape costs the store the same however many roots are pending.
    While a server is down, redis_acker_up is 0.

    \b
    Examples:
      redis-acker metrics --port 9464
      redis-acker metrics --port 9464 --address 0.0.0.0 --json
    """
    with needs("metrics"):
        from redis_acker.metrics.exporter import MetricsServer, StoreCollector
    start_logs(as_json=store.out.as_json)
    stop = stop_signal()
    try_store(store)
    with MetricsServer(
        StoreCollector(lambda: store.acker, namespace=store.namespace), port=port, address=address
    ) as server:
        log.info("Serving metrics.", extra={"namespace": store.namespace, "url": server.url})
        stop.wait()
    log.info("Stopped.")

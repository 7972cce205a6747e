"""`python -m benchmarks store|spark|stream|topology`: what the product costs, on a server of its own."""

from __future__ import annotations

import sys

import click

from benchmarks import store, topology
from redis_acker.errors import AckerError


@click.group()
def main() -> None:
    """Measures redis-acker on servers that it starts and stops itself."""


@main.command("store")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def store_command(as_json: bool) -> None:
    """Throughput, memory and the longest script call of the store.

    REDIS_ACKER_SERVER names another server to start. The table says which targets are met; the exit code does not.
    """
    report = store.measure(lambda text: click.echo(text, err=True))
    click.echo(report.as_json() if as_json else report.as_table())


@main.command("spark")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option(
    "--messages",
    "sizes",
    multiple=True,
    type=click.IntRange(min=1),
    help="Messages of a job in which the driver's memory is looked at; give it twice or more.  [1, 10 and 20 million]",
)
def spark_command(as_json: bool, sizes: tuple[int, ...]) -> None:
    """Wall time of tracked Spark jobs, relative to the same jobs untracked; and what they hold in memory."""
    from benchmarks import spark, spark_driver

    report = spark.measure(lambda text: click.echo(text, err=True), sizes or spark_driver.MESSAGES)
    click.echo(report.as_json() if as_json else report.as_table())


@main.command("stream")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def stream_command(as_json: bool) -> None:
    """Wall time of a tracked stream, relative to the same streaming query untracked, and its latency."""
    from benchmarks import stream

    report = stream.measure(lambda text: click.echo(text, err=True))
    click.echo(report.as_json() if as_json else report.as_table())


@main.command("topology")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def topology_command(as_json: bool) -> None:
    """Throughput, latency and idle cost of a topology in threads, with and without acker; beside bare calls."""
    report = topology.measure(lambda text: click.echo(text, err=True))
    click.echo(report.as_json() if as_json else report.as_table())


try:
    main(prog_name="python -m benchmarks")
except AckerError as error:
    click.echo(f"Error: {error}", err=True)
    sys.exit(1)

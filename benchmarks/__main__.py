"""`python -m benchmarks store|spark`: what the product costs, on a server of its own."""

from __future__ import annotations

import sys

import click

from benchmarks import store
from redis_acker.errors import AckerError


@click.group()
def main() -> None:
    """Measures the product on servers that it starts and stops itself."""


@main.command("store")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of the table.")
def store_command(as_json: bool) -> None:
    """Throughput, memory and the longest script call of the store.

    REDIS_ACKER_SERVER names another server to start. The exit code says nothing of the targets: the table does.
    """
    report = store.measure(lambda text: click.echo(text, err=True))
    click.echo(report.as_json() if as_json else report.as_table())


@main.command("spark")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of the table.")
def spark_command(as_json: bool) -> None:
    """Wall time of tracked Spark jobs, for each second of the same jobs untracked."""
    from benchmarks import spark

    report = spark.measure(lambda text: click.echo(text, err=True))
    click.echo(report.as_json() if as_json else report.as_table())


try:
    main(prog_name="python -m benchmarks")
except AckerError as error:
    click.echo(f"Error: {error}", err=True)
    sys.exit(1)

"""`redis-acker stats`: the whole namespace in a few tables."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli.options import DURATION, Store, store_options
from redis_acker.cli.output import Output, Row
from redis_acker.views.probes import is_overdue
from redis_acker.views.texts import byte_size, duration

if TYPE_CHECKING:
    from redis_acker.views.overview import Overview, Rates, SpoutView


MOST_ROWS = 20
"""Spouts and shards that people are shown; JSON has all of them."""


@dataclass(frozen=True)
class Table:
    """One table of a frame."""

    columns: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Frame:
    """What is shown at one moment, by stats and by top."""

    title: str
    summary: str
    tables: list[Table]


@click.command()
@click.option(
    "--interval",
    type=DURATION,
    default="1s",
    metavar="TIME",
    show_default=True,
    help="Time over which rates are measured.",
)
@store_options
def stats(store: Store, interval: int) -> None:
    """Show counters, rates, ages and memory.

    Pending roots by spout and shard, roots per second, the age of the oldest
    root, failures by reason, what waits in the streams, and the memory of every
    server. Counters start when the namespace is created.

    \b
    Examples:
      redis-acker stats
      redis-acker stats --interval 10s
      redis-acker stats --json | jq '.spouts[] | {name, pending, oldest_ms}'
    """
    from redis_acker.views.overview import rates, read_overview

    before = read_overview(store.acker, most_blocks=0)
    time.sleep(interval / 1000)
    after = read_overview(store.acker)
    if store.out.as_json:
        store.out.document("stats", as_json(after, rates(before, after)))
    else:
        show(store.out, frame(after, rates(before, after)))


def show(out: Output, found: Frame) -> None:
    out.line(found.title, bold=True)
    out.line(found.summary)
    for table in found.tables:
        if table.rows:
            out.line()
            out.table(table.columns, table.rows)


def frame(view: Overview, speed: dict[str, Rates]) -> Frame:
    settings = view.settings
    title = (
        f"{view.namespace}: {view.pending:,} pending, timeout {duration(settings.timeout_ms)}, "
        f"{settings.buckets} buckets, {settings.shards} shard{'' if settings.shards == 1 else 's'}"
    )
    if max(len(view.spouts), len(view.shards)) > MOST_ROWS:
        title += f"; showing the {MOST_ROWS} busiest spouts and shards"
    tables = [_now(view, speed), _so_far(view), _streams(view), _shards(view), _servers(view)]
    return Frame(title, _summary(view), tables)


def _summary(view: Overview) -> str:
    if view.pending <= 0:
        oldest = "No root is pending"
    elif view.oldest_ms is None:
        oldest = "The oldest root was not found"
    else:
        oldest = f"The oldest root is {duration(view.oldest_ms)} old"
        oldest += "" if view.is_oldest_exact else " or more"
    if view.quarantined:
        oldest += f"; {view.quarantined:,} in quarantine"
    if is_overdue(-view.overdue_ms, view.settings.tick_ms):
        return f"{oldest}; rotation is {duration(view.overdue_ms)} overdue: is a rotator running?"
    due_ms = min(one.due_in_ms for one in view.shards)
    return f"{oldest}; the next rotation is due {f'in {duration(due_ms)}' if due_ms > 0 else 'now'}."


def busiest(spouts: Iterable[SpoutView]) -> list[SpoutView]:
    """Those with the most pending roots: a screen has no room for hundreds."""
    return sorted(spouts, key=lambda one: (-one.stats.pending, one.name))[:MOST_ROWS]


def _now(view: Overview, speed: dict[str, Rates]) -> Table:
    rows: list[Row] = [
        (
            f"{one.name} (paused)" if one.paused_ms is not None else one.name,
            one.lag,
            one.stats.pending,
            duration(one.oldest_ms),
            f"{speed[one.name].initialised:,.0f}",
            f"{speed[one.name].completed:,.0f}",
            f"{speed[one.name].failed:,.0f}",
            f"{speed[one.name].timeout:,.0f}",
        )
        for one in busiest(view.spouts)
    ]
    return Table(("spout", "lag", "pending", "oldest", "init/s", "completed/s", "failed/s", "timeout/s"), rows)


def _so_far(view: Overview) -> Table:
    rows: list[Row] = [
        (
            one.name,
            one.stats.initialised,
            one.stats.completed,
            one.stats.failed,
            one.stats.timeout,
            one.retries,
            one.dead,
            one.unread_completions + one.unread_failures,
        )
        for one in busiest(view.spouts)
    ]
    return Table(("spout", "init", "completed", "failed", "timeout", "retries", "dead", "unread"), rows)


def _streams(view: Overview) -> Table:
    rows: list[Row] = [
        (one.name, one.micro_batches, "gone" if one.driver is None else "alive")
        for one in busiest(one for one in view.spouts if one.micro_batches is not None)
    ]
    return Table(("tracked stream", "micro-batches", "driver"), rows)


def _shards(view: Overview) -> Table:
    rows: list[Row] = [
        (
            str(one.shard),
            one.stats.pending,
            duration(one.oldest_ms),
            duration(one.due_in_ms),
            one.stats.waits,
            one.stats.late,
            one.stats.duplicates,
            one.stats.orphans,
            one.server,
        )
        for one in sorted(view.shards, key=lambda one: -one.stats.pending)[:MOST_ROWS]
    ]
    return Table(("shard", "pending", "oldest", "due in", "waits", "late", "dupl.", "orphans", "server"), rows)


def _servers(view: Overview) -> Table:
    rows: list[Row] = [
        (
            one.address,
            one.version or one.error,
            byte_size(one.used_memory),
            byte_size(one.max_memory) if one.max_memory else "no limit" if one.info else None,
            None if one.latency_ms is None else f"{one.latency_ms:.1f} ms",
        )
        for one in view.servers
    ]
    return Table(("server", "version", "memory", "of", "latency"), rows)


def as_json(view: Overview, speed: dict[str, Rates]) -> dict[str, Any]:
    """An overview, as in the JSON schema."""
    return {
        "namespace": view.namespace,
        "settings": asdict(view.settings),
        "pending": view.pending,
        "oldest_ms": view.oldest_ms,
        "is_oldest_exact": view.is_oldest_exact,
        "rotation_overdue_ms": view.overdue_ms,
        "spouts": [
            {
                **asdict(one.stats),
                "pending": one.stats.pending,
                "oldest_ms": one.oldest_ms,
                "per_second": {name: round(value, 2) for name, value in asdict(speed[one.name]).items()},
                "latency_p50_ms": one.latency.at_most_ms(0.5),
                "latency_p99_ms": one.latency.at_most_ms(0.99),
                "driver": one.driver,
                "paused_ms": one.paused_ms,
                "lag": one.lag,
                "micro_batches": one.micro_batches,
                "retries": one.retries,
                "dead": one.dead,
                "unread_completions": one.unread_completions,
                "unread_failures": one.unread_failures,
            }
            for one in view.spouts
        ],
        "shards": [
            {
                **asdict(one.stats),
                "server": one.server,
                "oldest_ms": one.oldest_ms,
                "due_in_ms": one.due_in_ms,
                "blocks": list(one.blocks),
                "expired_blocks": one.expired_blocks,
                "quarantined": one.quarantined,
            }
            for one in view.shards
        ],
        "components": [{"component": name, "failed": count} for name, count in view.components.items()],
        "servers": [
            {
                "address": one.address,
                "shards": list(one.shards),
                "version": one.version,
                "error": one.error,
                "latency_ms": None if one.latency_ms is None else round(one.latency_ms, 3),
                "used_memory": one.used_memory,
                "max_memory": one.max_memory,
            }
            for one in view.servers
        ],
    }

"""`redis-acker pending`: which roots are pending, oldest first."""

from __future__ import annotations

from typing import Any

import click

from redis_acker.cli.options import AGE, Store, store_options
from redis_acker.cli.output import duration, id_as_json, id_text, root_text
from redis_acker.views import PendingRoot, oldest_first

LIMIT = 50
"""Roots that a person is shown unless asked for more."""

COLUMNS = ("root", "spout", "message id", "attempt", "age", "shard", "bucket")


@click.command()
@click.option("--older-than", type=AGE, default=0, metavar="AGE", help="At least this old: 90s, 5m, 2h, or seconds.")
@click.option("--spout", metavar="NAME", help="Of this spout alone.")
@click.option("--shard", type=click.IntRange(0), metavar="N", help="Of this shard alone.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"At most so many.  [default: {LIMIT}; with --json no limit]"
)
@click.option("--all", "everything", is_flag=True, help="All of them, streamed.")
@store_options
def pending(
    store: Store, older_than: int, spout: str | None, shard: int | None, limit: int | None, everything: bool
) -> None:
    """List pending roots, oldest first.

    A root is pending from its init to its final event: completed, failed or
    timed out. With a limit the oldest are shown; --all streams every one, the
    oldest bucket first. Roots are read a page at a time: a listing of millions
    neither fills memory nor holds up the server.

    \b
    Examples:
      redis-acker pending
      redis-acker pending --older-than 5m --spout orders
      redis-acker pending --all | grep 4711
      redis-acker pending --json | jq -r .root
    """
    if everything and limit is not None:
        raise click.UsageError("--all has no limit: leave out --all or --limit.")
    roots = store.acker.pending(spout=spout, shard=shard, older_than_ms=older_than)
    if limit is None and not everything and not store.out.as_json:
        limit = LIMIT
    chosen = roots if limit is None else iter(oldest_first(roots, limit))
    if store.out.as_json:
        store.out.lines("pending", map(_as_json, chosen))
        return
    count = store.out.table(COLUMNS, map(_as_row, chosen))
    if count == 0:
        is_any = not (older_than or spout or shard is not None)
        store.out.note("No root is pending." if is_any else "No such root is pending.")
    elif count == limit:
        _note_the_rest(store, count, spout, is_filtered=bool(older_than) or shard is not None)


def _note_the_rest(store: Store, count: int, spout: str | None, *, is_filtered: bool) -> None:
    """How many more there are; counters know it only of all, and of a spout."""
    if is_filtered:
        store.out.note(f"The first {count:,} are shown; --all shows every one.")
    elif (more := store.acker.pending_count(spout) - count) > 0:
        store.out.note(f"{more:,} more; --all shows them.")


def _as_row(root: PendingRoot) -> tuple[Any, ...]:
    return (
        root_text(root.root),
        root.spout,
        id_text(root.message_id),
        root.attempt,
        duration(root.age_ms),
        root.shard,
        root.bucket,
    )


def _as_json(root: PendingRoot) -> dict[str, Any]:
    return {
        "root": root_text(root.root),
        "spout": root.spout,
        "message_id": id_as_json(root.message_id),
        "attempt": root.attempt,
        "age_ms": root.age_ms,
        "shard": root.shard,
        "bucket": root.bucket,
    }

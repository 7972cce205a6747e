"""`redis-acker pending`: lists pending roots, oldest first."""

from __future__ import annotations

from typing import Any

import click

from redis_acker.cli.options import DURATION, MOST, Store, store_options
from redis_acker.store.message_ids import id_to_json
from redis_acker.store.pending import PendingRoot, oldest_first
from redis_acker.views.texts import duration, id_text, root_text

LIMIT = 50
"""Roots that people are shown unless they ask for more."""

COLUMNS = ("root", "spout", "message id", "attempt", "age", "shard", "bucket")


@click.command()
@click.option("--older-than", type=DURATION, default=0, metavar="AGE", help="Only this old: 90s, 5m, 2h, or seconds.")
@click.option("--spout", metavar="NAME", help="Only this spout.")
@click.option("--shard", type=click.IntRange(0), metavar="N", help="Only this shard.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), metavar="N", help=f"At most N.  [default: {LIMIT}; with --json no limit]"
)
@click.option("--all", "everything", is_flag=True, help="No limit; streamed.")
@store_options
def pending(
    store: Store, older_than: int, spout: str | None, shard: int | None, limit: int | None, everything: bool
) -> None:
    """List pending roots, oldest first.

    A root is pending from its init to its final event: completed, failed or
    timed out. A limit shows the oldest; --all streams every one, starting with
    the oldest bucket. Roots are read page by page: a listing of millions
    neither fills memory nor holds up the server.

    \b
    Examples:
      redis-acker pending
      redis-acker pending --older-than 5m --spout orders
      redis-acker pending --all | grep 4711
      redis-acker pending --json | jq -r .root
    """
    if everything and limit is not None:
        raise click.UsageError("--all means no limit: leave out --all or --limit.")
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
    """How many more there are. Counters know that only for all roots, or for one spout."""
    if is_filtered:
        store.out.note(f"Only the first {count:,} are shown; --all shows all of them.")
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
        "message_id": id_to_json(root.message_id),
        "attempt": root.attempt,
        "age_ms": root.age_ms,
        "shard": root.shard,
        "bucket": root.bucket,
    }

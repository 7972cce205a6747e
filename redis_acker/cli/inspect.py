"""`redis-acker inspect`: all that is known of one root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli import exits
from redis_acker.cli.options import ROOT, RootCommand, Store, store_options
from redis_acker.cli.output import Cell, duration, id_as_json, id_text, root_text

if TYPE_CHECKING:
    from redis_acker.views.trace import RootTrace

MEANING = {
    "pending": "waits for its final event",
    "orphan": "acks or fails came, its init has not",
    "finished": "had its final event",
    "unknown": "never seen here, or finished and forgotten",
}


@click.command(cls=RootCommand)
@click.argument("root", type=ROOT)
@store_options
@click.pass_context
def inspect(ctx: click.Context, store: Store, root: int) -> None:
    """Show all that is known of one root.

    ROOT is decimal (also signed), 0x and hex digits, or 16 hex digits. For a
    finished root the streams are searched for its final event, the newest
    entries first; readers delete what they have read. The exit code is 4 if the
    root is unknown: it never existed, or finished longer ago than the timeout.

    \b
    Examples:
      redis-acker inspect 0x6c4066be8d2d6400
      redis-acker inspect 7800446124480848896 --namespace shop
      redis-acker inspect 6c4066be8d2d6400 --json | jq .state
    """
    from redis_acker.views.trace import trace

    found = trace(store.acker, root)
    if store.out.as_json:
        store.out.document("root", as_json(found))
    else:
        store.out.fields(_fields(found, store.acker.settings.buckets))
        _show_history(store, found)
    if found.state.state == "unknown":
        ctx.exit(exits.NOT_FOUND)


def _fields(found: RootTrace, buckets: int) -> Iterator[tuple[str, Cell]]:
    state, event = found.state, found.event
    yield "root", f"{root_text(state.root)}  ({state.root})"
    yield "state", f"{state.state}: {MEANING[state.state]}"
    if event:
        yield "final event", f"{event.outcome} at {_at(event.at_ms)}, {duration(event.age_ms)} after its init"
    elif state.state == "finished":
        yield "final event", "no longer in a stream: it has been read, or was not asked for"
    yield "shard", str(state.shard)
    yield "spout", state.spout or "none of this namespace"
    if found.message_id is not None or state.state == "pending":
        yield "message id", id_text(found.message_id)
    if found.attempt is not None:
        yield "attempt", str(found.attempt)
    if state.ack_val is not None:
        yield "ack val", root_text(state.ack_val)
    if state.age_ms is not None:
        yield "age", duration(state.age_ms)
    if state.bucket is not None:
        yield "bucket", _bucket(state.bucket, buckets)
    if state.expires_in_ms is not None:
        yield "expires", f"in {duration(state.expires_in_ms)}" if state.expires_in_ms else "now: overdue"
    if event and event.outcome != "completed":
        yield "component", event.component or None
        yield "error", event.error or None
    if found.is_dead:
        yield "dead letter", "yes, its message was given up: see redis-acker dead"


def _bucket(bucket: int, buckets: int) -> str:
    names = {0: "nursery", buckets - 1: "death row", buckets: "expired, waits for the drain"}
    return f"{bucket} of 0 to {buckets - 1}" + (f" ({names[bucket]})" if bucket in names else "")


def _show_history(store: Store, found: RootTrace) -> None:
    if not found.history:
        return
    store.out.line()
    store.out.table(
        ("failed attempt", "reason", "when", "component", "error"),
        [(one.attempt, one.reason, _at(one.at_ms), one.component or None, one.error or None) for one in found.history],
    )


def _at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def as_json(found: RootTrace) -> dict[str, Any]:
    """A root and its history in the words of the schema."""
    state, event = found.state, found.event
    return {
        "root": root_text(state.root),
        "state": state.state,
        "shard": state.shard,
        "spout": state.spout,
        "message_id": id_as_json(found.message_id),
        "attempt": found.attempt,
        "ack_val": None if state.ack_val is None else root_text(state.ack_val),
        "age_ms": state.age_ms,
        "bucket": state.bucket,
        "expires_in_ms": state.expires_in_ms,
        "event": None if event is None else {**asdict(event), "message_id": id_as_json(event.message_id)},
        "history": [asdict(one) for one in found.history],
        "is_dead": found.is_dead,
    }

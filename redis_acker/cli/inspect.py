"""`redis-acker inspect`: everything known about one root."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli import exits
from redis_acker.cli.options import ROOT, RootCommand, Store, store_options
from redis_acker.views.texts import moment, root_text

if TYPE_CHECKING:
    from redis_acker.views.trace import RootTrace


@click.command(cls=RootCommand)
@click.argument("root", type=ROOT)
@store_options
@click.pass_context
def inspect(ctx: click.Context, store: Store, root: int) -> None:
    """Show everything known about one root.

    ROOT is decimal (also signed), 0x and hex digits, or 16 hex digits. For a
    finished root, the newest stream entries are searched for its final event;
    readers delete what they have read. The exit code is 4 if the root is
    unknown: it never existed, or finished longer ago than the timeout.

    \b
    Examples:
      redis-acker inspect 0x6c4066be8d2d6400
      redis-acker inspect 7800446124480848896 --namespace shop
      redis-acker inspect 6c4066be8d2d6400 --json | jq .state
    """
    from redis_acker.views.trace import story, trace

    found = trace(store.acker, root)
    if store.out.as_json:
        store.out.document("root", as_json(found))
    else:
        store.out.fields(story(found, store.acker.settings.buckets))
        _show_history(store, found)
    if found.state.state == "unknown":
        ctx.exit(exits.NOT_FOUND)


def _show_history(store: Store, found: RootTrace) -> None:
    if not found.history:
        return
    store.out.line()
    store.out.table(
        ("failed attempt", "reason", "when", "component", "error"),
        [
            (one.attempt, one.reason, moment(one.at_ms), one.component or None, one.error or None)
            for one in found.history
        ],
    )


def as_json(found: RootTrace) -> dict[str, Any]:
    """A root and its history, as in the JSON schema."""
    from redis_acker.store.message_ids import id_to_json

    state, event = found.state, found.event
    return {
        "root": root_text(state.root),
        "state": state.state,
        "shard": state.shard,
        "spout": state.spout,
        "message_id": id_to_json(found.message_id),
        "attempt": found.attempt,
        "ack_val": None if state.ack_val is None else root_text(state.ack_val),
        "age_ms": state.age_ms,
        "bucket": state.bucket,
        "expires_in_ms": state.expires_in_ms,
        "event": None if event is None else {**asdict(event), "message_id": id_to_json(event.message_id)},
        "history": [asdict(one) for one in found.history],
        "is_dead": found.is_dead,
    }

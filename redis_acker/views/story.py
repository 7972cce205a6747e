"""What is known of one root, line by line, in the words of people."""

from __future__ import annotations

from collections.abc import Iterator

from redis_acker.views.texts import Cell, duration, id_text, moment, root_text
from redis_acker.views.trace import RootTrace

MEANING = {
    "pending": "waits for its final event",
    "orphan": "has acks or fails, but no init yet",
    "finished": "had its final event",
    "unknown": "never seen here, or finished and forgotten",
}


def story(found: RootTrace, buckets: int) -> Iterator[tuple[str, Cell]]:
    state, event = found.state, found.event
    yield "root", f"{root_text(state.root)}  ({state.root})"
    yield "state", f"{state.state}: {MEANING[state.state]}"
    if event:
        yield "final event", f"{event.outcome} at {moment(event.at_ms)}, {duration(event.age_ms)} after its init"
    elif state.state == "finished":
        yield "final event", "no longer in a stream: it was read, or not asked for"
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
        yield "bucket", bucket_text(state.bucket, buckets)
    if state.expires_in_ms is not None:
        yield "expires", f"in {duration(state.expires_in_ms)}" if state.expires_in_ms else "now: overdue"
    if event and event.outcome != "completed":
        yield "component", event.component or None
        yield "error", event.error or None
    if found.is_dead:
        yield "dead letter", "yes, its message was given up: see redis-acker dead show"


def bucket_text(bucket: int, buckets: int) -> str:
    names = {0: "nursery", buckets - 1: "death row", buckets: "expired, waits for the drain"}
    return f"{bucket} of 0 to {buckets - 1}" + (f" ({names[bucket]})" if bucket in names else "")

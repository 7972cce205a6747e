"""One root and what became of it: its final event if a stream still holds it, and the attempts before this one.

story() tells it line by line, in the words of people.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Literal

from redis_acker.errors import Unreadable
from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry
from redis_acker.store.ids import spout_of
from redis_acker.store.message_ids import MessageId, id_to_text
from redis_acker.store.pending import RootState
from redis_acker.store.streams import Completion, Failure, Kind, parse_entry
from redis_acker.views.texts import Cell, duration, id_text, moment, root_text

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

KINDS: tuple[Kind, ...] = ("failures", "completions")

MOST_ENTRIES = 2_000
"""How many entries of a stream to search for a root, newest first."""

MEANING = {
    "pending": "waits for its final event",
    "orphan": "has acks or fails, but no init yet",
    "finished": "had its final event",
    "unknown": "never seen here, or finished and forgotten",
}


@dataclass(frozen=True)
class FinalEvent:
    """The final event of a root, from its stream."""

    outcome: Literal["completed", "failed", "timeout"]
    at_ms: int
    age_ms: int
    """Time from init to the event."""
    message_id: MessageId | None
    attempt: int | None
    component: str | None = None
    error: str | None = None
    fatal: bool = False


@dataclass(frozen=True)
class RootTrace:
    """A root and its history."""

    state: RootState
    event: FinalEvent | None = None
    """None for a root that is not finished, or whose event is gone: readers delete what they have read."""
    history: list[FailedAttempt] = field(default_factory=list)
    """Failed attempts at its message, oldest first, from the retry book or the dead letters."""
    is_dead: bool = False
    """Whether its message was given up."""

    @property
    def message_id(self) -> MessageId | None:
        return self.event.message_id if self.event else self.state.message_id

    @property
    def attempt(self) -> int | None:
        return self.event.attempt if self.event else self.state.attempt


def trace(acker: Acker, root: int) -> RootTrace:
    """Looks a root up everywhere. Searches a bounded number of stream entries, so an older event is not found."""
    state = acker.inspect(root)
    event = _find_event(acker, state) if state.state in ("finished", "unknown") and state.spout else None
    if event and state.state == "unknown":
        state = RootState(state.root, "finished", state.shard, state.spout)
    message_id = event.message_id if event else state.message_id
    if message_id is None:
        return RootTrace(state, event)
    history, is_dead = _history(acker, spout_of(state.root), message_id)
    return RootTrace(state, event, history, is_dead)


def _find_event(acker: Acker, state: RootState) -> FinalEvent | None:
    for kind in KINDS:
        entries = acker.shards.entries(kind, spout_of(state.root), state.shard, newest_first=True)
        for entry, fields in islice(entries, MOST_ENTRIES):
            try:
                events = parse_entry(kind, state.shard, entry, fields)
            except Unreadable:
                continue  # its reader sets it aside
            found = (events.roots == state.root).nonzero()[0]
            if len(found):
                return _event(events, int(found[0]))
    return None


def _event(events: Completion | Failure, at: int) -> FinalEvent:
    message_id, attempt, age_ms = events.message_ids[at], events.attempts[at], events.ages_ms[at]
    if not isinstance(events, Failure):
        # A completion carries id and attempt only if the init asked for that.
        return FinalEvent("completed", events.at_ms, age_ms, message_id, attempt if message_id is not None else None)
    reason: Literal["failed", "timeout"] = "timeout" if events.reason == "timeout" else "failed"
    return FinalEvent(reason, events.at_ms, age_ms, message_id, attempt, events.component, events.error, events.fatal)


def _history(acker: Acker, spout: int, message_id: MessageId) -> tuple[list[FailedAttempt], bool]:
    name = id_to_text(message_id)
    letter = acker.shards.dead(spout).get(name)
    if letter is not None:
        with contextlib.suppress(Unreadable):
            return DeadLetter.from_json(acker.spout_names()[spout], name.encode(), letter).history, True
    histories: list[list[FailedAttempt]] = []
    for retry in (acker.shards.retries(spout).get(name), acker.shards.requests(spout).get(name)):
        with contextlib.suppress(Unreadable):
            histories += [Retry.from_json(retry).history] if retry else []
    return max(histories, key=len, default=[]), False


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

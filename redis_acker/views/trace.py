"""One root and what became of it: its final event if a stream still holds it, and the attempts before this one."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Literal

from redis_acker.errors import Unreadable
from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry
from redis_acker.store.ids import spout_of
from redis_acker.store.message_ids import MessageId, id_to_text
from redis_acker.store.pending import RootState
from redis_acker.store.streams import Completion, Failure, Kind, parse_entry

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

KINDS: tuple[Kind, ...] = ("failures", "completions")

MOST_ENTRIES = 2_000
"""How many entries of a stream to search for a root, newest first."""


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

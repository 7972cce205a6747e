"""One root with what became of it: its final event where a stream still holds it, and the attempts before this one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from redis_acker.ids import spout_of
from redis_acker.message_ids import MessageId
from redis_acker.outcomes import Completion, Failure, parse_entry
from redis_acker.retries import DeadLetter, FailedAttempt, Retry, encode_id
from redis_acker.transport import Command
from redis_acker.views.roots import RootState

if TYPE_CHECKING:
    from redis_acker.acker import Acker

MOST_ENTRIES = 2_000
"""Entries of a stream that are looked through for a root, the newest first."""

_AT_ONCE = 50


@dataclass(frozen=True)
class FinalEvent:
    """The final event of a root, out of its stream."""

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
    """None for a root that is not finished, and where nobody knows any more: readers delete what they have read."""
    history: list[FailedAttempt] = field(default_factory=list)
    """Failed attempts at its message that the retry book or the dead letters hold, oldest first."""
    is_dead: bool = False
    """Whether its message was given up."""

    @property
    def message_id(self) -> MessageId | None:
        return self.event.message_id if self.event else self.state.message_id

    @property
    def attempt(self) -> int | None:
        return self.event.attempt if self.event else self.state.attempt


def trace(acker: Acker, root: int) -> RootTrace:
    """Looks a root up everywhere. Reads a bounded number of stream entries: an older event is not found."""
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
    keys, spout = acker.shard_keys[state.shard], spout_of(state.root)
    for key in (keys.failures(spout), keys.completions(spout)):
        for outcome in _newest_first(acker, state.shard, key):
            found = (outcome.roots == state.root).nonzero()[0]
            if len(found):
                return _event(outcome, int(found[0]))
    return None


def _newest_first(acker: Acker, shard: int, key: str) -> Iterator[Completion | Failure]:
    last, left = "+", MOST_ENTRIES
    while left > 0:
        entries = acker.transport.run_one(Command(shard, ("XREVRANGE", key, last, "-", "COUNT", _AT_ONCE)))
        for entry, flat in entries:
            yield parse_entry(shard, entry, flat)
        if len(entries) < _AT_ONCE:
            return
        last, left = f"({entries[-1][0].decode()}", left - len(entries)


def _event(outcome: Completion | Failure, at: int) -> FinalEvent:
    message_id, attempt, age_ms = outcome.message_ids[at], outcome.attempts[at], outcome.ages_ms[at]
    if not isinstance(outcome, Failure):
        # A completion carries id and attempt only if the init asked for it.
        return FinalEvent("completed", outcome.at_ms, age_ms, message_id, attempt if message_id is not None else None)
    reason: Literal["failed", "timeout"] = "timeout" if outcome.reason == "timeout" else "failed"
    return FinalEvent(
        reason, outcome.at_ms, age_ms, message_id, attempt, outcome.component, outcome.error, outcome.fatal
    )


def _history(acker: Acker, spout: int, message_id: MessageId) -> tuple[list[FailedAttempt], bool]:
    keys, name = acker.shard_keys[0], encode_id(message_id)
    places = (keys.dead(spout), keys.retries(spout), keys.requests(spout))
    letter, *retries = acker.transport.run(Command(0, ("HGET", key, name)) for key in places)
    if letter is not None:
        return DeadLetter.from_json(letter).history, True
    histories = [Retry.from_json(retry).history for retry in retries if retry is not None]
    return max(histories, key=len, default=[]), False

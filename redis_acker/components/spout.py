"""Spouts: the components that read messages from a source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redis_acker.components.component import Component, TaskContext
from redis_acker.components.tuples import DEFAULT_STREAM
from redis_acker.store.message_ids import MessageId


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a source. Without an id it is emitted but not tracked."""

    values: Sequence[Any]
    id: MessageId | None = None
    stream: str = DEFAULT_STREAM
    error: str = ""
    """Why it cannot be read: it is not emitted but becomes a dead letter at once."""
    anchors: bytes = b""
    """Those with which another program handed it over; AnchoredSpout takes it in by them."""


class Spout(Component):
    """Reads messages from a source. Its driver calls it from one thread.

    A message that was handed out is unfinished until ack, fail or dead is called with its id. After a restart, the
    spout of a durable source hands out its unfinished messages again, under the same ids; the driver skips those that
    are still in flight.
    """

    def open(self, context: TaskContext) -> None:
        """Called once, before the first batch."""

    def next_batch(self, limit: int) -> Iterable[Message]:
        """At most limit messages, new ones and replays. Empty when there are none now; must not wait long."""
        raise NotImplementedError

    def ack(self, message_id: MessageId) -> None:
        """The message is fully processed."""

    def fail(self, message_id: MessageId) -> None:
        """The message failed and its backoff is over: hand it out again."""

    def dead(self, message_id: MessageId) -> None:
        """The message is given up and its dead letter is stored. By default the same as ack()."""
        self.ack(message_id)

    def commit(self) -> None:
        """Makes the acks so far durable. Called before the store forgets about them."""

    def keep_alive(self) -> None:
        """Called in every round, also when there is no room for new messages. Must not wait."""

    def lag(self) -> int | None:
        """How many messages wait in the source and were not handed out, for people to see; None if it cannot tell.
        Asked every few seconds, also while the spout is paused. Must not wait."""
        return None

    def close(self) -> None:
        """Called once, at the end."""

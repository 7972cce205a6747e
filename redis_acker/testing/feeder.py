"""A spout that a test feeds message by message."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from redis_acker.components.spout import Message, Spout
from redis_acker.store.message_ids import MessageId


class FeederSpout(Spout):
    """Hands out what feed() was given, and keeps what it is told. For one task."""

    def __init__(self, fields: Sequence[str] = ("value",)) -> None:
        self.fields = fields
        self.acked: list[MessageId] = []
        self.failed: list[MessageId] = []
        """Attempts that failed and are to be followed by another."""
        self.given_up: list[MessageId] = []
        self._messages: dict[MessageId, Message] = {}
        self._waiting: deque[Message] = deque()

    def feed(self, *values: Any, id: MessageId | None = None) -> None:
        """Adds a message; without an id it is not tracked. time.wait() then lets it be worked on."""
        message = Message(values, id=id)
        if id is not None:
            self._messages[id] = message
        self._waiting.append(message)

    def next_batch(self, limit: int) -> list[Message]:
        return [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]

    def ack(self, message_id: MessageId) -> None:
        self.acked.append(message_id)

    def fail(self, message_id: MessageId) -> None:
        self.failed.append(message_id)
        self._waiting.append(self._messages[message_id])

    def dead(self, message_id: MessageId) -> None:
        self.given_up.append(message_id)

    def __deepcopy__(self, memo: object) -> FeederSpout:
        return self  # so that the test holds the one that runs

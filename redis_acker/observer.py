"""Hooks and counters for those who watch a topology."""

from __future__ import annotations

from dataclasses import dataclass

from redis_acker.message_ids import MessageId
from redis_acker.retries import DeadLetter


class Observer:
    """Is told what happens to messages. Override what is of interest; it is called from the driver's thread."""

    def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
        """The whole tree of a message is done."""

    def on_fail(self, message_id: MessageId, reason: str) -> None:
        """An attempt at a message failed."""

    def on_dead(self, letter: DeadLetter) -> None:
        """A message was given up."""


@dataclass
class DriverCounters:
    """What a driver has done."""

    emitted: int = 0
    replayed: int = 0
    completed: int = 0
    failed: int = 0
    """Attempts that failed."""
    dead: int = 0
    waited: int = 0
    """Rounds in which max_pending left no room for new messages."""

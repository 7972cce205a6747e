"""Messages from a Python iterable: for tests and small jobs. Not durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from redis_acker.bolt import TaskContext
from redis_acker.message_ids import MessageId
from redis_acker.spout import Message, Spout


class IterableSpout(Spout):
    """Hands out items, with their position as id. What is unfinished is kept in memory for a replay."""

    def __init__(self, items: Iterable[Any], *, fields: Sequence[str] = ("value",)) -> None:
        """With one field an item is the value; with several it is a sequence of values."""
        self.fields = tuple(fields)
        self._items = items

    def open(self, context: TaskContext) -> None:
        self._rest: Iterator[tuple[int, Any]] = islice(enumerate(self._items), context.task, None, context.parallelism)
        self._unfinished: dict[MessageId, Message] = {}
        self._again: deque[Message] = deque()

    def next_batch(self, limit: int) -> list[Message]:
        batch = [self._again.popleft() for _ in range(min(limit, len(self._again)))]
        for position, item in islice(self._rest, limit - len(batch)):
            message = Message([item] if len(self.fields) == 1 else item, id=position)
            self._unfinished[position] = message
            batch.append(message)
        return batch

    def ack(self, message_id: MessageId) -> None:
        self._unfinished.pop(message_id, None)

    def fail(self, message_id: MessageId) -> None:
        if message_id in self._unfinished:
            self._again.append(self._unfinished[message_id])

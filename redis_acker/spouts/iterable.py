"""Messages from a Python iterable: for tests and small jobs. Not durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, Sized
from itertools import islice
from typing import Any

from redis_acker.components.component import TaskContext
from redis_acker.components.spout import Message, Spout
from redis_acker.store.message_ids import MessageId


class IterableSpout(Spout):
    """Hands out items, with their position as id. Unfinished ones are kept in memory for a replay."""

    def __init__(self, items: Iterable[Any], *, fields: Sequence[str] = ("value",)) -> None:
        """With one field, an item is the value; with several, it is a sequence of values."""
        self.fields = fields
        self._items = items

    def open(self, context: TaskContext) -> None:
        self._rest: Iterator[tuple[int, Any]] = islice(enumerate(self._items), context.task, None, context.parallelism)
        count = len(self._items) if isinstance(self._items, Sized) else None
        self._left = None if count is None else len(range(context.task, count, context.parallelism))
        self._unfinished: dict[MessageId, Message] = {}
        self._again: deque[Message] = deque()

    def next_batch(self, limit: int) -> list[Message]:
        batch = [self._again.popleft() for _ in range(min(limit, len(self._again)))]
        for position, item in islice(self._rest, limit - len(batch)):
            message = self._message(position, item)
            self._unfinished[position] = message
            batch.append(message)
            self._left = self._left and self._left - 1
        return batch

    def lag(self) -> int | None:
        """None for an iterator, which does not know its length."""
        return self._left

    def ack(self, message_id: MessageId) -> None:
        self._unfinished.pop(message_id, None)

    def fail(self, message_id: MessageId) -> None:
        if message_id in self._unfinished:
            self._again.append(self._unfinished[message_id])

    def _message(self, position: int, item: Any) -> Message:
        """An item that does not have a value for each field becomes a dead letter; it does not end the run."""
        if len(self.fields) == 1:
            return Message([item], id=position)
        is_list = hasattr(item, "__len__") and not isinstance(item, (str, bytes, Mapping, Set))
        if is_list and len(item) == len(self.fields):
            return Message(item, id=position)
        wanted = f"a sequence of {len(self.fields)} values, one for each of the fields {list(self.fields)}"
        return Message([repr(item)], id=position, error=f"Item {position} is {item!r:.200} and not {wanted}.")

"""A component without a bolt, and tuples to give it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis_acker import Acker, Anchors, OutputCollector, TaskId, Tuple
from redis_acker.components.bolt import AckBuffer


class Wire:
    """A router to so many consumers, which keeps what they are given."""

    def __init__(self, consumers: int = 1) -> None:
        self.consumers = consumers
        self.delivered: list[Tuple] = []

    def targets(self, stream: str, values: Sequence[Any], to: TaskId | None = None) -> list[TaskId]:
        return [to] if to else self.direct_tasks(stream)

    def direct_tasks(self, stream: str) -> list[TaskId]:
        return [TaskId("consumer", task) for task in range(self.consumers)]

    def deliver(self, target: TaskId, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        self.delivered.append(Tuple(values, anchors=anchors, stream=stream))


class Desk:
    """A component without a bolt: the test holds its collector. Acks reach the store with flush()."""

    def __init__(
        self, acker: Acker | None, name: str = "desk", *, edges: Iterable[int] = (), consumers: int = 1
    ) -> None:
        self.wire = Wire(consumers)
        self.buffer = AckBuffer(acker)
        given = list(edges)
        self.collector = OutputCollector(name, self.wire, self.buffer, (lambda: given.pop(0)) if given else None)

    def emit(self, *parents: Tuple) -> list[Tuple]:
        """Emits a tuple anchored to these, and returns what its consumers get."""
        before = len(self.wire.delivered)
        self.collector.emit(["value"], anchors=parents)
        return self.wire.delivered[before:]

    def ack(self, *tuples: Tuple) -> None:
        for tup in tuples:
            self.collector.ack(tup)
        self.buffer.flush()


def tuple_of(*pairs: tuple[int, int]) -> Tuple:
    """A tuple with these roots and edges."""
    return Tuple(["value"], anchors=Anchors(dict(pairs)))

"""What a task emits: its edges and keys, and the rows that carry it to other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import pack
from typing import Any

from redis_acker.components.component import TaskContext, TaskId
from redis_acker.components.tuples import Tuple
from redis_acker.topology.routing import TaskRouter
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.wire import Delivery, Row, pack_deliveries, pack_values

CHUNK_BYTES = 1 << 20
"""Deliveries are sent on when there is about this much of them."""


class Emission:
    """Edges and keys of what a task emits.

    Both are made from the key of the tuple at hand and a count of what was emitted for it, edges from the values too.
    So a task that Spark runs again gives the same values the same edges, and a bolt that emits other values in its
    second run gives them other edges: what one run emitted never stands in for what another did, and such roots do not
    complete.
    """

    def __init__(self, run: bytes) -> None:
        """run makes the edges differ from those of other runs."""
        self._run = run
        self.values = self._digest = b""

    def at(self, key: bytes) -> None:
        """From now on the tuple with this key is at hand."""
        self._key = key
        self._edges = self._deliveries = 0

    def begin(self, values: Sequence[Any]) -> None:
        """These values are emitted next."""
        self.values = pack_values(values)
        self._digest = blake2b(self.values, digest_size=16).digest()

    def new_edge(self) -> int:
        self._edges += 1
        content = self._key + pack(">I", self._edges) + self._digest
        return int.from_bytes(blake2b(content, digest_size=8, key=self._run).digest(), "big") or 1

    def new_key(self) -> bytes:
        self._deliveries += 1
        return self._key + pack(">I", self._deliveries)


class Outbox:
    """Deliveries of a task to other tasks, on their way."""

    def __init__(self, plan: Plan, emission: Emission, level: int) -> None:
        self._plan, self._emission = plan, emission
        self._next_level = level + 1
        self._waiting: dict[int, list[Delivery]] = {}
        self._bytes = 0
        self.inboxes = plan.inboxes(self.put)

    def is_full(self) -> bool:
        return self._bytes > CHUNK_BYTES

    def put(self, task: int, tup: Tuple) -> None:
        stream = self._plan.stream_numbers[tup.component, tup.stream]
        one = Delivery(self._emission.new_key(), stream, tup.anchors.to_bytes(), self._emission.values)
        self._waiting.setdefault(task, []).append(one)
        self._bytes += len(one.values) + len(one.anchors) + len(one.key)

    def dispatch(self) -> list[Row]:
        """Empties the outbox into rows."""
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        return [self._plan.address(task, pack_deliveries(some), self._next_level) for task, some in waiting.items()]


class ExecutorRouter(TaskRouter):
    """Routes what a bolt emits to an outbox: the tasks that get it run elsewhere."""

    def __init__(self, plan: Plan, emitter: TaskContext, outbox: Outbox, emission: Emission) -> None:
        super().__init__(plan.topology, emitter, outbox.inboxes)
        self._emission = emission

    def targets(self, stream: str, values: Sequence[Any], to: TaskId | None = None) -> list[TaskId]:
        found = super().targets(stream, values, to)
        if found:
            # Before anything is linked: values that cannot be pickled leave no edge behind.
            self._emission.begin(values)
        return found

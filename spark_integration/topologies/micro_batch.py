"""Deliveries in the driver: those that wait for the next micro-batch, and those that are in one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from struct import pack

import numpy as np
import pyarrow as pa

from redis_acker.bolt_task import Inbox
from redis_acker.errors import BadInput
from redis_acker.ids import U64Array
from redis_acker.tuples import Tuple
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.wire import Delivery, Row, pack_deliveries, pack_values, to_arrow

MOST_BYTES = 32 << 20
"""A micro-batch that has reached this size takes no further deliveries."""

GATHER_S = 0.02
"""A micro-batch begins when nothing has been delivered for so long."""

_IDLE_S = 0.01


@dataclass(frozen=True)
class MicroBatch:
    """Deliveries that one Spark job brings through the topology."""

    number: int
    """Unique in a run."""
    deliveries: list[tuple[int, Delivery]]
    """Each with its task."""

    def table(self) -> pa.Table:
        """One row for each task, so that they may be spread over partitions as they are."""
        shares: dict[int, list[Delivery]] = {}
        for task, delivery in self.deliveries:
            shares.setdefault(task, []).append(delivery)
        rows = [Row(0, task, pack_deliveries(share)) for task, share in shares.items()]
        return pa.Table.from_batches([to_arrow(rows)])

    def roots(self) -> U64Array:
        return _roots(delivery for _, delivery in self.deliveries)


class Gatherer:
    """Gathers what drivers deliver, from their threads, into micro-batches."""

    def __init__(self, plan: Plan, refuse: Callable[[Tuple, str], None]) -> None:
        """refuse is told of tuples with values that cannot be sent."""
        self._refuse = refuse
        self._lock = threading.Lock()
        self._sources = {source: number for number, source in enumerate(plan.sources)}
        self._keys, self._batches = count(1), count(1)
        self._waiting: list[tuple[int, Delivery]] = []
        self._in_work: dict[int, MicroBatch] = {}
        self._bytes = 0
        self.delivered = self.finished = 0
        """Deliveries so far; both only grow."""
        self.inboxes: dict[str, list[Inbox]] = {
            name: [_ToTask(self, task) for task in tasks] for name, tasks in plan.tasks_of.items()
        }

    def put(self, task: int, tup: Tuple) -> None:
        try:
            values = pack_values(tup.values)
        except BadInput as error:
            self._refuse(tup, str(error))
            return
        self.put_packed(task, self._sources[tup.component, tup.stream], tup.anchors.to_bytes(), values)

    def put_packed(self, task: int, source: int, anchors: bytes, values: bytes) -> None:
        with self._lock:
            self._waiting.append((task, Delivery(pack(">Q", next(self._keys)), source, anchors, values)))
            self._bytes += len(anchors) + len(values)
            self.delivered += 1

    def take(self, stop: threading.Event) -> MicroBatch | None:
        """The next micro-batch; None if nothing waits. Its deliveries are in work until done() is called."""
        if not self._waiting:
            stop.wait(_IDLE_S)
            return None
        seen = -1
        while seen != self.delivered and self._bytes < MOST_BYTES:
            seen = self.delivered
            stop.wait(GATHER_S)
        with self._lock:
            waiting, self._waiting, self._bytes = self._waiting, [], 0
            return self._begin(waiting)

    def halves(self, batch: MicroBatch) -> list[MicroBatch]:
        """The same deliveries in two micro-batches, in place of the one."""
        middle = len(batch.deliveries) // 2
        with self._lock:
            del self._in_work[batch.number]
            return [self._begin(batch.deliveries[:middle]), self._begin(batch.deliveries[middle:])]

    def done(self, batch: MicroBatch) -> None:
        with self._lock:
            del self._in_work[batch.number]
            self.finished += len(batch.deliveries)

    def roots(self) -> U64Array:
        """Of everything that waits or is in work."""
        with self._lock:
            batches = [self._waiting, *(batch.deliveries for batch in self._in_work.values())]
            return _roots(delivery for deliveries in batches for _, delivery in deliveries)

    def _begin(self, deliveries: list[tuple[int, Delivery]]) -> MicroBatch:
        batch = MicroBatch(next(self._batches), deliveries)
        self._in_work[batch.number] = batch
        return batch


class _ToTask:
    def __init__(self, gatherer: Gatherer, task: int) -> None:
        self._gatherer, self._task = gatherer, task

    def put(self, tup: Tuple) -> None:
        self._gatherer.put(self._task, tup)


def _roots(deliveries: Iterable[Delivery]) -> U64Array:
    words = np.frombuffer(b"".join(delivery.anchors for delivery in deliveries), dtype=">u8")
    return np.unique(words[::2].astype(np.uint64))

"""Deliveries in the driver: those that wait for the next micro-batch, and those that are in one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from itertools import count
from struct import pack

import numpy as np
import pyarrow as pa

from redis_acker.components.tuples import Tuple
from redis_acker.errors import BadInput
from redis_acker.store.ids import U64Array
from redis_acker.store.packed import split_anchors, unpack_anchor_arrays, unpack_anchors
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.wire import DRIVER, Chunk, TupleDelivery, WireRow, pack_values, to_arrow

MOST_BYTES = 32 << 20
"""A micro-batch that has reached this size takes no further deliveries."""

GATHER_S = 0.02
"""A micro-batch begins when nothing has been delivered for this long."""


@dataclass(frozen=True)
class MicroBatch:
    """Deliveries that one Spark job brings through the topology."""

    number: int
    """Unique in a run. It stays the same when the job is run again, and so do the tokens of its acks."""
    deliveries: list[tuple[int, TupleDelivery]]
    """Each with its task."""

    def table(self, tasks: int) -> pa.Table:
        """One row for each of so many tasks, also for those without deliveries, so that Spark may spread them over
        partitions as they are."""
        shares: list[list[TupleDelivery]] = [[] for _ in range(tasks)]
        for task, delivery in self.deliveries:
            shares[task].append(delivery)
        rows = [WireRow(0, task, Chunk.of(DRIVER, len(share), share).packed()) for task, share in enumerate(shares)]
        return pa.Table.from_batches([to_arrow(rows)])

    def roots(self) -> U64Array:
        return _roots(delivery for _, delivery in self.deliveries)


class Gatherer:
    """Gathers what drivers deliver, from their threads, into micro-batches."""

    def __init__(self, plan: Plan, refuse: Callable[[Tuple, str], None]) -> None:
        """refuse is told of tuples whose values cannot be sent."""
        self._plan, self._refuse = plan, refuse
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._keys, self._batches = count(1), count(1)
        self._waiting: list[tuple[int, TupleDelivery]] = []
        self._in_work: dict[int, MicroBatch] = {}
        self._bytes = 0
        self.delivered = self.finished = 0
        """Deliveries so far; both only grow."""
        self.untracked = 0
        """How many of those that wait or are in work are in no tree."""
        self.queues = plan.queues(self.put)

    def put(self, task: int, tup: Tuple) -> None:
        try:
            values = pack_values(tup.values)
        except BadInput as error:
            self._refuse(tup, str(error))
            return
        stream = self._plan.stream_numbers[tup.component, tup.stream]
        self.put_packed(task, stream, tup.anchors.to_bytes(), values)

    def put_packed(self, task: int, stream: int, anchors: bytes, values: bytes) -> None:
        with self._lock:
            self._waiting.append((task, TupleDelivery(pack(">Q", next(self._keys)), stream, anchors, values)))
            self._bytes += len(anchors) + len(values)
            self.delivered += 1
            self.untracked += not anchors
        self._wake.set()

    def wake(self) -> None:
        """Ends the wait of begin()."""
        self._wake.set()

    def begin(self, stop: threading.Event, live_roots: Set[int]) -> MicroBatch | None:
        """Waits for deliveries and begins the next micro-batch; None if it was woken for nothing, or every tree is
        over. Its deliveries are in work until finish(). What has no root among live_roots any more is left out."""
        self._wake.wait()
        self._wake.clear()
        if not self._waiting:
            return None
        seen = -1
        while seen != self.delivered and self._bytes < MOST_BYTES:
            seen = self.delivered
            stop.wait(GATHER_S)
        with self._lock:
            waiting, self._waiting, self._bytes = self._waiting, [], 0
            alive = [one for one in waiting if _is_alive(one[1], live_roots)]
            self.finished += len(waiting) - len(alive)
            return self._batch_of(alive) if alive else None

    def finish(self, batch: MicroBatch) -> None:
        with self._lock:
            del self._in_work[batch.number]
            self.finished += len(batch.deliveries)
            self.untracked -= sum(not delivery.anchors for _, delivery in batch.deliveries)

    def roots(self) -> U64Array:
        """Of everything that waits or is in work."""
        with self._lock:
            batches = [self._waiting, *(batch.deliveries for batch in self._in_work.values())]
            return _roots(delivery for deliveries in batches for _, delivery in deliveries)

    def _batch_of(self, deliveries: list[tuple[int, TupleDelivery]]) -> MicroBatch:
        batch = MicroBatch(next(self._batches), deliveries)
        self._in_work[batch.number] = batch
        return batch


def _is_alive(delivery: TupleDelivery, live_roots: Set[int]) -> bool:
    packed, _ = split_anchors(delivery.anchors)
    return not packed or any(root in live_roots for root, _ in unpack_anchors(packed))


def _roots(deliveries: Iterable[TupleDelivery]) -> U64Array:
    roots, _ = unpack_anchor_arrays(b"".join(split_anchors(delivery.anchors)[0] for delivery in deliveries))
    return np.unique(roots)

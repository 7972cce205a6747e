"""A Spark that runs every task several times, and gives each reader the output of one attempt or another.

This is what lost shuffle files, speculative copies and lost executors can lead to at worst; on a real cluster it takes
minutes and luck to get there.
"""

from __future__ import annotations

from random import Random
from typing import Any

from redis_acker import Anchors, Topology, Tuple, new_edge
from redis_acker.errors import BadInput
from spark_integration.topologies.micro_batch import Gatherer, MicroBatch
from spark_integration.topologies.plan import make_plan
from spark_integration.topologies.results import Result, sum_of
from spark_integration.topologies.task import level_step
from spark_integration.topologies.wire import RESULT, Row, from_arrow, to_arrow, unpack_deliveries, unpack_values

ATTEMPTS = 3


class Attempts:
    """Brings messages through a topology, once."""

    def __init__(self, topology: Topology, messages: list[str], random: Random) -> None:
        self._random = random
        self.plan = make_plan(topology)
        self.edges: dict[int, int] = {}
        """What is pending, by root; the root of a message is its place."""
        self.read: list[tuple[Any, ...]] = []
        """Values of what the tasks of the last level were given, in the attempts that count."""
        gatherer = Gatherer(self.plan, _refuse)
        for root, message in enumerate(messages):
            for name in self.plan.levels[0]:
                inboxes, edge = gatherer.inboxes[name], new_edge()
                self.edges[root] = self.edges.get(root, 0) ^ edge
                tup = Tuple([message], anchors=Anchors({root: edge}), component="source")
                inboxes[root % len(inboxes)].put(tup)
        with gatherer._lock:
            batch = gatherer._batch_of(gatherer._waiting)
        self.result = self._run(batch)

    def complete(self) -> set[int]:
        """The roots whose acks sum up to what is pending."""
        return {root for root, edge in self.edges.items() if self.result.acks.get(root, 0) == edge}

    def _run(self, batch: MicroBatch) -> Result:
        partitions = [[row] for row in from_arrow(batch.table())]
        for level in range(len(self.plan.levels)):
            tasks = self.plan.tasks_at(level)
            chunks = [row.data for rows in partitions for row in rows if row.task in tasks]
            self.read = [unpack_values(delivery.values) for delivery in unpack_deliveries(chunks)]
            outputs = [[self._attempt(level, batch, rows) for _ in range(ATTEMPTS)] for rows in partitions]
            readers = self.plan.partitions_at(level + 1) if level + 1 < len(self.plan.levels) else 1
            partitions = [
                [row for output in outputs for row in self._random.choice(output) if row.part == reader]
                for reader in range(readers)
            ]
        return sum_of(row.data for row in partitions[0] if row.task == RESULT)

    def _attempt(self, level: int, batch: MicroBatch, rows: list[Row]) -> list[Row]:
        mixed = self._random.sample(rows, len(rows))
        step = level_step(self.plan, level, batch.number)
        return [row for produced in step(iter([to_arrow(mixed)])) for row in from_arrow(produced)]


def _refuse(tup: Tuple, error: str) -> None:
    raise BadInput(error)

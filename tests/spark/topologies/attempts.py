"""A Spark that runs every task several times, and gives each of these attempts the output of one earlier attempt or
another, whole or cut short.

This is what lost shuffle files, speculative copies and lost executors can lead to at worst; on a real cluster it takes
minutes and luck to get there. Tasks ack to a real store.
"""

from __future__ import annotations

import pickle
from random import Random

import pytest

from redis_acker import Acker, Anchors, Topology, Tuple, new_edge
from redis_acker.components.component import ComponentCounters
from redis_acker.errors import BadInput
from spark_integration.errors import CutShort
from spark_integration.topologies.micro_batch import Gatherer, MicroBatch
from spark_integration.topologies.plan import make_plan
from spark_integration.topologies.task import Level, level_step
from spark_integration.topologies.wire import RESULT, WireRow, from_arrow, to_arrow

ATTEMPTS = 3

Output = list[WireRow]


class Attempts:
    """Brings messages through a topology, once."""

    def __init__(self, acker: Acker, topology: Topology, messages: list[str], random: Random) -> None:
        self._acker, self._random = acker, random
        self._plan = make_plan(topology, acker)
        self._roots = acker.allocate("source", len(messages)).tolist()
        self.cut_short = 0
        """Attempts that were given only a part of their input."""
        gatherer, sums = Gatherer(self._plan, _refuse), dict.fromkeys(self._roots, 0)
        for number, (root, message) in enumerate(zip(self._roots, messages, strict=True)):
            for name in self._plan.levels[0]:
                queues, edge = gatherer.queues[name], new_edge()
                sums[root] ^= edge
                tup = Tuple([message], anchors=Anchors({root: edge}), component="source")
                queues[number % len(queues)].put(tup)
        acker.init(self._roots, list(sums.values()))
        with gatherer._lock:
            batch = gatherer._batch_of(gatherer._waiting)
        self.counters = self._run(batch)

    def complete(self) -> set[int]:
        """The places of messages that the store has completed."""
        reader = self._acker.completions("source")
        found = {root for event in iter(reader.read, []) for one in event for root in one.roots.tolist()}
        return {self._roots.index(root) for root in found}

    def failed(self) -> int:
        [spout] = self._acker.stats().spouts
        return spout.failed

    def _run(self, batch: MicroBatch) -> dict[str, ComponentCounters]:
        given: list[list[Output]] = [[[row]] for row in from_arrow(batch.table(len(self._plan.tasks)))]
        partitions = len(given)
        for level in range(len(self._plan.levels)):
            if level:
                partitions = self._plan.partitions_at(level)
            given = [
                [
                    self._attempt(level, batch, self._input(given, reader, is_first=not level))
                    for _ in range(self._random.randint(1, ATTEMPTS))
                ]
                for reader in range(partitions)
            ]
        results = [row for outputs in given for row in self._random.choice(outputs) if row.task == RESULT]
        counters: dict[str, ComponentCounters] = {}
        for row in results:
            name, counted, _ = pickle.loads(row.data)
            counters[name] = counters.get(name, ComponentCounters()) + counted
        return counters

    def _input(self, given: list[list[Output]], reader: int, *, is_first: bool) -> Output:
        """What one attempt at a partition reads: of each partition before it the output of one attempt."""
        if is_first:
            return given[reader][0]
        return [row for outputs in given for row in self._random.choice(outputs) if row.part == reader]

    def _attempt(self, level: int, batch: MicroBatch, rows: Output) -> Output:
        mixed = self._random.sample(rows, len(rows))
        step = level_step(Level(self._plan, level, batch.number))
        tasks = self._plan.tasks_at(level)
        if level and sum(row.task in tasks for row in mixed) > 1:
            cut = next(at for at, row in enumerate(mixed) if row.task in tasks)
            self.cut_short += 1
            with pytest.raises(CutShort):
                list(step(iter([to_arrow(mixed[: cut + 1])])))
        return [row for produced in step(iter([to_arrow(mixed)])) for row in from_arrow(produced)]


def _refuse(tup: Tuple, error: str) -> None:
    raise BadInput(error)

"""What executors do with a micro-batch: the tasks of bolts, and the steps that Spark runs on partitions."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from struct import pack

import pyarrow as pa

from redis_acker.components.batch_bolt import BatchBolt, execute_batch
from redis_acker.components.bolt import Bolt, OutputCollector, execute, prepare
from redis_acker.components.component import TaskContext
from redis_acker.components.tracing import flush_spans
from redis_acker.components.tuples import Anchors, Tuple
from redis_acker.errors import text_of, traceback_of
from redis_acker.store.packed import split_anchors, unpack_anchors
from spark_integration.topologies.emission import Emission, ExecutorRouter, Outbox
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.results import Result, ResultBuffer
from spark_integration.topologies.wire import (
    RESULT,
    Delivery,
    Row,
    from_arrow,
    to_arrow,
    unpack_deliveries,
    unpack_values,
)

LEFT_OPEN = "it was neither acked nor failed by the end of its micro-batch"

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

log = logging.getLogger(__name__)


def level_step(plan: Plan, level: int, batch: int) -> ArrowFunction:
    """A function for mapInArrow that runs the tasks of a level on their rows, and lets other rows pass."""
    tasks = frozenset(plan.tasks_at(level))

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shares: dict[int, list[bytes]] = {}
        for rows in map(from_arrow, batches):
            passing = [plan.address(row.task, row.data, level + 1) for row in rows if row.task not in tasks]
            if passing:
                yield to_arrow(passing)
            for row in rows:
                if row.task in tasks:
                    shares.setdefault(row.task, []).append(row.data)
        for task, chunks in sorted(shares.items()):
            for found in Task(plan, task, level=level, batch=batch).run(unpack_deliveries(chunks)):
                if found:
                    yield to_arrow(found)

    step.__name__ = "_and_".join(plan.levels[level])  # Spark's UI shows it
    return step


def load_step(plan: Plan) -> ArrowFunction:
    """A function for mapInArrow that says which bolts cannot be loaded in an executor, and why."""

    def load_bolts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for name, pickled in plan.bolts.items():
                try:
                    pickle.loads(pickled)
                except Exception as error:
                    yield to_arrow([Row(0, RESULT, f"{name!r}: {text_of(error)}".encode())])

    return load_bolts


class Task:
    """A task of a bolt. Its copy of the bolt lives for one micro-batch: prepare(), its tuples, cleanup()."""

    def __init__(self, plan: Plan, number: int, *, level: int, batch: int) -> None:
        self._plan, self._number, self._level, self._batch = plan, number, level, batch
        self._context = plan.tasks[number]
        self._buffer = ResultBuffer()
        self._emission = Emission(plan.run)
        self._outbox = Outbox(plan, self._emission, level)
        component, task, parallelism = self._context.component, self._context.task, self._context.parallelism
        # A shuffle starts with another task in each micro-batch. Otherwise small ones would all go to the first.
        emitter = TaskContext(component, task + batch, parallelism)
        router = ExecutorRouter(plan, emitter, self._outbox, self._emission)
        self._collector = OutputCollector(component, router, self._buffer, self._emission.new_edge)

    def run(self, deliveries: Sequence[Delivery]) -> Iterator[list[Row]]:
        """Works on its share of the micro-batch. Yields rows for other tasks and, last, one for the driver."""
        tuples = [self._tuple(one) for one in deliveries]
        bolt = self._prepare(tuples)
        if bolt:
            size = bolt.batch_size if isinstance(bolt, BatchBolt) else 1
            for at in range(0, len(tuples), size):
                # The batches are the same in every attempt, so the key of the first names what all of it emits.
                if some := [tup for tup in tuples[at : at + size] if not tup.outcome]:
                    self._emission.at(deliveries[at].key)
                    if isinstance(bolt, BatchBolt):
                        execute_batch(bolt, self._collector, some)
                    else:
                        execute(bolt, self._collector, some[0])
                if self._outbox.is_full():
                    yield self._outbox.dispatch()
            self._cleanup(bolt, tuples)
        for tup in tuples:
            if not tup.outcome:
                self._collector.fail(tup, LEFT_OPEN)
        if any(tup.anchors.trace for tup in tuples):
            flush_spans()
        result = self._plan.address(RESULT, self._result(len(tuples)).packed(), self._level + 1)
        yield [*self._outbox.dispatch(), result]

    def _tuple(self, delivery: Delivery) -> Tuple:
        component, stream = self._plan.streams[delivery.stream]
        fields = self._plan.topology.components[component].component.fields_of(stream) or ()
        packed, trace = split_anchors(delivery.anchors)
        edges = dict(unpack_anchors(packed))
        anchors = Anchors.traced(edges, trace) if trace else Anchors.trusted(edges)
        tup = Tuple((), fields=fields, anchors=anchors, component=component, stream=stream)
        try:
            tup.values = unpack_values(delivery.values)
        except Exception as error:
            self._collector.fail(tup, f"its values cannot be unpickled: {text_of(error)}")
        return tup

    def _prepare(self, tuples: list[Tuple]) -> Bolt | None:
        """The bolt, ready to work. None if it cannot work now: its tuples fail, to be replayed later."""
        bolt = pickle.loads(self._plan.bolts[self._context.component])
        self._emission.at(self._own_key("prepare"))
        try:
            prepare(bolt, self._context, self._collector)
        except Exception as error:
            for tup in tuples:
                if not tup.outcome:
                    self._collector.fail(tup, f"prepare() raised {text_of(error)}")
            self._log("prepare", error)
            return None
        assert isinstance(bolt, Bolt)
        return bolt

    def _cleanup(self, bolt: Bolt, tuples: list[Tuple]) -> None:
        """An error in cleanup() fails all tuples, also those that were acked: what it should write may be missing."""
        self._emission.at(self._own_key("cleanup"))
        try:
            bolt.cleanup()
        except Exception as error:
            for tup in tuples:
                if tup.outcome != "failed":
                    self._collector.counters.acked -= tup.outcome == "acked"
                    tup.outcome = ""
                    self._collector.fail(tup, f"cleanup() raised {text_of(error)}")
            self._log("cleanup", error)

    def _log(self, phase: str, error: Exception) -> None:
        name = self._context.component
        log.error("Bolt %s raised an error in %s(), which fails its tuples.\n%s", name, phase, traceback_of(error))

    def _own_key(self, phase: str) -> bytes:
        """The key for what is emitted with no tuple at hand. It sorts behind the keys of spouts."""
        return b"\xff" + pack(">Q", self._batch) + f"{self._number}/{phase}".encode()

    def _result(self, executed: int) -> Result:
        result, counters = self._buffer.result, self._collector.counters
        counters.executed = executed
        result.counters[self._context.component] = counters
        return result

"""One task of a bolt in one micro-batch, in an executor."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from struct import iter_unpack, pack

from redis_acker.anchors import Anchors
from redis_acker.bolt import Bolt, TaskContext, execute
from redis_acker.collector import OutputCollector
from redis_acker.local import ComponentCounters
from redis_acker.tuples import Tuple
from spark_integration.topologies.emission import Emission, Outbox, Outlet
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.results import Books, Result
from spark_integration.topologies.wire import RESULT, Delivery, Row, unpack_values

LEFT_OPEN = "it was neither acked nor failed by the end of its micro-batch"

log = logging.getLogger(__name__)


class Task:
    """A copy of a bolt that lives for one micro-batch: prepare(), its tuples, cleanup()."""

    def __init__(self, plan: Plan, number: int, *, level: int, batch: int) -> None:
        self._plan, self._number, self._level, self._batch = plan, number, level, batch
        self._context = plan.tasks[number]
        self._books = Books()
        self._emission = Emission(plan.run)
        self._outbox = Outbox(plan, self._emission, level)
        component, task, parallelism = self._context.component, self._context.task, self._context.parallelism
        # A shuffle begins with another task in each micro-batch: small ones would all go to the first.
        emitter = TaskContext(component, task + batch, parallelism)
        router = Outlet(plan, emitter, self._outbox, self._emission)
        self._collector = OutputCollector(component, router, self._books, self._emission.new_edge)

    def run(self, deliveries: Sequence[Delivery]) -> Iterator[list[Row]]:
        """Works on its share of the micro-batch. Gives rows for other tasks, at last one for the driver."""
        tuples = [self._tuple(one) for one in deliveries]
        bolt = self._prepare(tuples)
        if bolt:
            for tup, delivery in zip(tuples, deliveries, strict=True):
                if not tup.outcome:
                    self._emission.at(delivery.key)
                    execute(bolt, self._collector, tup)
                if self._outbox.is_full():
                    yield self._outbox.take()
            self._cleanup(bolt, tuples)
        for tup in tuples:
            if not tup.outcome:
                self._collector.fail(tup, LEFT_OPEN)
        result = self._plan.address(RESULT, self._result(len(tuples)).packed(), self._level + 1)
        yield [*self._outbox.take(), result]

    def _tuple(self, delivery: Delivery) -> Tuple:
        component, stream = self._plan.sources[delivery.source]
        fields = self._plan.topology.nodes[component].component.fields_of(stream) or ()
        anchors = Anchors.trusted(dict(iter_unpack(">QQ", delivery.anchors)))
        tup = Tuple((), fields=fields, anchors=anchors, component=component, stream=stream)
        try:
            tup.values = unpack_values(delivery.values)
        except Exception as error:
            self._collector.fail(tup, f"its values cannot be unpickled: {type(error).__name__}: {error}")
        return tup

    def _prepare(self, tuples: list[Tuple]) -> Bolt | None:
        """The bolt, ready to work. None if it cannot work now: then its tuples fail, and are replayed later."""
        bolt = pickle.loads(self._plan.bolts[self._context.component])
        self._emission.at(self._own_key("prepare"))
        try:
            bolt.prepare(self._context, self._collector)
        except Exception as error:
            log.exception("Bolt %s raised an error in prepare(), which fails its tuples.", self._context.component)
            for tup in tuples:
                if not tup.outcome:
                    self._collector.fail(tup, f"prepare() raised {type(error).__name__}: {error}")
            return None
        assert isinstance(bolt, Bolt)
        return bolt

    def _cleanup(self, bolt: Bolt, tuples: list[Tuple]) -> None:
        """What cleanup() was to write may be missing, so its error fails all tuples, those that were acked too."""
        self._emission.at(self._own_key("cleanup"))
        try:
            bolt.cleanup()
        except Exception as error:
            log.exception("Bolt %s raised an error in cleanup(), which fails its tuples.", self._context.component)
            text = f"cleanup() raised {type(error).__name__}: {error}"
            for tup in tuples:
                if tup.outcome != "failed":
                    self._collector.acked -= tup.outcome == "acked"
                    tup.outcome = ""
                    self._collector.fail(tup, text)

    def _own_key(self, phase: str) -> bytes:
        """The key for what is emitted with no tuple at hand. It sorts behind the keys of spouts."""
        return b"\xff" + pack(">Q", self._batch) + f"{self._number}/{phase}".encode()

    def _result(self, executed: int) -> Result:
        did = self._collector
        result = self._books.result
        result.counters[self._context.component] = ComponentCounters(executed, did.emitted, did.acked, did.failed)
        return result

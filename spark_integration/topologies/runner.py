"""Runs a topology on Spark, micro-batch by micro-batch."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from redis_acker.clock import SystemClock
from redis_acker.components.bolt import AckBuffer
from redis_acker.components.component import ComponentCounters
from redis_acker.components.tuples import Tuple
from redis_acker.driver.driver import DriverOptions, clock_of
from redis_acker.errors import BadInput, ServerUnavailable
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array
from redis_acker.store.streams import Cause
from redis_acker.topology.runner import Runner
from redis_acker.topology.threads import Loop
from redis_acker.topology.topology import Topology
from spark_integration.topologies.micro_batch import Gatherer, MicroBatch
from spark_integration.topologies.plan import make_plan
from spark_integration.topologies.results import Result, sum_of
from spark_integration.topologies.spark_jobs import Jobs, short
from spark_integration.topologies.wire import RESULT, Row, unpack_deliveries

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

MOST_FAILED_JOBS = 40
"""A micro-batch whose job fails is halved until the deliveries that make it fail are alone. After so many failed jobs
all that is left of it fails together."""

STOP_AFTER_S = 600.0
"""How long stop() waits for the micro-batch in work: unlike a tuple, it may take many timeouts."""

_PAUSE_S = 1.0

log = logging.getLogger(__name__)


class SparkRunner(Runner):
    """Runs the bolts of a topology in executors and its spouts in this process. Use it as a context manager.

    What the spouts have emitted makes a micro-batch: one Spark job brings it through all bolts. What the bolts acked
    and failed comes back with the results of that job, so Spark may run tasks as often as it likes: what counts is the
    attempt whose results it uses. Executors send nothing to the store, and get no address or password.
    """

    def __init__(
        self, topology: Topology, acker: Acker | None, spark: SparkSession, **options: Unpack[DriverOptions]
    ) -> None:
        """acker=None switches tracking off. The options are those of LocalRunner.

        max_pending also bounds a micro-batch: it holds at most so many messages of each spout task."""
        if not isinstance(clock_of(acker, options.get("clock")), SystemClock):
            raise BadInput(
                "SparkRunner does not work in simulated time: its bolts run in executors, which have a time of their "
                "own. Test the timeouts of a topology with LocalRunner."
            )
        self._plan = make_plan(topology)
        self._jobs = Jobs(spark, self._plan)
        self._gatherer = Gatherer(self._plan, self._refuse)
        self._buffer = AckBuffer(acker)
        self._bolts = {name: ComponentCounters() for name in self._plan.bolts}
        super().__init__(topology, acker, self._gatherer.inboxes, **options)
        self._threads.stop.wakers.append(self._gatherer.wake)

    def start(self) -> Self:
        """Starts the run. Raises an error if Spark's workers cannot run the bolts."""
        self._jobs.check()
        return super().start()

    def _loops(self) -> list[Loop]:
        return [("micro-batches", self._run)]

    def _delivered(self) -> int:
        return self._gatherer.delivered

    def _finished(self) -> int:
        return self._gatherer.finished

    def _stop_after_s(self) -> float:
        return STOP_AFTER_S

    def _untracked(self) -> int:
        return self._gatherer.untracked

    def _roots_in_work(self, timeout_s: float) -> U64Array:
        return self._gatherer.roots()

    def _bolt_counters(self) -> Iterable[tuple[str, ComponentCounters]]:
        """Work that Spark repeats is counted once."""
        return self._bolts.items()

    # -- micro-batches -------------------------------------------------------------------------------------------

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            batch = self._gatherer.begin(stop, self._live_roots)
            if batch:
                self._run_batch(batch, stop)

    def _run_batch(self, batch: MicroBatch, stop: threading.Event) -> None:
        """Runs a micro-batch. If its job fails, finds the deliveries at fault: one bad message must not fail others."""
        parts, failed_jobs = deque([batch]), 0
        while parts and not (failed_jobs and stop.is_set()):
            part = parts.popleft()
            try:
                rows = self._jobs.run(part)
            except Exception as error:
                failed_jobs += 1
                log.warning("The Spark job of %d deliveries failed: %s", len(part.deliveries), short(error))
                self._jobs.check()  # raises, and so ends the run, if jobs fail whatever they carry
                if len(part.deliveries) > 1 and failed_jobs < MOST_FAILED_JOBS:
                    parts.extend(self._gatherer.halve(part))
                else:
                    self._apply(self._all_failed(part, error))
                    self._gatherer.finish(part)
                    self._wake_drivers()
            else:
                self._finish(part, rows)

    def _finish(self, batch: MicroBatch, rows: list[Row]) -> None:
        result = sum_of(row.data for row in rows if row.task == RESULT)
        self._apply(result)
        for row in rows:
            if row.task != RESULT:
                for one in unpack_deliveries([row.data]):
                    self._gatherer.put_packed(row.task, one.stream, one.anchors, one.values)
        for component, counted in result.counters.items():
            self._bolts[component] += counted
        self._gatherer.finish(batch)
        self._wake_drivers()

    def _all_failed(self, batch: MicroBatch, error: Exception) -> Result:
        """The job failed with these deliveries, and works without them."""
        bolts = {self._plan.tasks[task].component for task, _ in batch.deliveries}
        cause = Cause(bolts.pop() if len(bolts) == 1 else "", f"its Spark job failed: {short(error)}")
        return Result(fails={cause: set(batch.roots().tolist())})

    def _apply(self, result: Result) -> None:
        """Sends acks and fails to the store. While the store cannot be reached, nothing else is done."""
        result.send_to(self._buffer)
        while True:
            try:
                self._buffer.flush()
            except ServerUnavailable as error:
                log.error("The acks of a micro-batch could not be sent and will be sent again: %s", error)
                if not self._threads.stop.wait(_PAUSE_S):
                    continue
            return

    def _refuse(self, tup: Tuple, error: str) -> None:
        log.error("Spout %s emits values that cannot be sent to executors: %s", tup.component, error)
        if self._acker and tup.anchors:
            self._acker.fail(list(tup.anchors), component=tup.component, error=error, fatal=True)

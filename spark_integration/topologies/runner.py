"""Runs a topology on Spark, micro-batch by micro-batch."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from pyspark.sql import SparkSession

from redis_acker.clock import SystemClock
from redis_acker.components.component import ComponentCounters
from redis_acker.components.tuples import Tuple
from redis_acker.driver.options import DriverOptions, clock_of
from redis_acker.errors import BadInput, ServerUnavailable
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array
from redis_acker.store.streams import Cause
from redis_acker.topology.runner import Runner, check_parts
from redis_acker.topology.threads import Loop
from redis_acker.topology.topology import Topology
from spark_integration.topologies.batch_sizes import BatchSizes
from spark_integration.topologies.lookout import Lookout
from spark_integration.topologies.micro_batch import Gatherer, MicroBatch
from spark_integration.topologies.plan import make_plan
from spark_integration.topologies.spark_jobs import Jobs, short
from spark_integration.topologies.wire import RESULT, WireRow, unpack_deliveries

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

MOST_FAILED_JOBS = 40
"""After so many failed jobs for one micro-batch, all that is left of it fails together."""

JOB_FAILED = "its Spark job failed"
LEFT = (
    "its micro-batch has ended, but not its tree: a task that ran twice emitted other values, or another program has it"
)
"""Why a message failed."""

STOP_AFTER_S = 600.0
"""How long stop() waits for the micro-batch in work: unlike a tuple, it may take many timeouts."""

_PAUSE_S = 1.0

T = TypeVar("T")

log = logging.getLogger(__name__)


class SparkRunner(Runner):
    """Runs the bolts of a topology in executors and its spouts in this process. Use it as a context manager.

    What the spouts have emitted makes a micro-batch: one Spark job brings it through all bolts. Tasks ack and fail
    straight to the store, and Spark may run them as often as it likes: of what the attempts at a task ack, the first
    counts. Messages complete while the job runs.
    """

    def __init__(
        self, topology: Topology, acker: Acker | None, spark: SparkSession, **options: Unpack[DriverOptions]
    ) -> None:
        """acker=None switches tracking off. The options are those of LocalRunner.

        max_pending also bounds a micro-batch: it holds at most so many messages of each spout task."""
        check_parts(topology, acker)
        if not isinstance(clock_of(acker, options.get("clock")), SystemClock):
            raise BadInput(
                "SparkRunner does not work in simulated time: its bolts run in executors, which have a time of their "
                "own. Test the timeouts of a topology with LocalRunner."
            )
        self._plan = make_plan(topology, acker)
        self._jobs, self._batch_sizes = Jobs(spark, self._plan), BatchSizes()
        self._gatherer = Gatherer(self._plan, self._refuse)
        self._lookout = Lookout(acker, self._plan.run.hex()) if acker else None
        self._left: set[int] = set()
        """Roots that are pending, as far as drivers know, though their micro-batch has ended."""
        self._bolts = {name: ComponentCounters() for name in self._plan.bolts}
        super().__init__(topology, acker, self._gatherer.queues, **options)
        self._threads.stop.wakers.append(self._gatherer.wake)

    def start(self) -> Self:
        """Starts the run. Raises an error if Spark's workers cannot run the bolts or reach the store."""
        self._jobs.check(store=True)
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
        """All but those of a tuple that a bolt has had in its hands for long. If it comes back, its task says so."""
        roots = self._gatherer.roots()
        if not (self._lookout and len(roots)):
            return roots
        return np.setdiff1d(roots, self._lookout.held_roots(), assume_unique=True)

    def _holders(self, roots: Collection[int]) -> dict[int, Cause]:
        left = {root: Cause("", LEFT) for root in self._left.intersection(roots)}
        return {**left, **self._lookout.causes(roots)} if self._lookout else left

    def _doing(self, thread: str) -> str:
        return (self._lookout and self._lookout.longest()) or super()._doing(thread)

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
        """Runs a micro-batch. One bad message must not fail others.

        If its job fails, the same job is run again, under the same tokens: what was acked stays so. If a bolt hung, its
        tuple is left out. If not, tasks now note what they are at, and what a worker dies of then is left out.
        """
        failed_jobs, known, is_careful = 0, 0, False
        self._jobs.most = self._batch_sizes.begin()
        if self._lookout:
            self._lookout.begin()
        while not (failed_jobs and stop.is_set()):
            try:
                rows = self._jobs.run(batch, is_careful=is_careful)
            except Exception as error:
                failed_jobs += 1
                log.warning("The Spark job of %d deliveries failed: %s", len(batch.deliveries), short(error))
                self._jobs.check(store=False)  # raises, and so ends the run, if jobs fail whatever they carry
                before, known = known, self._given_up(f"{JOB_FAILED}: {short(error)}" if is_careful else "")
                if failed_jobs >= MOST_FAILED_JOBS or (is_careful and known == before):
                    self._fail_all(batch, error)
                    return
                is_careful = is_careful or known == before
            else:
                self._finish(batch, rows)
                return

    def _given_up(self, error: str) -> int:
        """After a job failed: how much of the micro-batch is given up. With an error also what its tasks were at."""
        lookout = self._lookout
        if lookout is None:
            return 0
        if error:
            self._when_it_is_there(partial(lookout.give_up_hands, error))
        self._when_it_is_there(lookout.forget_hands)
        return self._when_it_is_there(lookout.given_up) or 0

    def _finish(self, batch: MicroBatch, rows: list[WireRow]) -> None:
        failed = list[tuple[str, int]]()
        for row in rows:
            if row.task != RESULT:
                for one in unpack_deliveries([row.data]):
                    self._gatherer.put_packed(row.task, one.stream, one.anchors, one.values)
                continue
            component, counted, failed_batch = pickle.loads(row.data)
            self._bolts[component] += counted
            failed.append((component, failed_batch))
        self._batch_sizes.note_failed(failed)
        self._end_batch(batch)

    def _fail_all(self, batch: MicroBatch, error: Exception) -> None:
        """The job fails with these deliveries, whatever was left out, and others work."""
        roots = batch.roots()
        log.error("A micro-batch of %d deliveries is given up: %s", len(batch.deliveries), short(error))
        if self._acker and len(roots):
            bolts = {self._plan.tasks[task].component for task, _ in batch.deliveries}
            component = bolts.pop() if len(bolts) == 1 else ""
            fail = partial(self._acker.fail, roots, component=component, error=f"{JOB_FAILED}: {short(error)}")
            self._when_it_is_there(fail)
        self._end_batch(batch)

    def _end_batch(self, batch: MicroBatch) -> None:
        if self._lookout:
            self._when_it_is_there(self._lookout.end)
            self._batch_sizes.note_failed(self._lookout.given_up_together())
        self._left = {root for root in (*self._left, *batch.roots().tolist()) if root in self._live_roots}
        self._gatherer.finish(batch)
        self._wake_drivers()

    def _when_it_is_there(self, call: Callable[[], T]) -> T | None:
        """Calls the store, and does nothing else while that is away. None if the run is stopped meanwhile."""
        while True:
            try:
                return call()
            except ServerUnavailable as error:
                log.error("A micro-batch waits for the store: %s", error)
                if self._threads.stop.wait(_PAUSE_S):
                    return None

    def _refuse(self, tup: Tuple, error: str) -> None:
        log.error("Spout %s emits values that cannot be sent to executors: %s", tup.component, error)
        if self._acker and tup.anchors:
            self._acker.fail(list(tup.anchors), component=tup.component, error=error, fatal=True)

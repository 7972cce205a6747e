"""Runs a topology on Spark, micro-batch by micro-batch."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from pyspark.sql import SparkSession

from redis_acker.acker import Acker
from redis_acker.bolt import TaskContext
from redis_acker.bolt_task import LocalRouter, copy_of
from redis_acker.collector import AckBuffer
from redis_acker.driver import DEFAULT_MAX_PENDING, SpoutDriver
from redis_acker.errors import AckerError, ServerUnavailable
from redis_acker.local import ComponentCounters
from redis_acker.observer import Observer
from redis_acker.retries import RetryPolicy
from redis_acker.rotator import Rotator
from redis_acker.spout import Spout
from redis_acker.threads import Threads
from redis_acker.topology import Topology
from redis_acker.tuples import Tuple
from spark_integration.topologies.jobs import Jobs, short
from spark_integration.topologies.micro_batch import Gatherer, MicroBatch
from spark_integration.topologies.plan import make_plan
from spark_integration.topologies.results import Cause, Result, sum_of
from spark_integration.topologies.wire import RESULT, Row, unpack_deliveries

EXTENDS_PER_TIMEOUT = 4
"""How often within a timeout the roots in work are extended. Their clock stands still as long as the driver lives."""

MOST_FAILED_JOBS = 40
"""A micro-batch whose job fails is halved until the deliveries that make it fail are alone. After so many failed jobs
all that is left of it fails together."""

_IDLE_S = 0.01
_PAUSE_S = 1.0

log = logging.getLogger(__name__)


class SparkRunner:
    """Runs the bolts of a topology in executors and its spouts in this process. Use it as a context manager.

    What the spouts have emitted makes a micro-batch: one Spark job brings it through all bolts. What the bolts acked
    and failed comes back with the results of that job, so Spark may run tasks as often as it likes: what counts is the
    attempt whose results it uses. Nothing is sent to the store from executors, and no address or password to them.
    """

    def __init__(
        self,
        topology: Topology,
        acker: Acker | None,
        spark: SparkSession,
        *,
        max_pending: int = DEFAULT_MAX_PENDING,
        retries: RetryPolicy | None = None,
        own_timeout_ms: int | None = None,
        observer: Observer | None = None,
        clock: Callable[[], int] | None = None,
        wait_for_lease: bool = False,
    ) -> None:
        """acker=None switches tracking off. clock gives ms in place of the system's clock, for tests.

        max_pending also bounds a micro-batch: it holds at most so many messages of each spout task."""
        self._acker = acker
        plan = make_plan(topology)
        self._plan, self._jobs = plan, Jobs(spark, plan)
        self._gatherer = Gatherer(plan, self._refuse)
        self._buffer = AckBuffer(acker)
        self._bolts = {name: ComponentCounters() for name in plan.bolts}
        self._threads = Threads(log)
        spouts = [node for node in topology.nodes.values() if node.is_spout]
        self._spouts = [TaskContext(node.name, i, node.parallelism) for node in spouts for i in range(node.parallelism)]
        self.drivers = [
            SpoutDriver(
                copy_of(topology.nodes[context.component], Spout),
                acker,
                LocalRouter(topology, context, self._gatherer.inboxes),
                name=f"{topology.name}/{context.component}/{context.task}",
                context=context,
                max_pending=max_pending,
                retries=retries,
                own_timeout_ms=own_timeout_ms,
                observer=observer,
                clock=clock,
                wait_for_lease=wait_for_lease,
            )
            for context in self._spouts
        ]

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> SparkRunner:
        """Starts the run. Raises an error if executors cannot load the bolts."""
        self._jobs.check()
        loops = [(driver.name, driver.run) for driver in self.drivers]
        if self._acker:
            loops += [("rotator", Rotator(self._acker).run), ("extend", self._extend_often)]
        self._threads.start([*loops, ("micro-batches", self._run)])
        return self

    def wait_until_idle(self, *, timeout_s: float | None = None) -> bool:
        """Waits until the sources are exhausted and every message is completed or dead. False after timeout_s, or if
        the run ends before. Raises the error that ends the run."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._threads.raise_error()
            if not self._threads.has_failed and self._is_idle():
                return True
            if self._threads.stop.is_set() or (deadline is not None and time.monotonic() > deadline):
                return False
            time.sleep(_IDLE_S)

    def counters(self) -> dict[str, ComponentCounters]:
        """What each component has done so far. Work that Spark repeats is counted once."""
        found = dict(self._bolts)
        for context, driver in zip(self._spouts, self.drivers, strict=True):
            did = driver.counters
            one = ComponentCounters(0, did.emitted, did.completed, did.failed, did.replayed, did.dead, did.waited)
            found[context.component] = found.get(context.component, ComponentCounters()) + one
        return found

    def stop(self) -> None:
        """Ends the run after the micro-batch at work. What waits stays pending in the store. Raises the error that
        ended the run, unless that was raised before."""
        self._threads.join()
        self._threads.raise_error()

    def __enter__(self) -> SparkRunner:
        return self.start()

    def __exit__(self, exc_type: object, *exc_info: object) -> None:
        self._threads.join()
        if exc_type is None:
            self._threads.raise_error()

    def _is_idle(self) -> bool:
        # In this order. Both counts only grow, and a delivery is counted before it is finished: if they are equal,
        # nothing was on its way while the drivers were asked.
        finished = self._gatherer.finished
        idle = all(driver.is_idle() for driver in self.drivers)
        return idle and finished == self._gatherer.delivered

    # -- micro-batches -------------------------------------------------------------------------------------------

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            batch = self._gatherer.take(stop)
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
                    parts.extend(self._gatherer.halves(part))
                else:
                    self._apply(self._all_failed(part, error))
                    self._gatherer.done(part)
            else:
                self._finish(part, rows)

    def _finish(self, batch: MicroBatch, rows: list[Row]) -> None:
        result = sum_of(row.data for row in rows if row.task == RESULT)
        self._apply(result)
        for row in rows:
            if row.task != RESULT:
                for one in unpack_deliveries([row.data]):
                    self._gatherer.put_packed(row.task, one.source, one.anchors, one.values)
        for component, counted in result.counters.items():
            self._bolts[component] += counted
        self._gatherer.done(batch)

    def _all_failed(self, batch: MicroBatch, error: Exception) -> Result:
        """The job failed with these deliveries, and works without them."""
        bolts = {self._plan.tasks[task].component for task, _ in batch.deliveries}
        cause = Cause(bolts.pop() if len(bolts) == 1 else "", f"its Spark job failed: {short(error)}", fatal=False)
        return Result(fails={cause: set(batch.roots().tolist())})

    def _apply(self, result: Result) -> None:
        """Brings acks and fails to the store. While that cannot be reached, nothing else is done."""
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
        log.error("Spout %s emits what cannot be sent to executors: %s", tup.component, error)
        if self._acker and tup.anchors:
            self._acker.fail(list(tup.anchors), component=tup.component, error=error, fatal=True)

    def _extend_often(self, stop: threading.Event) -> None:
        """A message does not time out while it waits for its micro-batch, or that runs."""
        assert self._acker is not None
        while not stop.wait(self._acker.settings.timeout_ms / 1000 / EXTENDS_PER_TIMEOUT):
            roots = self._gatherer.roots()
            try:
                if len(roots):
                    self._acker.extend(roots)
            except AckerError as error:
                log.error("Messages in work could not be extended and may time out: %s", error)

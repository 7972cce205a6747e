"""A task of a bolt in this process: its queue, and the worker that empties it."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence

from redis_acker.clock import Clock
from redis_acker.components.batch_bolt import BatchBolt, execute_batch
from redis_acker.components.bolt import AckBuffer, Bolt, OutputCollector, execute, prepare
from redis_acker.components.component import ComponentCounters, TaskContext
from redis_acker.components.tuples import SYSTEM, Tuple
from redis_acker.errors import ServerUnavailable, traceback_of
from redis_acker.store.acker import Acker
from redis_acker.store.streams import Cause
from redis_acker.topology.routing import TaskRouter
from redis_acker.topology.task_queue import HeldTuples, TaskQueue

FLUSH_AFTER = 1000
"""Tuples that a task works on before it sends its acks and fails; when it has nothing else to do, it sends them at
once."""

SMALLER = 32
SMALLER_FOR_S = 30.0
"""When a batch has failed as a whole, what comes into the queue until so much later is given to the bolt in batches so
many times smaller. By then its tuples have been replayed, as a rule, and few of them with the one that is at fault: of
a thousand, some thirty fail a second time, and that one alone a third time."""

QUEUED = "it has waited in the queue of {name} for {age_s:.1f} s"
HELD = "{name} was given it {age_s:.1f} s ago and has neither acked nor failed it"
IN_HANDS = "{name} has worked on it for {age_s:.1f} s and has not come back"
"""Where a tuple is. The last two name a bolt that may be at fault."""

log = logging.getLogger(__name__)


class BoltTask:
    """A queue of tuples, and a copy of the bolt that works on them in a thread of its own. If that hangs, another copy
    goes on with the queue."""

    def __init__(self, context: TaskContext, new_bolt: Callable[[], Bolt], acker: Acker | None, clock: Clock) -> None:
        self.context = context
        self.name = f"{context.component}/{context.task}"
        self.queue = TaskQueue(clock, is_tracked=acker is not None)
        self.now_s = clock.monotonic_s
        self.put = self.queue.put
        self.buffer = AckBuffer(acker)
        self._new_bolt = new_bolt
        self._ticks, self.has_tick = 0, False
        self._smaller, self._smaller_until_s = 1, -math.inf
        self._workers: list[Worker] = []
        """The last one works. Those before it hang, or did."""

    def connect(
        self, new_router: Callable[[], TaskRouter], live_roots: set[int], on_progress: Callable[[], None]
    ) -> None:
        """Called once, when all tasks exist.

        live_roots: a tuple none of whose roots is among them is not worked on. on_progress is called when messages have
        come to their end here, or there is room for others outside any tree."""
        self._new_router, self.live_roots, self.on_progress = new_router, live_roots, on_progress
        self._workers.append(self._new_worker())

    def _new_worker(self) -> Worker:
        bolt, router = self._new_bolt(), self._new_router()
        return BatchWorker(self, bolt, router) if isinstance(bolt, BatchBolt) else Worker(self, bolt, router)

    @property
    def bolt(self) -> Bolt:
        """The copy that works on the queue."""
        return self._workers[-1].bolt

    @property
    def counters(self) -> ComponentCounters:
        return sum((worker.counters for worker in self._workers), ComponentCounters())

    def tick(self) -> None:
        """Puts a tick tuple into the queue, unless one waits there. It comes first: behind a long queue it would come
        when what the bolt holds back until then has timed out."""
        if not self.has_tick:
            self.has_tick = True
            self._ticks += 1
            self.queue.put(Tuple((), component=SYSTEM), first=True)

    def note_failed(self, batch: Sequence[Tuple]) -> None:
        """Called when tuples have failed together."""
        if len(batch) > 1:
            self._smaller, self._smaller_until_s = max(1, len(batch) // SMALLER), self.now_s() + SMALLER_FOR_S

    def most_with(self, tup: Tuple, most: int) -> int:
        """How many tuples the bolt may be given, with this one that comes out of the queue; most, as a rule."""
        return min(most, self._smaller) if tup.since_s < self._smaller_until_s else most

    def run(self, stop: threading.Event) -> None:
        """Works until told to stop. What is in the queue then stays there."""
        worker = self._workers[-1]
        try:
            worker.run(stop)
        except BaseException as error:
            if not worker.is_replaced:
                raise
            log.error("A copy of bolt %s that was given up ended with an error.\n%s", self.name, traceback_of(error))

    def flush(self) -> None:
        try:
            if self.buffer.flush():
                self.on_progress()
        except ServerUnavailable as error:
            log.error("%s could not send its acks and will try again: %s", self.context.component, error)

    # -- what the runner asks ------------------------------------------------------------------------------------------

    def delivered(self) -> int:
        """Tuples that it has emitted, each as often as it was delivered, and its ticks."""
        return self._ticks + sum(worker.router.delivered for worker in self._workers)

    def finished(self) -> int:
        """Tuples out of its queue that it is done with."""
        return sum(worker.finished() for worker in self._workers)

    def in_hands(self) -> Sequence[Tuple]:
        """What its worker works on: a tuple, many if it is a BatchBolt, or none."""
        return self._workers[-1].now

    def at_work_s(self) -> float:
        """How long its worker has worked on that, or since the bolt extended a tuple."""
        return self.now_s() - self._workers[-1].sign_of_life_s

    def in_prepare_s(self) -> float:
        """How long its worker has been in prepare(); 0 if it is not."""
        since_s = self._workers[-1].in_prepare_since_s
        return self.now_s() - since_s if since_s else 0.0

    def is_over(self, tup: Tuple) -> bool:
        """Whether every tree that the tuple is in has come to its end; never of one that is in none."""
        return bool(tup.anchors.edges) and self.live_roots.isdisjoint(tup.anchors.edges)

    def tuples(self) -> Iterator[tuple[Tuple, str]]:
        """Every unfinished tuple that it has, with words for where: in the queue, held back, in the hands of the bolt.
        A tuple may be in two of these places while it moves on."""
        for tup in self.queue.snapshot():
            yield tup, QUEUED
        for worker in self._workers:
            for tup in worker.held.all():
                yield tup, HELD
            for tup in worker.now:
                if not tup.outcome:
                    yield tup, IN_HANDS

    def replace_worker(self) -> None:
        """Gives up the worker, which hangs, for one with a fresh copy of the bolt. run() has to be called again."""
        worker = self._new_worker()
        self.note_failed(self.in_hands())
        self._workers[-1].is_replaced = True
        self._workers.append(worker)


class Worker:
    """A copy of the bolt in a thread, and what is in its hands."""

    def __init__(self, task: BoltTask, bolt: Bolt, router: TaskRouter) -> None:
        self._task, self.bolt, self.router = task, bolt, router
        self._collector = _WorkerCollector(self, task.context.component, router, task.buffer)
        self.counters = self._collector.counters
        self.held = HeldTuples()
        self.now: Sequence[Tuple] = ()
        self.sign_of_life_s = self.in_prepare_since_s = 0.0
        self.is_replaced = False
        self._taken, self._flush_at = 0, FLUSH_AFTER
        self._made_room = 0

    def finished(self) -> int:
        """What it still works on after it was replaced is not waited for."""
        return self._taken if self.is_replaced else self.counters.executed + self.counters.skipped

    def run(self, stop: threading.Event) -> None:
        task = self._task
        self.in_prepare_since_s = task.now_s()
        prepare(self.bolt, task.context, self._collector)
        self.in_prepare_since_s = 0.0
        try:
            while not (stop.is_set() or self.is_replaced):
                try:
                    tup = self._take()
                except IndexError:
                    self._rest(stop)
                    continue
                if tup is not None:
                    self._execute(tup)
                if self._taken >= self._flush_at:
                    self._flush_at = self._taken + FLUSH_AFTER
                    task.flush()
            self.bolt.cleanup()
        finally:
            task.flush()

    def _take(self) -> Tuple | None:
        """The next tuple; None if there is nothing to do for it. Raises IndexError if the queue is empty."""
        tup = self._task.queue.take()
        self._taken += 1
        edges = tup.anchors.edges
        if not edges:
            self._make_room(tup)
        elif self._task.live_roots.isdisjoint(edges):  # every tree that it is in has come to its end
            self.counters.skipped += 1
            return None
        return tup

    def _rest(self, stop: threading.Event) -> None:
        self._task.flush()
        if self._made_room:
            self._made_room = 0
            self._task.on_progress()
        self._task.queue.wait(stop)

    def _make_room(self, tup: Tuple) -> None:
        """A tuple outside any tree waits no more."""
        if tup.is_tick:
            self._task.has_tick = False
        self._task.queue.count_loose(-1)
        self._made_room += 1
        if self._made_room >= FLUSH_AFTER:
            self._made_room = 0
            self._task.on_progress()

    def show_life(self) -> None:
        self.sign_of_life_s = self._task.now_s()

    def _execute(self, tup: Tuple) -> None:
        self.sign_of_life_s = tup.since_s = self._task.now_s()
        self.now = (tup,)
        try:
            execute(self.bolt, self._collector, tup)
        except BaseException as error:
            self._blame(self.now, error)
            raise
        if not tup.outcome:
            self.held.add(tup)
        self.now = ()
        self.counters.executed += 1

    def _blame(self, tuples: Sequence[Tuple], error: BaseException) -> None:
        """The run ends, and these tuples alone are at fault: what waits is tried again, which is no attempt at it."""
        for tup in tuples:
            if not tup.outcome:
                self._collector.fail(tup, f"it ends the run: {Cause.of(self._task.name, error).error}")


class BatchWorker(Worker):
    """Gives a BatchBolt all that waits in the queue, up to its batch_size, or fewer after a batch that failed."""

    def _execute(self, tup: Tuple) -> None:
        assert isinstance(self.bolt, BatchBolt)
        batch, most = [tup], self._task.most_with(tup, self.bolt.batch_size)
        try:
            while len(batch) < most:
                if (another := self._take()) is not None:
                    batch.append(another)
        except IndexError:
            pass  # no more wait
        self.show_life()
        for one in batch:
            one.since_s = self.sign_of_life_s
        self.now = batch
        try:
            if not execute_batch(self.bolt, self._collector, list(batch)):
                self._task.note_failed(batch)
        except BaseException as error:
            self._blame(batch, error)
            raise
        self.now = ()
        self.counters.executed += len(batch)


class _WorkerCollector(OutputCollector):
    """Takes an extend for a sign of life."""

    def __init__(self, worker: Worker, component: str, router: TaskRouter, buffer: AckBuffer) -> None:
        super().__init__(component, router, buffer)
        self._worker = worker

    def extend(self, tup: Tuple) -> int:
        pending = super().extend(tup)
        self._worker.show_life()
        tup.extended_s = self._worker.sign_of_life_s
        return pending

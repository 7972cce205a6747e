"""Runs a topology in threads of this process: each task has a copy of its bolt, a thread and a queue."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING

from redis_acker.components.bolt import Bolt
from redis_acker.components.component import ComponentCounters
from redis_acker.driver.driver import DriverOptions
from redis_acker.store.acker import Acker
from redis_acker.store.streams import Cause
from redis_acker.topology.routing import TaskRouter
from redis_acker.topology.runner import Runner
from redis_acker.topology.task import BoltTask
from redis_acker.topology.threads import Loop
from redis_acker.topology.topology import Topology

if TYPE_CHECKING:
    from typing_extensions import Unpack

FLUSH_EVERY_S = 0.1
"""How long acks and fails wait at most, however long their task works on its next tuple."""

HANDS_SHARE = 0.5
"""For this part of a timeout, the tuple in the hands of a bolt is kept alive. So it has at least a whole timeout from
when its execute() began, and with the default of 3 buckets at most two."""

HANGS_AFTER = 2
"""Timeouts after which a bolt hangs that works on a tuple in no tree, which cannot time out."""

log = logging.getLogger(__name__)


class LocalRunner(Runner):
    """Runs each task of a topology in a thread of its own. Use it as a context manager."""

    def __init__(self, topology: Topology, acker: Acker | None, **options: Unpack[DriverOptions]) -> None:
        """acker=None switches tracking off. Every spout gets the options: max_pending, retries, own_timeout_ms,
        observer, wait_for_lease, lease_ms and, for tests, clock."""
        self.bolts = {
            spec.name: [BoltTask(context, partial(spec.copy_for_task, Bolt), acker) for context in spec.tasks]
            for spec in topology.bolts
        }
        """The tasks of each bolt. Each has its copy of the bolt as `bolt`."""
        self._tasks = [task for tasks in self.bolts.values() for task in tasks]
        self._ticking = [(spec.tick_every_s, self.bolts[spec.name]) for spec in topology.bolts if spec.tick_every_s]
        self._unprepared: list[BoltTask] = []
        """Those of which the log says that their bolt does not come back from prepare()."""
        super().__init__(topology, acker, self.bolts, **options)
        for task in self._tasks:
            new_router = partial(TaskRouter, topology, task.context, self.bolts)
            task.connect(new_router, self._live_roots, self._wake_drivers)
            self._threads.stop.wakers.append(task.queue.wake)

    def _loops(self) -> list[Loop]:
        loops: list[Loop] = [(task.name, task.run) for task in self._tasks]
        loops += [("ticks", partial(_tick_often, every_s, tasks)) for every_s, tasks in self._ticking]
        return [*loops, ("flush", self._flush_often)] if self._acker else loops

    def _delivered(self) -> int:
        by_spouts = sum(router.delivered for router in self._spout_routers)
        return by_spouts + sum(task.delivered() for task in self._tasks)

    def _finished(self) -> int:
        return sum(task.finished() for task in self._tasks)

    def _untracked(self) -> int:
        return sum(task.queue.untracked for task in self._tasks)

    def _bolt_counters(self) -> Iterator[tuple[str, ComponentCounters]]:
        return ((task.context.component, task.counters) for task in self._tasks)

    def _holders(self, roots: Collection[int]) -> dict[int, Cause]:
        wanted, found, now_s = set(roots), dict[int, Cause](), time.monotonic()
        for task in self._tasks:
            name = task.context.component
            for tup, where in task.tuples():
                for root in tup.anchors:
                    if root in wanted:
                        found[root] = Cause(name, where.format(name=name, age_s=now_s - tup.since_s))
        return found

    def _doing(self, thread: str) -> str:
        for task in self._tasks:
            tup = task.in_hands()
            if task.name == thread and tup:
                return f"it has worked on {tup} for {task.at_work_s():.1f} s"
        return super()._doing(thread)

    def _flush_often(self, stop: threading.Event) -> None:
        """Sends what tasks have gathered while they are busy with one tuple for long, and what could not be sent."""
        while not stop.wait(FLUSH_EVERY_S):
            for task in self._tasks:
                task.flush()

    # -- keeping alive what waits, and finding what hangs --------------------------------------------------------------

    def _roots_in_work(self, timeout_s: float) -> list[int]:
        """What waits in a queue, or has been taken out of it not long ago. A root that a bolt hangs on is not among
        them, even if others of its tuples wait: nothing can complete it."""
        self._replace_what_hangs(timeout_s)
        roots, hung = set[int](), set[int]()
        for task in self._tasks:
            for tup in task.queue.snapshot():
                roots.update(tup.anchors)
            if now := task.in_hands():
                at_work_s = task.at_work_s()
                if at_work_s < timeout_s * HANDS_SHARE:
                    roots.update(now.anchors)
                elif at_work_s >= timeout_s:
                    hung.update(now.anchors)
        return list(roots - hung)

    def _replace_what_hangs(self, timeout_s: float) -> None:
        """Gives a task whose bolt works on a tuple that has timed out by now a new copy of the bolt. One that hangs
        before its first tuple would hang again."""
        for task in self._tasks:
            if (in_prepare_s := task.in_prepare_s()) >= timeout_s and task not in self._unprepared:
                self._unprepared.append(task)
                log.error("Bolt %s is in prepare() for %.1f s, and its queue waits.", task.name, in_prepare_s)
            tup, at_work_s = task.in_hands(), task.at_work_s()
            if tup is None or at_work_s < timeout_s:
                continue
            if task.is_over(tup) or (not tup.anchors and at_work_s >= HANGS_AFTER * timeout_s):
                log.error(
                    "Bolt %s hangs: it has worked on %s for %.1f s. A new copy of it takes over its queue.",
                    task.name,
                    tup,
                    at_work_s,
                )
                task.replace_worker()
                self._threads.replace(task.name, task.run)


def _tick_often(every_s: float, tasks: list[BoltTask], stop: threading.Event) -> None:
    while not stop.wait(every_s):
        for task in tasks:
            task.tick()

"""Runs a topology in threads of this process: each task has a copy of its bolt, a thread and a queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING

from redis_acker.clock import Clock
from redis_acker.components.bolt import Bolt
from redis_acker.components.component import ComponentCounters
from redis_acker.components.tuples import Tuple
from redis_acker.driver.options import DriverOptions, clock_of
from redis_acker.store.acker import Acker
from redis_acker.store.streams import Cause
from redis_acker.topology.routing import TaskRouter
from redis_acker.topology.runner import Runner, check_parts
from redis_acker.topology.task import QUEUED, BoltTask
from redis_acker.topology.threads import Loop
from redis_acker.topology.topology import Topology

if TYPE_CHECKING:
    from typing_extensions import Unpack

FLUSH_EVERY_S = 0.2
"""How long acks and fails wait at most, however long their task works on its next tuple."""

HANDS_SHARE = 0.5
"""For this part of a timeout, what a bolt was given is kept alive, in its hands or held back. So it has at least a
whole timeout from when its execute() began, and with the default of 3 buckets at most two."""

HANGS_AFTER = 2
"""Timeouts after which a bolt hangs that works on a tuple in no tree, which cannot time out."""

log = logging.getLogger(__name__)


class LocalRunner(Runner):
    """Runs each task of a topology in a thread of its own. Use it as a context manager."""

    def __init__(self, topology: Topology, acker: Acker | None, **options: Unpack[DriverOptions]) -> None:
        """acker=None switches tracking off. Every spout gets the options: max_pending, retries, own_timeout_ms,
        observer, wait_for_lease, lease_ms and clock."""
        check_parts(topology, acker)
        clock = clock_of(acker, options.get("clock"))
        self.bolts = {
            spec.name: [BoltTask(context, partial(spec.copy_for_task, Bolt), acker, clock) for context in spec.tasks]
            for spec in topology.bolts
        }
        """The tasks of each bolt. Each has its copy of the bolt as `bolt`."""
        self._tasks = [task for tasks in self.bolts.values() for task in tasks]
        self._ticking = [(spec.tick_every_s, self.bolts[spec.name]) for spec in topology.bolts if spec.tick_every_s]
        self._own_timeouts = (
            OwnTimeouts(acker, topology.timeout_ms / 1000, clock) if acker and topology.timeout_ms else None
        )
        self._unprepared = set[BoltTask]()
        """Those of which the log says that their bolt does not come back from prepare()."""
        super().__init__(topology, acker, self.bolts, **options)
        self._queues = [task.queue for task in self._tasks]
        for task in self._tasks:
            new_router = partial(TaskRouter, topology, task.context, self.bolts)
            task.connect(new_router, self._live_roots, self._wake_drivers)
            self._threads.stop.wakers.append(task.queue.wake)

    def _loops(self) -> list[Loop]:
        loops: list[Loop] = [(task.name, task.run) for task in self._tasks]
        loops += [("ticks", partial(self._tick_often, every_s, tasks)) for every_s, tasks in self._ticking]
        return [*loops, ("flush", self._flush_often)] if self._acker else loops

    def _delivered(self) -> int:
        by_spouts = sum(router.delivered for router in self._spout_routers)
        return by_spouts + sum(task.delivered() for task in self._tasks)

    def _finished(self) -> int:
        return sum(task.finished() for task in self._tasks)

    def _untracked(self) -> int:
        # Each spout asks several times a second, also while there is nothing to do.
        queues = self._queues
        return sum([queue.loose for queue in queues] if self._acker else map(len, queues))

    def _bolt_counters(self) -> Iterator[tuple[str, ComponentCounters]]:
        return ((task.context.component, task.counters) for task in self._tasks)

    def _holders(self, roots: Collection[int]) -> dict[int, Cause]:
        wanted, found, now_s = set(roots), dict[int, Cause](), self._clock.monotonic_s()
        places = [
            (tup, where, task.context.component)
            for task in self._tasks
            for tup, where in task.tuples()
            if not wanted.isdisjoint(tup.anchors.edges)
        ]
        # Of several tuples of a root, the one that its bolt has had for longest is the last to be noted, and stays.
        places.sort(key=lambda one: (one[1] != QUEUED, -max(one[0].since_s, one[0].extended_s)))
        for tup, where, name in places:
            for root in tup.anchors:
                if root in wanted:
                    found[root] = Cause(name, where.format(name=name, age_s=now_s - tup.since_s))
        return found

    def _doing(self, thread: str) -> str:
        for task in self._tasks:
            if task.name == thread and (now := task.in_hands()):
                return f"it has worked on {_shown(now)} for {task.at_work_s():.1f} s"
            if task.name == thread and (in_prepare_s := task.in_prepare_s()):
                return f"it has been in prepare() for {in_prepare_s:.1f} s"
        return super()._doing(thread)

    def _flush_often(self, stop: threading.Event) -> None:
        """Sends what tasks have gathered while they are busy with one tuple for long, and what could not be sent."""
        while not self._clock.poll(stop, FLUSH_EVERY_S):
            for task in self._tasks:
                task.flush()

    def _tick_often(self, every_s: float, tasks: list[BoltTask], stop: threading.Event) -> None:
        while not self._clock.wait_for(stop, every_s):
            for task in tasks:
                task.tick()

    # -- keeping alive what waits, and finding what hangs --------------------------------------------------------------

    def _roots_in_work(self, timeout_s: float) -> list[int]:
        """What waits in a queue, or was given to a bolt or extended by it not long ago. A root that a bolt hangs on is
        not among them, even if others of its tuples wait: nothing can complete it."""
        self._replace_what_hangs(timeout_s)
        roots, hung = set[int](), set[int]()
        lately_s = self._clock.monotonic_s() - timeout_s * HANDS_SHARE
        for task in self._tasks:
            for tup, where in task.tuples():
                if where == QUEUED or tup.since_s > lately_s or tup.extended_s > lately_s:
                    roots.update(tup.anchors)
            if now := task.in_hands():
                at_work_s, anchors = task.at_work_s(), [root for tup in now for root in tup.anchors]
                if at_work_s < timeout_s * HANDS_SHARE:
                    roots.update(anchors)
                elif at_work_s >= timeout_s:
                    hung.update(anchors)
        if self._own_timeouts:
            self._fail_overdue(self._own_timeouts, roots - hung)
        return list(roots - hung)

    def _fail_overdue(self, timeouts: OwnTimeouts, alive: set[int]) -> None:
        if overdue := timeouts.overdue(self._live_roots.copy(), alive):
            for task in self._tasks:
                task.flush()  # what is acked must not fail because its acks wait here
            timeouts.fail(overdue, self._holders(overdue))
            self._wake_drivers()

    def _replace_what_hangs(self, timeout_s: float) -> None:
        """Gives a task whose bolt works on a tuple that has timed out by now a new copy of the bolt. One that hangs
        before its first tuple would hang again."""
        for task in self._tasks:
            if (in_prepare_s := task.in_prepare_s()) < timeout_s:
                self._unprepared.discard(task)
            elif task not in self._unprepared:
                self._unprepared.add(task)
                log.error("Bolt %s is in prepare() for %.1f s, and its queue waits.", task.name, in_prepare_s)
            now, at_work_s = task.in_hands(), task.at_work_s()
            if not now or at_work_s < timeout_s:
                continue
            tracked = [tup for tup in now if tup.anchors]
            if all(map(task.is_over, tracked)) and (tracked or at_work_s >= HANGS_AFTER * timeout_s):
                log.error(
                    "Bolt %s hangs: it has worked on %s for %.1f s. A new copy of it takes over its queue.",
                    task.name,
                    _shown(now),
                    at_work_s,
                )
                task.replace_worker()
                self._threads.replace(task.name, task.run)


def _shown(tuples: Sequence[Tuple]) -> str:
    return str(tuples[0]) if len(tuples) == 1 else f"{len(tuples)} tuples"


class OwnTimeouts:
    """Finds and fails pending roots that have not been alive for a timeout: the store would wait for longer."""

    def __init__(self, acker: Acker, timeout_s: float, clock: Clock) -> None:
        self._acker, self._timeout_s, self._now_s = acker, timeout_s, clock.monotonic_s
        self._alive_s: dict[int, float] = {}
        """When each pending root was last known to be alive."""

    def overdue(self, pending: Set[int], alive: Set[int]) -> list[int]:
        """Called often within a timeout. alive: roots that wait, or were given to a bolt or extended lately."""
        now_s = self._now_s()
        self._alive_s = {root: now_s if root in alive else self._alive_s.get(root, now_s) for root in pending}
        return [root for root, alive_s in self._alive_s.items() if now_s - alive_s >= self._timeout_s]

    def fail(self, roots: Sequence[int], holders: Mapping[int, Cause]) -> None:
        """holders: which component has a root, and where. Of the others the driver knows more: what an earlier one has
        left, which is no attempt, and what was handed over."""
        fails: dict[Cause, list[int]] = {}
        for root in roots:
            holder = holders.get(root)
            error = f"the topology allows {self._timeout_s:g} s: {holder.error}" if holder else ""
            cause = Cause(holder.component if holder else "", error, reason="timeout")
            fails.setdefault(cause, []).append(root)
        self._acker.fail_all([(some, cause) for cause, some in fails.items()])

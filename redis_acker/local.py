"""Runs a topology in threads of this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass

from redis_acker.acker import Acker
from redis_acker.bolt import TaskContext
from redis_acker.bolt_task import BoltTask, LocalRouter, copy_of
from redis_acker.driver import DEFAULT_MAX_PENDING, SpoutDriver
from redis_acker.observer import Observer
from redis_acker.retries import RetryPolicy
from redis_acker.rotator import Rotator
from redis_acker.spout import Spout
from redis_acker.threads import Threads
from redis_acker.topology import Node, Topology

FLUSH_EVERY_S = 0.1
"""How long acks and fails wait at most, however long their task works on its next tuple."""

_IDLE_S = 0.01

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ComponentCounters:
    """What the tasks of a component have done."""

    executed: int = 0
    """Tuples a bolt has worked on."""
    emitted: int = 0
    acked: int = 0
    """Tuples of a bolt; messages of a spout that are complete."""
    failed: int = 0
    """Tuples of a bolt; attempts at messages of a spout."""
    replayed: int = 0
    dead: int = 0
    waited: int = 0
    """Rounds in which max_pending left a spout no room for new messages."""

    def __add__(self, other: ComponentCounters) -> ComponentCounters:
        return ComponentCounters(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class LocalRunner:
    """Runs each task of a topology in a thread, with a rotator beside them. Use it as a context manager."""

    def __init__(
        self,
        topology: Topology,
        acker: Acker | None,
        *,
        max_pending: int = DEFAULT_MAX_PENDING,
        retries: RetryPolicy | None = None,
        own_timeout_ms: int | None = None,
        observer: Observer | None = None,
        clock: Callable[[], int] | None = None,
        wait_for_lease: bool = False,
    ) -> None:
        """acker=None switches tracking off. clock gives ms in place of the system's clock, for tests."""
        self._acker = acker
        self._threads = Threads(log)
        spouts = [node for node in topology.nodes.values() if node.is_spout]
        bolts = [node for node in topology.nodes.values() if not node.is_spout]
        self.bolts = {node.name: [BoltTask(context, node, acker) for context in _contexts(node)] for node in bolts}
        self._tasks = [task for tasks in self.bolts.values() for task in tasks]
        self._routers = [LocalRouter(topology, task.context, self.bolts) for task in self._tasks]
        for task, router in zip(self._tasks, self._routers, strict=True):
            task.connect(router)
        self._spouts = [context for node in spouts for context in _contexts(node)]
        self.drivers: list[SpoutDriver] = []
        for context in self._spouts:
            self._routers.append(LocalRouter(topology, context, self.bolts))
            self.drivers.append(
                SpoutDriver(
                    copy_of(topology.nodes[context.component], Spout),
                    acker,
                    self._routers[-1],
                    name=f"{topology.name}/{context.component}/{context.task}",
                    context=context,
                    max_pending=max_pending,
                    retries=retries,
                    own_timeout_ms=own_timeout_ms,
                    observer=observer,
                    holder_of=self._holder_of,
                    clock=clock,
                    wait_for_lease=wait_for_lease,
                )
            )

    def start(self) -> LocalRunner:
        """Starts the threads."""
        loops = [(f"{task.context.component}/{task.context.task}", task.run) for task in self._tasks]
        if self._acker:
            loops += [("rotator", Rotator(self._acker).run), ("flush", self._flush_often)]
        loops += [(driver.name, driver.run) for driver in self.drivers]
        self._threads.start(loops)
        return self

    def wait_until_idle(self, *, timeout_s: float | None = None) -> bool:
        """Waits until the sources are exhausted and every message is completed or dead. False after timeout_s, or if
        the run ends before. Raises the error of a component that ends the run."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._threads.raise_error()
            if not self._threads.has_failed and self._is_idle():
                return True
            if self._threads.stop.is_set() or (deadline is not None and time.monotonic() > deadline):
                return False
            time.sleep(_IDLE_S)

    def counters(self) -> dict[str, ComponentCounters]:
        """What each component has done so far."""
        found: dict[str, ComponentCounters] = {}
        for task in self._tasks:
            did = task.collector
            one = ComponentCounters(task.executed, did.emitted, did.acked, did.failed)
            found[task.context.component] = found.get(task.context.component, ComponentCounters()) + one
        for context, driver in zip(self._spouts, self.drivers, strict=True):
            drove = driver.counters
            one = ComponentCounters(
                0, drove.emitted, drove.completed, drove.failed, drove.replayed, drove.dead, drove.waited
            )
            found[context.component] = found.get(context.component, ComponentCounters()) + one
        return found

    def stop(self) -> None:
        """Ends the threads. What is in work stays pending in the store. Raises the error of a component that ended the
        run, unless that was raised before."""
        self._threads.join()
        self._threads.raise_error()

    def __enter__(self) -> LocalRunner:
        return self.start()

    def __exit__(self, exc_type: object, *exc_info: object) -> None:
        self._threads.join()
        if exc_type is None:
            self._threads.raise_error()

    def _is_idle(self) -> bool:
        # In this order. Both counts only grow, and a delivery is counted before its execution: if they are equal, no
        # tuple was on its way while the drivers were asked.
        executed = sum(task.executed for task in self._tasks)
        idle = all(driver.is_idle() for driver in self.drivers)
        return idle and executed == sum(router.delivered for router in self._routers)

    def _flush_often(self, stop: threading.Event) -> None:
        """Sends what tasks have gathered that are busy with one tuple for long."""
        while not stop.wait(FLUSH_EVERY_S):
            for task in self._tasks:
                task.flush()

    def _holder_of(self, root: int) -> str:
        """The component that has been given a tuple of this root and has not finished it."""
        return next((task.context.component for task in self._tasks if task.holds(root)), "")


def _contexts(node: Node) -> list[TaskContext]:
    return [TaskContext(node.name, task, node.parallelism) for task in range(node.parallelism)]

"""Runs a topology in threads of this process."""

from __future__ import annotations

import copy
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from redis_acker.acker import Acker
from redis_acker.anchors import Anchors
from redis_acker.bolt import Bolt, TaskContext, execute
from redis_acker.collector import AckBuffer, OutputCollector
from redis_acker.driver import DEFAULT_MAX_PENDING, SpoutDriver
from redis_acker.errors import AckerError, BadInput, ServerUnavailable
from redis_acker.observer import Observer
from redis_acker.retries import RetryPolicy
from redis_acker.rotator import Rotator
from redis_acker.spout import Spout
from redis_acker.topology import Node, Topology, task_of_key
from redis_acker.tuples import Tuple

FLUSH_AFTER = 500
"""Acks and fails a task gathers before it sends them; it sends them earlier when it has nothing else to do."""

_IDLE_S = 0.01

log = logging.getLogger(__name__)


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
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self.bolts = {
            node.name: [_BoltTask(node, task, acker) for task in range(node.parallelism)]
            for node in topology.nodes.values()
            if not node.is_spout
        }
        for name, tasks in self.bolts.items():
            for one in tasks:
                one.prepare(_LocalRouter(topology, name, self.bolts))
        self.drivers = [
            SpoutDriver(
                copy.deepcopy(_spout(node)),
                acker,
                _LocalRouter(topology, node.name, self.bolts),
                name=f"{topology.name}/{node.name}/{task}",
                context=TaskContext(node.name, task, node.parallelism),
                max_pending=max_pending,
                retries=retries,
                own_timeout_ms=own_timeout_ms,
                observer=observer,
                holder_of=self._holder_of,
                clock=clock,
                wait_for_lease=wait_for_lease,
            )
            for node in topology.nodes.values()
            if node.is_spout
            for task in range(node.parallelism)
        ]
        self._threads: list[threading.Thread] = []

    def start(self) -> LocalRunner:
        """Starts the threads."""
        loops: list[Callable[[threading.Event], None]] = [task.run for tasks in self.bolts.values() for task in tasks]
        if self._acker:
            loops.append(Rotator(self._acker).run)
        loops += [driver.run for driver in self.drivers]
        self._threads = [threading.Thread(target=self._guard, args=(loop,), daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()
        return self

    def wait_until_idle(self, *, timeout_s: float | None = None) -> bool:
        """Waits until the sources are exhausted and every message is completed or dead. False after timeout_s."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self._is_idle() and self._is_idle()):
            self._raise_error()
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(_IDLE_S)
        return True

    def stop(self) -> None:
        """Ends the threads. What is in work stays pending in the store. Raises what a thread could not handle."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._raise_error()

    def __enter__(self) -> LocalRunner:
        return self.start()

    def __exit__(self, exc_type: object, *exc_info: object) -> None:
        try:
            self.stop()
        except AckerError:
            if exc_type is None:
                raise

    def _is_idle(self) -> bool:
        return all(driver.is_idle() for driver in self.drivers) and all(
            task.is_idle() for tasks in self.bolts.values() for task in tasks
        )

    def _guard(self, loop: Callable[[threading.Event], None]) -> None:
        try:
            loop(self._stop)
        except BaseException as error:
            self._errors.append(error)
            self._stop.set()

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors[0]

    def _holder_of(self, root: int) -> str:
        """The component that has been given a tuple of this root and has not finished it."""
        for name, tasks in self.bolts.items():
            if any(task.holds(root) for task in tasks):
                return name
        return ""


class _BoltTask:
    """One copy of a bolt, with its queue."""

    def __init__(self, node: Node, task: int, acker: Acker | None) -> None:
        assert isinstance(node.component, Bolt)
        self.bolt = copy.deepcopy(node.component)
        self.executed = 0
        self._context = TaskContext(node.name, task, node.parallelism)
        self._buffer = AckBuffer(acker)
        self._queue: queue.SimpleQueue[Tuple] = queue.SimpleQueue()
        self._open: dict[int, Tuple] = {}
        self._working = False

    def prepare(self, router: _LocalRouter) -> None:
        self.collector = OutputCollector(self._context.component, router, self._buffer)

    def put(self, tup: Tuple) -> None:
        self._queue.put(tup)

    def is_idle(self) -> bool:
        return self._queue.empty() and not self._working

    def holds(self, root: int) -> bool:
        return any(root in tup.anchors for tup in list(self._open.values()))

    def run(self, stop: threading.Event) -> None:
        self.bolt.prepare(self._context, self.collector)
        while not stop.is_set():
            try:
                tup = self._queue.get(timeout=_IDLE_S)
            except queue.Empty:
                self._flush()
                continue
            self._working = True
            self._execute(tup)
            if self._queue.empty() or len(self._buffer) >= FLUSH_AFTER:
                self._flush()
            self._working = False
        self.bolt.cleanup()
        self._flush()

    def _execute(self, tup: Tuple) -> None:
        self._open[id(tup)] = tup
        execute(self.bolt, self.collector, tup)
        self.executed += 1
        if tup.outcome:
            del self._open[id(tup)]
        elif len(self._open) % FLUSH_AFTER == 0:  # a bolt may finish tuples later, from other calls
            self._open = {key: one for key, one in self._open.items() if not one.outcome}

    def _flush(self) -> None:
        try:
            self._buffer.flush()
        except ServerUnavailable as error:
            log.error("%s could not send its acks and will try again: %s", self._context.component, error)


class _LocalRouter:
    """Brings what one component emits into the queues of the tasks that listen."""

    def __init__(self, topology: Topology, component: str, bolts: dict[str, list[_BoltTask]]) -> None:
        self._component = component
        self._node = topology.nodes[component].component
        self._topology = topology
        self._bolts = bolts
        self._turn = count()

    def targets(self, stream: str, values: Sequence[Any]) -> list[_BoltTask]:
        fields = self._node.fields_of(stream)
        if fields is None:
            raise BadInput(f"{self._component!r} emits to stream {stream!r}, which it does not declare.")
        if fields and len(fields) != len(values):
            raise BadInput(
                f"{self._component!r} emits {len(values)} values to stream {stream!r}, which has fields {list(fields)}."
            )
        targets: list[_BoltTask] = []
        for node, grouping in self._topology.listeners(self._component, stream):
            tasks = self._bolts[node.name]
            if grouping.kind == "all":
                targets += tasks
            elif grouping.kind == "global":
                targets.append(tasks[0])
            elif grouping.kind == "shuffle":
                targets.append(tasks[next(self._turn) % len(tasks)])
            else:
                key = [values[position] for position in grouping.positions(fields)]
                targets.append(tasks[task_of_key(key, len(tasks))])
        return targets

    def deliver(self, target: _BoltTask, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        fields = self._node.fields_of(stream) or ()
        target.put(Tuple(values, fields=fields, anchors=anchors, component=self._component, stream=stream))


def _spout(node: Node) -> Spout:
    assert isinstance(node.component, Spout)
    return node.component

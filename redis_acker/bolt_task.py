"""Bolts at work in this process: each task has a copy of its bolt, a thread and a queue."""

from __future__ import annotations

import copy
import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from redis_acker.acker import Acker
from redis_acker.anchors import Anchors
from redis_acker.bolt import Bolt, Component, TaskContext, execute
from redis_acker.collector import AckBuffer, OutputCollector
from redis_acker.errors import BadInput, ServerUnavailable
from redis_acker.topology import BadTopology, Node, Topology
from redis_acker.tuples import Tuple

FLUSH_AFTER = 500
"""Acks and fails a task gathers before it sends them; it sends them earlier when it has nothing else to do."""

HELD_LIMIT = 10_000
"""Most roots of unfinished tuples that a task remembers, to be named when they time out."""

_IDLE_S = 0.01

C = TypeVar("C", bound=Component)

log = logging.getLogger(__name__)


class BoltTask:
    """One copy of a bolt, with its queue."""

    def __init__(self, context: TaskContext, node: Node, acker: Acker | None) -> None:
        self.bolt = copy_of(node, Bolt)
        self.context = context
        self.executed = 0
        self._buffer = AckBuffer(acker)
        self._queue: queue.SimpleQueue[Tuple] = queue.SimpleQueue()
        self._now: Tuple | None = None
        self._held = _HeldTuples()

    def connect(self, router: LocalRouter) -> None:
        """Called once, when all tasks exist."""
        self.collector = OutputCollector(self.context.component, router, self._buffer)

    def put(self, tup: Tuple) -> None:
        self._queue.put(tup)

    def holds(self, root: int) -> bool:
        """Whether the bolt was given a tuple of this root and has not finished it."""
        now = self._now
        return (now is not None and not now.outcome and root in now.anchors) or self._held.has(root)

    def run(self, stop: threading.Event) -> None:
        """Works until told to stop. What is in the queue then is left there."""
        self.bolt.prepare(self.context, self.collector)
        try:
            while not stop.is_set():
                try:
                    tup = self._queue.get(timeout=_IDLE_S)
                except queue.Empty:
                    self.flush()
                    continue
                self._execute(tup)
                if self._queue.empty() or len(self._buffer) >= FLUSH_AFTER:
                    self.flush()
            self.bolt.cleanup()
        finally:
            self.flush()

    def flush(self) -> None:
        try:
            self._buffer.flush()
        except ServerUnavailable as error:
            log.error("%s could not send its acks and will try again: %s", self.context.component, error)

    def _execute(self, tup: Tuple) -> None:
        self._now = tup
        execute(self.bolt, self.collector, tup)
        if not tup.outcome:
            self._held.add(tup)
        self._now = None
        self.executed += 1


class _HeldTuples:
    """Tuples that a bolt was given and means to finish later, or has forgotten. One thread adds, others ask."""

    def __init__(self) -> None:
        self._by_root: dict[int, list[Tuple]] = {}
        self._size, self._clean_at = 0, FLUSH_AFTER

    def add(self, tup: Tuple) -> None:
        for root in tup.anchors:
            self._by_root.setdefault(root, []).append(tup)
        self._size += 1
        if self._size >= self._clean_at:
            self._clean()

    def has(self, root: int) -> bool:
        return any(not tup.outcome for tup in self._by_root.get(root, ()))

    def _clean(self) -> None:
        """Drops what has been finished since, and the oldest of the rest if it is too much."""
        held = {root: [tup for tup in tuples if not tup.outcome] for root, tuples in self._by_root.items()}
        held_roots = [root for root, tuples in held.items() if tuples]
        self._by_root = {root: held[root] for root in held_roots[-HELD_LIMIT:]}
        self._size = sum(map(len, self._by_root.values()))
        self._clean_at = 2 * self._size + FLUSH_AFTER


class Inbox(Protocol):
    """Where a task gets its tuples from."""

    def put(self, tup: Tuple) -> None: ...


class LocalRouter:
    """Brings what one task emits to the tasks that listen."""

    def __init__(self, topology: Topology, emitter: TaskContext, bolts: Mapping[str, Sequence[Inbox]]) -> None:
        self.delivered = 0
        self._component = emitter.component
        component = topology.nodes[emitter.component].component
        self._fields = {stream: tuple(fields) for stream, fields in component.all_streams().items()}
        self._listeners = {
            stream: [
                (bolts[node.name], grouping.dealer(fields, node.parallelism, first=emitter.task))
                for node, grouping in topology.listeners(emitter.component, stream)
            ]
            for stream, fields in self._fields.items()
        }

    def targets(self, stream: str, values: Sequence[Any]) -> list[Inbox]:
        fields = self._fields.get(stream)
        if fields is None:
            raise BadInput(
                f"{self._component!r} emits to stream {stream!r}, which it does not declare: it has "
                f"{list(self._fields)}."
            )
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            raise BadInput(f"{self._component!r} emits {values!r}, which is no list of values: put it into one.")
        if fields and len(fields) != len(values):
            raise BadInput(
                f"{self._component!r} emits {len(values)} values to stream {stream!r}, which has fields {list(fields)}."
            )
        return [tasks[i] for tasks, deal in self._listeners[stream] for i in deal(values)]

    def deliver(self, target: Inbox, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        self.delivered += 1
        fields = self._fields[stream]
        target.put(Tuple(values, fields=fields, anchors=anchors, component=self._component, stream=stream))


def copy_of(node: Node, kind: type[C]) -> C:
    """A task's own copy of a component."""
    try:
        component = copy.deepcopy(node.component)
    except Exception as error:
        raise BadTopology(
            f"{node.name!r} cannot be copied for its tasks ({error}): open connections, files and locks in prepare() "
            "or open(), not before."
        ) from error
    assert isinstance(component, kind)
    return component

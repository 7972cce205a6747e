"""What a task emits: its edges and keys, and the rows that carry it to other tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from hashlib import blake2b
from struct import pack
from typing import Any

from redis_acker.components.component import TaskContext, TaskId
from redis_acker.components.tuples import Tuple
from redis_acker.topology.routing import TaskRouter
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.wire import MORE, Chunk, TupleDelivery, WireRow, pack_values

CHUNK_BYTES = 1 << 20
"""Deliveries are sent on when there is about this much of them."""

_NO_TASK = -1
"""In place of the task that gets a delivery: another program does."""

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Emission:
    """Edges and keys of what a task emits.

    An edge says from which task to which a delivery goes, what was at hand and how much had been emitted for it, and
    the values. So a task that Spark runs again gives the same values the same edges, and a bolt that emits other values
    in its second run gives them other edges: what one run emitted never stands in for what another did. And since no
    two tasks send or get the same edge, each edge is acked at most once from either side: a root completes only if
    every delivery that was acked as sent was acked as done too.
    """

    def __init__(self, run: bytes, sender: int) -> None:
        """run makes the edges differ from those of other runs."""
        self._run, self._sender = run, sender
        self.values = self._digest = b""
        self._targets: list[int] = []

    def at(self, key: bytes) -> None:
        """From now on the tuple with this key is at hand."""
        self._key = key
        self._edges = self._deliveries = self._emits = 0

    def turn(self, tasks: int) -> int:
        """A task for the next emit of a shuffle. It depends on the tuple at hand alone, and not on how many came before
        it: when a task is run again without one of its tuples, all others go where they went. Multiples of the golden
        ratio are dealt out evenly, whichever tuples are left out."""
        number = 0
        for at in range(0, len(self._key), 4):
            number = (number + int.from_bytes(self._key[at : at + 4], "big")) * _GOLDEN & _MASK
        return ((number + self._emits) * _GOLDEN & _MASK) * tasks >> 64

    def begin(self, values: Sequence[Any], targets: Sequence[int]) -> None:
        """These values are emitted next, to these tasks."""
        self.values = pack_values(values)
        self._digest = blake2b(self.values, digest_size=16).digest()
        self._targets = list(reversed(targets))
        self._emits += 1

    def next_target(self) -> None:
        """The next edges are those of the next delivery."""
        self._target = self._targets.pop() if self._targets else _NO_TASK

    def new_edge(self) -> int:
        self._edges += 1
        content = pack(">iiI", self._sender, self._target, self._edges) + self._digest + self._key
        return int.from_bytes(blake2b(content, digest_size=8, key=self._run).digest(), "big") or 1

    def new_key(self) -> bytes:
        self._deliveries += 1
        return self._key + pack(">I", self._deliveries)


class Outbox:
    """Deliveries of a task to other tasks, on their way."""

    def __init__(self, plan: Plan, emission: Emission, sender: int, level: int, failed_roots: Set[int]) -> None:
        """failed_roots: those that the task has failed so far. What is in their trees alone needs no work any more."""
        self._plan, self._emission, self._sender = plan, emission, sender
        self._failed_roots = failed_roots
        self._next_level = level + 1
        self._waiting: dict[int, list[TupleDelivery]] = {}
        self._sent: Counter[int] = Counter()
        self._bytes = 0
        self.queues = plan.queues(self.put)

    def is_full(self) -> bool:
        return self._bytes > CHUNK_BYTES

    def put(self, task: int, tup: Tuple) -> None:
        stream = self._plan.stream_numbers[tup.component, tup.stream]
        one = TupleDelivery(self._emission.new_key(), stream, tup.anchors.to_bytes(), self._emission.values)
        self._waiting.setdefault(task, []).append(one)
        self._sent[task] += 1
        self._bytes += len(one.values) + len(one.anchors) + len(one.key)

    def dispatch(self) -> list[WireRow]:
        """Empties the outbox into rows. More may follow."""
        waiting = self._empty()
        return [self._row(task, MORE, some) for task, some in waiting.items()]

    def close(self) -> list[WireRow]:
        """The last rows. They tell each task that listens how many deliveries there were for it, also if there were
        none."""
        waiting = self._empty()
        receivers = {*waiting, *self._plan.receivers_of(self._sender)}
        return [self._row(task, self._sent[task], waiting.get(task, [])) for task in sorted(receivers)]

    def _empty(self) -> dict[int, list[TupleDelivery]]:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        if self._failed_roots:
            for task, deliveries in waiting.items():
                waiting[task] = [one for one in deliveries if not one.is_only_in(self._failed_roots)]
                self._sent[task] -= len(deliveries) - len(waiting[task])
        return waiting

    def _row(self, task: int, total: int, deliveries: list[TupleDelivery]) -> WireRow:
        return self._plan.address(task, Chunk.of(self._sender, total, deliveries).packed(), self._next_level)


class ExecutorRouter(TaskRouter):
    """Routes what a bolt emits to an outbox: the tasks that get it run elsewhere."""

    def __init__(self, plan: Plan, emitter: TaskContext, outbox: Outbox, emission: Emission) -> None:
        super().__init__(plan.topology, emitter, outbox.queues)
        self._emission, self._numbers = emission, plan.tasks_of
        for stream, listeners in self._listeners.items():
            groupings = [grouping for _, grouping in plan.topology.listeners(emitter.component, stream)]
            self._listeners[stream] = [
                (tasks, self._by_turn(len(tasks)) if grouping.kind == "shuffle" else deal)
                for (tasks, deal), grouping in zip(listeners, groupings, strict=True)
            ]

    def _by_turn(self, tasks: int) -> Callable[[Sequence[Any]], range]:
        def deal(values: Sequence[Any]) -> range:
            task = self._emission.turn(tasks)
            return range(task, task + 1)

        return deal

    def targets(self, stream: str, values: Sequence[Any], to: TaskId | None = None) -> list[TaskId]:
        found = super().targets(stream, values, to)
        if found:
            # Before anything is linked: values that cannot be pickled leave no edge behind.
            self._emission.begin(values, [self._numbers[one.component][one.task] for one in found])
        return found

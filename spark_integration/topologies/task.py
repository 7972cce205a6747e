"""What executors do with a micro-batch: the tasks of bolts, and the steps that Spark runs on partitions."""

from __future__ import annotations

import logging
import pickle
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import pack
from uuid import uuid4

import pyarrow as pa

from redis_acker.components.batch_bolt import BatchBolt, execute_batch
from redis_acker.components.bolt import AckBuffer, Bolt, OutputCollector, execute, prepare
from redis_acker.components.component import BoltRouter
from redis_acker.components.tracing import flush_spans
from redis_acker.components.tuples import Anchors, Tuple
from redis_acker.errors import text_of, traceback_of
from redis_acker.store.acker import Acker
from redis_acker.store.ids import Token
from redis_acker.store.packed import split_anchors, unpack_anchors
from spark_integration.topologies.acks import TaskAcks, when_it_is_there
from spark_integration.topologies.emission import Emission, ExecutorRouter, Outbox
from spark_integration.topologies.hands import LOOKS_PER_TIMEOUT, Hands, watched
from spark_integration.topologies.notes import Notes
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.wire import (
    RESULT,
    TupleDelivery,
    WireRow,
    all_deliveries,
    from_arrow,
    to_arrow,
    unpack_values,
)

LEFT_OPEN = "it was neither acked nor failed by the end of its micro-batch"

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Level:
    """What the tasks of a level need to know to work on a micro-batch."""

    plan: Plan
    number: int
    batch: int
    is_careful: bool = False
    """Whether tasks note what they work on before they begin."""
    most: Mapping[str, int] = field(default_factory=dict)
    """Of some BatchBolts, how many tuples they are given at once at most."""


def level_step(level: Level) -> ArrowFunction:
    """A function for mapInArrow that runs the tasks of a level on their rows, and lets other rows pass."""
    plan, tasks = level.plan, frozenset(level.plan.tasks_at(level.number))

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shares: dict[int, list[bytes]] = {}
        for rows in map(from_arrow, batches):
            passing = [plan.address(row.task, row.data, level.number + 1) for row in rows if row.task not in tasks]
            if passing:
                yield to_arrow(passing)
            for row in rows:
                if row.task in tasks:
                    shares.setdefault(row.task, []).append(row.data)
        for task, chunks in sorted(shares.items()):
            # Before anything is done: what a task acks, it must have done with all of its deliveries at hand.
            deliveries = all_deliveries(chunks, plan.senders_to[task])
            for found in Task(level, task).rows(deliveries):
                if found:
                    yield to_arrow(found)

    return step


def load_step(plan: Plan, *, store: bool) -> ArrowFunction:
    """A function for mapInArrow that says which bolts cannot be loaded in an executor, and why. store: raises an error
    if the store cannot be reached from there."""

    def load_bolts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            if plan.store and store:
                plan.store.acker()
            for name, pickled in plan.bolts.items():
                try:
                    pickle.loads(pickled)
                except Exception as error:
                    yield to_arrow([WireRow(0, RESULT, f"{name!r}: {text_of(error)}".encode())])

    return load_bolts


class Task:
    """A task of a bolt. Its copy of the bolt lives for one micro-batch: prepare(), its tuples, cleanup()."""

    def __init__(self, level: Level, number: int) -> None:
        self._plan, self._level, self._number = level.plan, level, number
        self._context = self._plan.tasks[number]
        self._emission = Emission(self._plan.run, number)
        self._acks: TaskAcks | None = None
        self._hands: Hands | None = None
        self._given_up_keys, self._given_up_roots = set[bytes](), set[int]()
        self._failed_batch = 0
        """Size of the largest batch that failed as a whole."""
        if self._plan.store:
            self._open(when_it_is_there(self._plan.store.acker))
        failed_roots = frozenset[int]() if self._acks is None else self._acks.failed_roots
        self._outbox = Outbox(self._plan, self._emission, number, level.number, failed_roots)
        component = self._context.component
        router = ExecutorRouter(self._plan, self._context, self._outbox, self._emission)
        buffer = AckBuffer(None) if self._acks is None else self._acks
        self._collector = _TaskCollector(component, router, buffer, self._emission, self._hands)

    def _open(self, acker: Acker) -> None:
        run, name = self._plan.run.hex(), f"{self._level.batch} {self._level.number} {self._number}"
        notes = Notes(acker, run)
        self._acks = TaskAcks(acker, Token.of(f"{run} {name}"))
        place = f"{name} {uuid4().hex}"
        self._hands = Hands(acker, notes, self._context.component, place, is_careful=self._level.is_careful)
        for note in when_it_is_there(notes.read).values():
            if note.state == "given up":
                self._given_up_keys.add(bytes.fromhex(note.key))
                self._given_up_roots.update(note.roots)

    def rows(self, deliveries: Sequence[TupleDelivery]) -> Iterator[list[WireRow]]:
        """Works on its share of the micro-batch. Yields rows for other tasks and, last, one for the driver."""
        known = [one for one in deliveries if not self._is_given_up(one)]
        self._collector.counters.skipped += len(deliveries) - len(known)
        if known and self._hands:
            yield from watched(self._work(known), self._hands.look, self._hands.timeout_s / LOOKS_PER_TIMEOUT)
        elif known:
            yield from self._work(known)
        done = self._context.component, self._collector.counters, self._failed_batch
        result = self._plan.address(RESULT, pickle.dumps(done), self._level.number + 1)
        yield [*self._outbox.close(), result]

    def _work(self, deliveries: Sequence[TupleDelivery]) -> Iterator[list[WireRow]]:
        tuples = [self._tuple(one) for one in deliveries]
        bolt = self._prepare(tuples)
        if bolt:
            size = bolt.batch_size if isinstance(bolt, BatchBolt) else 1
            size = min(size, self._level.most.get(self._context.component, size))
            for at in range(0, len(tuples), size):
                # The batches are the same in every attempt, so the key of the first names what all of it emits.
                if some := [tup for tup in tuples[at : at + size] if not tup.outcome]:
                    self._execute(bolt, some, deliveries[at].key)
                if self._outbox.is_full():
                    yield self._outbox.dispatch()
                if self._acks is not None and self._acks.is_due():
                    self._acks.send(acks=_has_no_cleanup(bolt))
            self._cleanup(bolt, tuples)
        for tup in tuples:
            if not tup.outcome:
                self._collector.fail(tup, LEFT_OPEN)
        if any(tup.anchors.trace for tup in tuples):
            flush_spans()
        if self._acks is not None:
            self._acks.send()

    def _is_given_up(self, delivery: TupleDelivery) -> bool:
        return delivery.key in self._given_up_keys or delivery.is_only_in(self._given_up_roots)

    def _tuple(self, delivery: TupleDelivery) -> Tuple:
        component, stream = self._plan.streams[delivery.stream]
        fields = self._plan.topology.components[component].component.fields_of(stream) or ()
        packed, trace = split_anchors(delivery.anchors)
        edges = dict(unpack_anchors(packed))
        anchors = Anchors.traced(edges, trace) if trace else Anchors.trusted(edges)
        tup = Tuple((), fields=fields, anchors=anchors, component=component, stream=stream)
        if self._acks is not None:
            self._acks.expect(tup)
        try:
            tup.values = unpack_values(delivery.values)
        except Exception as error:
            self._collector.fail(tup, f"its values cannot be unpickled: {text_of(error)}")
        return tup

    def _execute(self, bolt: Bolt, tuples: list[Tuple], key: bytes) -> None:
        self._at(key, tuples)
        if isinstance(bolt, BatchBolt):
            if not execute_batch(bolt, self._collector, list(tuples)):
                self._failed_batch = max(self._failed_batch, len(tuples))
        else:
            execute(bolt, self._collector, tuples[0])
        self._put_down()
        self._collector.counters.executed += len(tuples)

    def _prepare(self, tuples: list[Tuple]) -> Bolt | None:
        """The bolt, ready to work. None if it cannot work now: its tuples fail, to be replayed later."""
        bolt = pickle.loads(self._plan.bolts[self._context.component])
        self._at(self._own_key("prepare"), tuples, "prepare()")
        try:
            prepare(bolt, self._context, self._collector)
        except (Exception, CancelledError) as error:
            for tup in tuples:
                if not tup.outcome:
                    self._collector.fail(tup, f"prepare() raised {text_of(error)}")
            self._log("prepare", error)
            return None
        finally:
            self._put_down()
        assert isinstance(bolt, Bolt)
        return bolt

    def _cleanup(self, bolt: Bolt, tuples: list[Tuple]) -> None:
        """An error in cleanup() fails all tuples, also those that were acked: what it should write may be missing."""
        self._at(self._own_key("cleanup"), tuples, "cleanup()")
        try:
            bolt.cleanup()
        except (Exception, CancelledError) as error:
            for tup in tuples:
                if tup.outcome != "failed":
                    self._collector.counters.acked -= tup.outcome == "acked"
                    if self._acks is not None and tup.outcome:
                        self._acks.expect(tup)
                    tup.outcome = ""
                    self._collector.fail(tup, f"cleanup() raised {text_of(error)}")
            self._log("cleanup", error)
        finally:
            self._put_down()

    def _at(self, key: bytes, tuples: list[Tuple], phase: str = "") -> None:
        self._emission.at(key)
        if self._hands:
            self._hands.take(key, tuples, phase)

    def _put_down(self) -> None:
        if self._hands:
            self._hands.put_down()

    def _log(self, phase: str, error: BaseException) -> None:
        name = self._context.component
        log.error("Bolt %s raised an error in %s(), which fails its tuples.\n%s", name, phase, traceback_of(error))

    def _own_key(self, phase: str) -> bytes:
        """The key for what is emitted with no tuple at hand. It sorts behind the keys of spouts."""
        return b"\xff" + pack(">Q", self._level.batch) + f"{self._number}/{phase}".encode()


def _has_no_cleanup(bolt: Bolt) -> bool:
    """Whether what the bolt acks is done: one that has a cleanup() may have put it off until then."""
    return getattr(bolt.cleanup, "__func__", None) is Bolt.cleanup


class _TaskCollector(OutputCollector):
    """Draws edges that are the same in every attempt at the task, and takes an extend for a sign of life."""

    def __init__(
        self, component: str, router: BoltRouter, buffer: AckBuffer, emission: Emission, hands: Hands | None
    ) -> None:
        super().__init__(component, router, buffer, emission.new_edge)
        self._emission, self._hands = emission, hands

    def _link(self, parents: list[Tuple]) -> Anchors:
        self._emission.next_target()
        return super()._link(parents)

    def extend(self, tup: Tuple) -> int:
        if self._hands:
            self._hands.sign_of_life()
        return super().extend(tup)

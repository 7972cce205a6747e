"""Bolts: the components that work on tuples, and the collector with which they emit, ack and fail.

Edges come from here: emit() draws one for each delivery, and ack() sends a tuple's own edge XOR those of its children.
"""

from __future__ import annotations

import logging
import threading
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redis_acker.components.component import BoltRouter, Component, ComponentCounters, TaskContext, TaskId
from redis_acker.components.tracing import call_in_span, end_span, link_spans
from redis_acker.components.tuples import DEFAULT_STREAM, NO_ANCHORS, Anchors, Edges, Tuple
from redis_acker.errors import AckerError, BadInput, FailedTuple, TupleFinished, escaped, traceback_of
from redis_acker.store.acker import Acker
from redis_acker.store.ids import Token, U64Array
from redis_acker.store.streams import Cause

log = logging.getLogger(__name__)


class Bolt(Component):
    """A bolt that acks or fails every tuple it is given, now or later."""

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        """Called once, before the first tuple."""
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        """Works on a tuple. An exception fails it; if it is finished already, the exception is only logged."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """Called once, after the last tuple."""


class BasicBolt(Bolt):
    """A bolt that only says what to emit: what it emits is anchored to the tuple at hand, which is acked afterwards."""

    def process(self, tup: Tuple, emit: Callable[..., Any]) -> None:
        """Works on a tuple; emit(value, ..., stream=...) sends values on, and returns the tasks that get them. Raise
        FailedTuple to fail it."""
        raise NotImplementedError

    def execute(self, tup: Tuple) -> None:
        def emit(*values: Any, stream: str = DEFAULT_STREAM) -> list[TaskId]:
            return self.collector.emit(values, anchors=tup, stream=stream)

        self.process(tup, emit)
        self.collector.ack(tup)


def prepare(bolt: Bolt, context: TaskContext, collector: OutputCollector) -> None:
    """Makes a bolt ready, also one whose prepare() does not call that of its class."""
    bolt.collector = collector
    bolt.prepare(context, collector)


def execute(bolt: Bolt, collector: OutputCollector, tup: Tuple) -> None:
    """Runs a bolt on one tuple. An exception fails that tuple and no other; so does the end of a task of asyncio, which
    is no end of the program."""
    try:
        if tup.anchors.trace:
            call_in_span(bolt.execute, tup, collector.component, nests=collector.nests_spans)
        else:
            bolt.execute(tup)
    except (Exception, CancelledError) as error:
        fail_open(collector, [tup], error)


def fail_open(collector: OutputCollector, tuples: Sequence[Tuple], error: BaseException) -> None:
    """Fails those of the tuples that are not finished, for an error of the bolt that works on them."""
    name, cause = collector.component, Cause.of(collector.component, error)
    unfinished = [tup for tup in tuples if not tup.outcome]
    fail = collector.fail if isinstance(error, FailedTuple) else collector.fail_silently
    for tup in unfinished:
        fail(tup, cause.error, fatal=cause.fatal)
    shown = tuples[0] if len(tuples) == 1 else f"{len(unfinished)} of {len(tuples)} tuples"
    if not unfinished:
        # Too late to fail anything: the log is the only place left to say so.
        done = f"{shown} was {tuples[0].outcome}" if len(tuples) == 1 else f"all {len(tuples)} tuples were finished"
        log.error("Bolt %s raised an error after %s.\n%s", name, done, traceback_of(error))
    elif not isinstance(error, FailedTuple):
        log.warning("Bolt %s raised an error, which fails %s.\n%s", name, shown, traceback_of(error))


class OutputCollector:
    """What a bolt holds to emit, ack, fail and extend. It counts what it does. Threads of the bolt may share it."""

    def __init__(
        self, component: str, router: BoltRouter, buffer: AckBuffer, new_edge: Callable[[], int] | None = None
    ) -> None:
        self.component = component
        self.counters = ComponentCounters()
        self._router = router
        self._buffer = buffer
        self._new_edge = new_edge or Edges()
        self.nests_spans = new_edge is None
        """Whether children belong to the span of the tuple at hand, or to that which it came with. Edges that a task
        gives again when it runs again must be in the same bytes again, since receivers make tokens of these."""
        self._lock = threading.Lock()

    def emit(
        self, values: Sequence[Any], *, anchors: Tuple | Sequence[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> list[TaskId]:
        """Emits values to every task that listens, one edge each. Anchored to tuples, they join their trees; anchored
        to none, they are outside every tree. Returns the tasks that get them."""
        return self._emit(values, anchors, stream, None)

    def emit_direct(
        self,
        task: TaskId,
        values: Sequence[Any],
        *,
        anchors: Tuple | Sequence[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emits values to one task of a bolt that listens with a direct grouping."""
        if not isinstance(task, tuple) or len(task) != 2:
            raise BadInput(f"emit_direct() takes one of direct_tasks(), not {task!r}.")
        self._emit(values, anchors, stream, task)

    def direct_tasks(self, stream: str = DEFAULT_STREAM) -> list[TaskId]:
        """The tasks that emit_direct() can reach on a stream."""
        return self._router.direct_tasks(stream)

    def _emit(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple], stream: str, to: TaskId | None
    ) -> list[TaskId]:
        with self._lock:
            parents = _open_tuples(anchors, "anchored to")
            targets = self._router.targets(stream, values, to)
            for target in targets:
                self._router.deliver(target, values, stream, self._link(parents))
            self.counters.emitted += 1
        return targets

    def hand_over(self, anchors: Tuple | Sequence[Tuple]) -> Anchors:
        """Anchors for one delivery to another program, to send in its header. That program acks it."""
        with self._lock:
            return self._link(_open_tuples(anchors, "handed over"))

    def ack(self, tup: Tuple) -> None:
        """Says that a tuple is done and its children are emitted."""
        with self._lock:
            _finish(tup, "acked")
            self._buffer.ack(tup.anchors, tup.child_edges)
            self.counters.acked += 1
            if tup.anchors.trace:
                end_span(tup.anchors)

    def fail(self, tup: Tuple, error: str = "", *, fatal: bool = False) -> None:
        """Fails every tree the tuple is in, at once, or logs that it is in none. fatal: a replay would fail again."""
        self.fail_silently(tup, error, fatal=fatal)
        if not tup.anchors:
            why = escaped(error)
            log.warning("Bolt %s failed %s, which is in no tree, so nothing replays it: %s", self.component, tup, why)

    def fail_silently(self, tup: Tuple, error: str, *, fatal: bool) -> None:
        """The same, for whoever logs the error."""
        if not isinstance(error, str):
            raise BadInput(f"The error of a fail is a text for people, not {error!r}: pass str() of it.")
        with self._lock:
            _finish(tup, "failed")
            self._buffer.fail(tup.anchors, Cause(self.component, error, bool(fatal)))
            self.counters.failed += 1
            if tup.anchors.trace:
                end_span(tup.anchors, error or "failed", fatal=bool(fatal))

    def extend(self, tup: Tuple) -> int:
        """Restarts the clock of the trees the tuple is in. Returns how many of them were still pending; 1 for a tuple
        that is not tracked, since nothing can end its work."""
        return self._buffer.extend(_one_tuple(tup, "extended").anchors)

    def _link(self, parents: list[Tuple]) -> Anchors:
        """Draws a new edge from each parent: it enters the parent's ack val and the child's anchors."""
        if len(parents) == 1:  # as a rule
            (parent,) = parents
            if not parent.anchors.edges:
                return NO_ANCHORS
            edge = self._new_edge()
            parent.child_edges ^= edge
            drawn, trace = dict.fromkeys(parent.anchors.edges, edge), parent.anchors.trace
            return Anchors.traced(drawn, trace) if trace else Anchors.trusted(drawn)
        edges: dict[int, int] = {}
        is_traced = False
        for parent in parents:
            if parent.anchors.edges:
                is_traced = is_traced or bool(parent.anchors.trace)
                edge = self._new_edge()
                parent.child_edges ^= edge
                for root in parent.anchors.edges:
                    edges[root] = edges.get(root, 0) ^ edge
        if is_traced:
            return Anchors.traced(edges, link_spans([parent.anchors for parent in parents if parent.anchors.trace]))
        return Anchors.trusted(edges) if edges else NO_ANCHORS


class AckBuffer:
    """Acks and fails that flush() sends to the store together. Threads may share it. Without an acker it drops them."""

    def __init__(self, acker: Acker | None) -> None:
        self._acker = acker
        self._gathering, self._sending = threading.Lock(), threading.Lock()
        self._acks: deque[tuple[dict[int, int], int]] = deque()
        """Edges of tuples and those of their children: a deque needs no lock, and flush() folds them all at once."""
        self._fails: dict[Cause, list[int]] = {}
        self._unsent: deque[_FailsToSend | _AcksToSend] = deque()

    def __len__(self) -> int:
        """Acks, and causes of fails, gathered since the last flush."""
        return len(self._acks) + len(self._fails)

    def ack(self, anchors: Anchors, child_edges: int) -> None:
        if self._acker and anchors.edges:
            self._acks.append((anchors.edges, child_edges))

    def fail(self, anchors: Anchors, cause: Cause) -> None:
        if self._acker and anchors:
            with self._gathering:
                self._fails.setdefault(cause, []).extend(anchors)

    def extend(self, anchors: Anchors) -> int:
        return self._acker.extend(list(anchors)) if self._acker and anchors else 1

    def flush(self) -> int:
        """Sends everything, and returns how many roots came to their final event by that. An error loses nothing: the
        next flush sends the rest, under the same token."""
        if self._acker is None or not (self._acks or self._fails or self._unsent):
            return 0
        final = 0
        with self._sending:
            self._pack()
            while self._unsent:
                final += self._unsent[0].send(self._acker)
                self._unsent.popleft()
        return final

    def _pack(self) -> None:
        with self._gathering:
            fails, self._fails = self._fails, {}
        if fails:
            self._unsent.append(_FailsToSend([(np.array(roots, np.uint64), cause) for cause, roots in fails.items()]))
        if acks := [self._acks.popleft() for _ in range(len(self._acks))]:
            roots = [root for edges, _ in acks for root in edges]
            ack_vals = [edge ^ child_edges for edges, child_edges in acks for edge in edges.values()]
            self._unsent.append(_AcksToSend(np.array(roots, dtype=np.uint64), np.array(ack_vals, dtype=np.uint64)))


@dataclass
class _FailsToSend:
    fails: list[tuple[U64Array, Cause]]

    def send(self, acker: Acker) -> int:
        return acker.fail_all(self.fails).failed


@dataclass
class _AcksToSend:
    roots: U64Array
    ack_vals: U64Array
    token: Token | None = None
    """The token of an earlier try that may have reached the store."""

    def send(self, acker: Acker) -> int:
        try:
            return acker.ack(self.roots, self.ack_vals, token=self.token).completed
        except AckerError as error:
            self.token = error.token
            raise


def _open_tuples(anchors: Tuple | Sequence[Tuple], verb: str) -> list[Tuple]:
    if isinstance(anchors, Tuple) and not anchors.outcome:  # as a rule
        return [anchors]
    tuples = list(anchors) if isinstance(anchors, Iterable) else [anchors]
    for tup in tuples:
        if _one_tuple(tup, verb).outcome:
            raise TupleFinished(f"{tup} was {tup.outcome} before it was {verb}: emit first, then ack.")
    return tuples


def _finish(tup: Tuple, outcome: str) -> None:
    if _one_tuple(tup, outcome).outcome:
        raise TupleFinished(f"{tup} was {tup.outcome} already and cannot be {outcome} too: finish each tuple once.")
    tup.outcome = outcome


def _one_tuple(tup: Tuple, verb: str) -> Tuple:
    if not isinstance(tup, Tuple):
        raise BadInput(f"Only a tuple that the bolt was given can be {verb}, not {tup!r}.")
    return tup

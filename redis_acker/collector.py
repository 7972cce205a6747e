"""The collector: how a component emits tuples, and acks or fails the ones it was given."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from redis_acker.acker import Acker
from redis_acker.anchors import Anchors
from redis_acker.errors import AckerError, BadInput
from redis_acker.ids import U64Array, new_edges
from redis_acker.tokens import Token
from redis_acker.tuples import DEFAULT_STREAM, Tuple

_EDGES_AT_ONCE = 1024


class TupleFinished(AckerError):
    """Raised when a tuple that was acked or failed is acked, failed or anchored to again."""


class Edges:
    """Random edge ids, drawn many at a time and never shared with a forked process."""

    def __init__(self) -> None:
        self._drawn: list[int] = []
        self._pid = 0

    def __call__(self) -> int:
        if not self._drawn or self._pid != os.getpid():
            self._drawn, self._pid = new_edges(_EDGES_AT_ONCE).tolist(), os.getpid()
        return self._drawn.pop()


class Router(Protocol):
    """Says which tasks get what a component emits, and brings it to them."""

    def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
        """The tasks that get these values: one delivery each."""

    def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        """Brings one delivery to one of these tasks."""


@dataclass(frozen=True)
class _Cause:
    component: str
    error: str
    fatal: bool


@dataclass
class _Fails:
    roots: list[int]
    cause: _Cause

    def send(self, acker: Acker) -> None:
        acker.fail(self.roots, component=self.cause.component, error=self.cause.error, fatal=self.cause.fatal)


@dataclass
class _Acks:
    roots: U64Array
    ack_vals: U64Array
    token: Token | None = None
    """None until it was sent and the outcome is unknown."""

    def send(self, acker: Acker) -> None:
        try:
            acker.ack(self.roots, self.ack_vals, token=self.token)
        except AckerError as error:
            self.token = error.token
            raise


class AckBuffer:
    """Acks and fails, sent to the store together by flush(). Threads may share it. Without acker it forgets them."""

    def __init__(self, acker: Acker | None) -> None:
        self._acker = acker
        self._gathering, self._sending = threading.Lock(), threading.Lock()
        self._roots: list[int] = []
        self._ack_vals: list[int] = []
        self._fails: dict[_Cause, list[int]] = {}
        self._unsent: deque[_Fails | _Acks] = deque()

    def __len__(self) -> int:
        """Acks, and causes of fails, gathered since the last flush."""
        return len(self._roots) + len(self._fails)

    def ack(self, anchors: Anchors, child_edges: int) -> None:
        if self._acker:
            with self._gathering:
                for root, edge in anchors.items():
                    self._roots.append(root)
                    self._ack_vals.append(edge ^ child_edges)

    def fail(self, anchors: Anchors, component: str, error: str, fatal: bool) -> None:
        if self._acker and anchors:
            with self._gathering:
                self._fails.setdefault(_Cause(component, error, fatal), []).extend(anchors)

    def extend(self, anchors: Anchors) -> int:
        return self._acker.extend(list(anchors)) if self._acker and anchors else 0

    def flush(self) -> None:
        """Sends everything. After an error nothing is lost: the next flush sends the rest, under the same token."""
        if self._acker is None:
            return
        with self._sending:
            self._pack()
            while self._unsent:
                self._unsent[0].send(self._acker)
                self._unsent.popleft()

    def _pack(self) -> None:
        with self._gathering:
            roots, ack_vals, fails = self._roots, self._ack_vals, self._fails
            self._roots, self._ack_vals, self._fails = [], [], {}
        self._unsent.extend(_Fails(failed, cause) for cause, failed in fails.items())
        if roots:
            self._unsent.append(_Acks(np.array(roots, dtype=np.uint64), np.array(ack_vals, dtype=np.uint64)))


class OutputCollector:
    """What a bolt holds to emit, ack, fail and extend. Counts what it does. Threads of the bolt may share it."""

    def __init__(
        self, component: str, router: Router, buffer: AckBuffer, new_edge: Callable[[], int] | None = None
    ) -> None:
        self.component = component
        self.emitted = self.acked = self.failed = 0
        self._router = router
        self._buffer = buffer
        self._new_edge = new_edge or Edges()
        self._lock = threading.Lock()

    def emit(
        self, values: Sequence[Any], *, anchors: Tuple | Sequence[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> int:
        """Emits values to every task that listens, one edge each. Anchored to tuples, it joins their trees; anchored
        to none, it is outside of every tree. Returns the number of deliveries."""
        with self._lock:
            parents = _open_tuples(anchors, "anchored to")
            targets = self._router.targets(stream, values)
            for target in targets:
                self._router.deliver(target, values, stream, self._link(parents))
            self.emitted += 1
        return len(targets)

    def hand_over(self, anchors: Tuple | Sequence[Tuple]) -> Anchors:
        """The anchors of one delivery to another program, to ride in its header; that program acks it."""
        with self._lock:
            return self._link(_open_tuples(anchors, "handed over"))

    def ack(self, tup: Tuple) -> None:
        """Says that a tuple is done, its children emitted."""
        with self._lock:
            _finish(tup, "acked")
            self._buffer.ack(tup.anchors, tup.child_edges)
            self.acked += 1

    def fail(self, tup: Tuple, error: str = "", *, fatal: bool = False) -> None:
        """Fails every tree the tuple is in, at once. fatal: a replay would fail again."""
        if not isinstance(error, str):
            raise BadInput(f"The error of a fail is a text for people, not {error!r}: pass str() of it.")
        with self._lock:
            _finish(tup, "failed")
            self._buffer.fail(tup.anchors, self.component, error, bool(fatal))
            self.failed += 1

    def extend(self, tup: Tuple) -> int:
        """Restarts the clock of the trees the tuple is in. Returns how many of them were still pending."""
        return self._buffer.extend(_one_tuple(tup, "extended").anchors)

    def _link(self, parents: list[Tuple]) -> Anchors:
        """A new edge from each parent: it enters the parent's ack val and the child's anchors."""
        edges: dict[int, int] = {}
        for parent in parents:
            if parent.anchors:
                edge = self._new_edge()
                parent.child_edges ^= edge
                for root in parent.anchors:
                    edges[root] = edges.get(root, 0) ^ edge
        return Anchors.trusted(edges)


def _open_tuples(anchors: Tuple | Sequence[Tuple], verb: str) -> list[Tuple]:
    tuples = [anchors] if isinstance(anchors, Tuple) else list(anchors) if isinstance(anchors, Iterable) else [anchors]
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
        raise BadInput(f"Only a tuple that was given to the bolt can be {verb}, not {tup!r}.")
    return tup

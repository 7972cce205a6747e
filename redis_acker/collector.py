"""The collector: how a component emits tuples, and acks or fails the ones it was given."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from redis_acker.acker import Acker
from redis_acker.anchors import Anchors
from redis_acker.errors import AckerError, BadInput
from redis_acker.ids import new_edges
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
class _Fail:
    component: str
    error: str
    fatal: bool


class AckBuffer:
    """Acks and fails of one thread, sent to the store together by flush(). Without acker it forgets them."""

    def __init__(self, acker: Acker | None) -> None:
        self._acker = acker
        self._roots: list[int] = []
        self._ack_vals: list[int] = []
        self._fails: dict[_Fail, list[int]] = {}
        self._unsent: tuple[Any, Any, Token] | None = None

    def __len__(self) -> int:
        return len(self._roots) + sum(map(len, self._fails.values()))

    def ack(self, root: int, ack_val: int) -> None:
        self._roots.append(root)
        self._ack_vals.append(ack_val)

    def fail(self, roots: Sequence[int], component: str, error: str, fatal: bool) -> None:
        self._fails.setdefault(_Fail(component, error, fatal), []).extend(roots)

    def extend(self, roots: Sequence[int]) -> int:
        return self._acker.extend(list(roots)) if self._acker and roots else 0

    def flush(self) -> None:
        """Sends everything. After an error nothing is lost: the next flush sends the rest, under the same token."""
        if self._acker is None:
            self._roots, self._ack_vals, self._fails = [], [], {}
            return
        while self._fails:
            fail, roots = next(iter(self._fails.items()))
            self._acker.fail(roots, component=fail.component, error=fail.error, fatal=fail.fatal)
            del self._fails[fail]
        if self._unsent:
            roots_again, vals_again, token = self._unsent
            self._acker.ack(roots_again, vals_again, token=token)
            self._unsent = None
        if self._roots:
            root_array, val_array = np.array(self._roots, dtype=np.uint64), np.array(self._ack_vals, dtype=np.uint64)
            self._roots, self._ack_vals = [], []
            try:
                self._acker.ack(root_array, val_array)
            except AckerError as error:
                if error.token:
                    self._unsent = (root_array, val_array, error.token)
                raise


class OutputCollector:
    """What a bolt holds to emit, ack, fail and extend. Counts what it does."""

    def __init__(
        self, component: str, router: Router, buffer: AckBuffer, new_edge: Callable[[], int] | None = None
    ) -> None:
        self.component = component
        self.emitted = self.acked = self.failed = 0
        self._router = router
        self._buffer = buffer
        self._new_edge = new_edge or Edges()

    def emit(
        self, values: Sequence[Any], *, anchors: Tuple | Sequence[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> int:
        """Emits values to every task that listens, one edge each. Anchored to tuples, it joins their trees; anchored
        to none, it is outside of every tree. Returns the number of deliveries."""
        parents = _open_tuples(anchors, "anchored to")
        targets = self._router.targets(stream, values)
        for target in targets:
            self._router.deliver(target, values, stream, self._link(parents))
        self.emitted += 1
        return len(targets)

    def hand_over(self, anchors: Tuple | Sequence[Tuple]) -> Anchors:
        """The anchors of one delivery to another program, to ride in its header; that program acks it."""
        return self._link(_open_tuples(anchors, "handed over"))

    def ack(self, tup: Tuple) -> None:
        """Says that a tuple is done, its children emitted."""
        _finish(tup, "acked")
        for root, edge in tup.anchors.items():
            self._buffer.ack(root, edge ^ tup.child_edges)
        self.acked += 1

    def fail(self, tup: Tuple, error: str = "", *, fatal: bool = False) -> None:
        """Fails every tree the tuple is in, at once. fatal: a replay would fail again."""
        _finish(tup, "failed")
        if tup.anchors:
            self._buffer.fail(list(tup.anchors), self.component, error, fatal)
        self.failed += 1

    def extend(self, tup: Tuple) -> int:
        """Restarts the clock of the trees the tuple is in. Returns how many of them were still pending."""
        return self._buffer.extend(list(tup.anchors))

    def _link(self, parents: list[Tuple]) -> Anchors:
        """A new edge from each parent: it enters the parent's ack val and the child's anchors."""
        edges: dict[int, int] = {}
        for parent in parents:
            if parent.anchors:
                edge = self._new_edge()
                parent.child_edges ^= edge
                for root in parent.anchors:
                    edges[root] = edges.get(root, 0) ^ edge
        return Anchors(edges)


def _open_tuples(anchors: Tuple | Sequence[Tuple], verb: str) -> list[Tuple]:
    tuples = [anchors] if isinstance(anchors, Tuple) else list(anchors)
    for tup in tuples:
        if not isinstance(tup, Tuple):
            raise BadInput(f"Anchors of an emit are the tuples that were given to the bolt, not {tup!r}.")
        if tup.outcome:
            raise TupleFinished(f"{tup} was {tup.outcome} before it was {verb}: emit first, then ack.")
    return tuples


def _finish(tup: Tuple, outcome: str) -> None:
    if tup.outcome:
        raise TupleFinished(f"{tup} was {tup.outcome} already and cannot be {outcome} too: finish each tuple once.")
    tup.outcome = outcome

"""What other programs hand over, taken in by a program that works on it without a runner."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from redis_acker.components.tracing import begin_span, context_of, end_span
from redis_acker.components.tuples import Anchors
from redis_acker.errors import AckerError, text_of
from redis_acker.store.acker import Acker
from redis_acker.store.edges import EdgeState, child_edges, job_number
from redis_acker.store.ids import U64Array
from redis_acker.store.stats import Acks, Fails


class Delivery:
    """One delivery of another program's message, that is to be worked on."""

    def __init__(self, anchors: Anchors, job: int) -> None:
        self.anchors = anchors
        self._job, self._sent = job, 0
        self._edges: U64Array = np.array(list(anchors.values()), dtype=np.uint64)
        self._sent_edges: U64Array = np.zeros(len(anchors), dtype=np.uint64)

    def send_on(self) -> Anchors:
        """Anchors for what is made of it and goes to a further program. That acks it; the message waits for both. If
        this delivery is worked on again, the n-th call returns the same anchors again."""
        ordinals = np.full(len(self._edges), self._sent, dtype=np.uint64)
        edges = child_edges(self._edges, ordinals, self._job)
        self._sent, self._sent_edges = self._sent + 1, self._sent_edges ^ edges
        return Anchors.traced(dict(zip(self.anchors, edges.tolist(), strict=True)), self.anchors.trace)

    @property
    def ack_vals(self) -> list[int]:
        """For each root its edge and those that were sent on."""
        vals: list[int] = (self._edges ^ self._sent_edges).tolist()
        return vals


class Inbox:
    """Takes in what other programs hand over, however often their transport delivers it.

    A delivery that was acked is recognised for as long as its message is pending, whoever acked it, and one of a
    message that is over is not worked on. What two work on at the same time is acked once.
    """

    def __init__(self, acker: Acker, *, name: str) -> None:
        """name: of this program, which failures carry and edges are made of."""
        self._acker, self._name, self._job = acker, name, job_number(name)

    def receive(self, headers: Sequence[bytes | Anchors]) -> list[Delivery | None]:
        """For each delivery what is to be worked on; None if there is nothing to do: remove it from its transport. If
        its message is traced, a span begins, which ack() or fail() ends."""
        found = self.take_in(headers)
        for one in found:
            if one and (span := begin_span(one.anchors, self._name)):
                one.anchors.trace = context_of(span)
        return found

    def take_in(self, headers: Sequence[bytes | Anchors]) -> list[Delivery | None]:
        """As receive(), without a span: for what has spans of its own."""
        anchors = [_own_anchors(one) for one in headers]
        pairs = [pair for one in anchors for pair in one.items()]
        states = iter(self._acker.edge_states([root for root, _ in pairs], [edge for _, edge in pairs]).tolist())
        found: list[Delivery | None] = []
        seen: set[tuple[tuple[int, int], ...]] = set()
        for one in anchors:
            mine = [next(states) for _ in one]
            is_first = (name := tuple(one.items())) not in seen
            seen.add(name)
            is_open = EdgeState.OPEN in mine or not mine  # without anchors it is outside every tree
            found.append(Delivery(one, self._job) if is_open and (is_first or not mine) else None)
        return found

    def ack(self, deliveries: Iterable[Delivery | None]) -> Acks:
        """They are done, and what was made of them is sent on. None, as receive() may return, is passed over."""
        given = [one for one in deliveries if one]
        acked = [(*pair, val) for one in given for pair, val in zip(one.anchors.items(), one.ack_vals, strict=True)]
        found = self._acker.ack_edges(*([row[i] for row in acked] for i in range(3)))
        for one in given:
            if one.anchors.trace:
                end_span(one.anchors)
        return found

    def fail(self, delivery: Delivery, error: str | BaseException = "", *, fatal: bool = False) -> Fails:
        """Fails its messages at once; their spouts bring them again. fatal: a replay would fail too."""
        text = error if isinstance(error, str) else text_of(error)
        found = self._acker.fail(list(delivery.anchors), component=self._name, error=text, fatal=fatal)
        if delivery.anchors.trace:
            end_span(delivery.anchors, text or "failed", fatal=fatal)
        return found

    @contextmanager
    def keeping_alive(self, deliveries: Iterable[Delivery | None]) -> Iterator[None]:
        """For work that takes longer than a part of the timeout: inside of this their messages do not time out."""
        roots = [root for one in deliveries if one for root in one.anchors]
        ended, every_s = threading.Event(), self._acker.settings.timeout_ms / 4000

        def keep() -> None:
            while not self._acker.clock.wait_for(ended, every_s):
                try:
                    self._acker.extend(roots)
                except AckerError:
                    continue  # the next call of the program raises it too

        thread = self._acker.clock.thread("inbox", keep)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            self._acker.clock.join(thread, None)


def _own_anchors(header: bytes | Anchors) -> Anchors:
    """Those of a delivery. The span in which it is worked on belongs to it alone."""
    if isinstance(header, Anchors):
        return Anchors.traced(header, header.trace) if header.trace else header
    return Anchors.from_bytes(header)

"""What a task did in a micro-batch. It travels to the driver as a row, with the output of the attempt that counts."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field

from redis_acker.components.bolt import AckBuffer
from redis_acker.components.component import ComponentCounters
from redis_acker.components.tuples import Anchors
from redis_acker.store.streams import Cause


@dataclass
class Result:
    """Acks folded per root, fails, and counts."""

    acks: dict[int, int] = field(default_factory=dict)
    fails: dict[Cause, set[int]] = field(default_factory=dict)
    counters: dict[str, ComponentCounters] = field(default_factory=dict)

    def packed(self) -> bytes:
        return pickle.dumps(self, protocol=5)

    def add(self, other: Result) -> None:
        for root, ack_val in other.acks.items():
            self.acks[root] = self.acks.get(root, 0) ^ ack_val
        for cause, roots in other.fails.items():
            self.fails.setdefault(cause, set()).update(roots)
        for component, counted in other.counters.items():
            self.counters[component] = self.counters.get(component, ComponentCounters()) + counted

    def send_to(self, buffer: AckBuffer) -> None:
        """Acks only roots that did not fail: the others have their final event."""
        failed: set[int] = set()
        for cause, roots in self.fails.items():
            buffer.fail(_anchors(roots), cause)
            failed |= roots
        acked = {root: ack_val for root, ack_val in self.acks.items() if root not in failed}
        buffer.ack(Anchors.trusted(acked), 0)


def sum_of(packed: Iterable[bytes]) -> Result:
    total = Result()
    for one in packed:
        total.add(pickle.loads(one))
    return total


def _anchors(roots: Iterable[int]) -> Anchors:
    """For a call that only looks at the roots."""
    return Anchors.trusted(dict.fromkeys(roots, 1))


class ResultBuffer(AckBuffer):
    """Gathers the acks and fails of one task into its result. An executor sends nothing itself: Spark may run the task
    again."""

    def __init__(self) -> None:
        super().__init__(None)
        self.result = Result()

    def ack(self, anchors: Anchors, child_edges: int) -> None:
        acks = self.result.acks
        for root, edge in anchors.items():
            acks[root] = acks.get(root, 0) ^ edge ^ child_edges

    def fail(self, anchors: Anchors, cause: Cause) -> None:
        if anchors:
            self.result.fails.setdefault(cause, set()).update(anchors)

    def extend(self, anchors: Anchors) -> int:
        """The driver extends all roots of a micro-batch as long as it runs."""
        return len(anchors) or 1

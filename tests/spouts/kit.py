"""Topologies for the tests of sources: a spout, and a bolt that notes what it is given and does as it is told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis_acker import Acker, BasicBolt, Bolt, LocalRunner, Observer, RetryPolicy, Spout, Topology, TopologyBuilder
from redis_acker.components.tuples import Tuple
from redis_acker.retries.book import DeadLetter
from redis_acker.retries.dead_letters import DeadLetters

TOPOLOGY = "numbers"
QUICK = RetryPolicy(max_attempts=3, first_ms=20, jitter=0)
PATIENCE_S = 30.0


class Book:
    """What the tasks of a topology have seen. Copies of components share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Any] = Counter()

    def __deepcopy__(self, memo: object) -> Book:
        return self

    def note(self, value: Any) -> int:
        """Returns how often the value was noted, this time included."""
        with self._lock:
            self._counts[value] += 1
            return self._counts[value]

    def counts(self) -> dict[Any, int]:
        with self._lock:
            return dict(self._counts)

    def __len__(self) -> int:
        return sum(self.counts().values())


class Work(BasicBolt):
    """Notes the first value of each tuple. verdict(value, times) may raise."""

    def __init__(self, book: Book, verdict: Callable[[Any, int], None] = lambda value, times: None) -> None:
        self.book, self._verdict = book, verdict

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        self._verdict(tup[0], self.book.note(tup[0]))


class Keep(Bolt):
    """Notes tuples and neither acks nor fails them."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.tuples: list[Tuple] = []

    def __deepcopy__(self, memo: object) -> Keep:
        return self

    def execute(self, tup: Tuple) -> None:
        self.tuples.append(tup)
        self.book.note(tup[0])


def ack(acker: Acker, tuples: list[Tuple]) -> None:
    """Acks tuples from outside of the topology."""
    anchors = [one for tup in tuples for one in tup.anchors.items()]
    acker.ack([root for root, _ in anchors], [edge for _, edge in anchors])


def topology(spout: Spout, bolt: Bolt, *, parallelism: int = 1) -> Topology:
    builder = TopologyBuilder(TOPOLOGY)
    builder.spout("source", spout, parallelism=parallelism)
    builder.bolt("work", bolt).shuffle("source")
    return builder.build()


@contextmanager
def running(
    acker: Acker | None,
    spout: Spout,
    bolt: Bolt,
    *,
    parallelism: int = 1,
    retries: RetryPolicy = QUICK,
    max_pending: int = 1000,
    observer: Observer | None = None,
) -> Iterator[LocalRunner]:
    made = topology(spout, bolt, parallelism=parallelism)
    with LocalRunner(made, acker, retries=retries, max_pending=max_pending, observer=observer) as runner:
        yield runner


def run_until_idle(acker: Acker | None, spout: Spout, bolt: Bolt, **options: Any) -> LocalRunner:
    with running(acker, spout, bolt, **options) as runner:
        assert runner.wait_until_idle(timeout_s=PATIENCE_S), f"not idle after {PATIENCE_S} s: {runner.counters()}"
    return runner


def dead_letters(acker: Acker) -> list[DeadLetter]:
    return list(DeadLetters(acker))

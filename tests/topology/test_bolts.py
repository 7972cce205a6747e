"""Bolts at work in a topology: when they ack, and what becomes of the messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from redis_acker import (
    BasicBolt,
    Bolt,
    FailedTuple,
    LocalRunner,
    Message,
    OutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from redis_acker.spouts.iterable import IterableSpout
from tests.components.store import Store
from tests.topology.parts import (
    NO_PAUSE,
    ONE_ATTEMPT,
    SPOUT_NAME,
    Does,
    ListSpout,
    Note,
    Relay,
    Watcher,
    run,
    topology,
)
from tests.waiting import wait_until


def test_a_basic_bolt_anchors_and_acks_by_itself(any_store: Store) -> None:
    """On every kind of store: what fails once is replayed, and all is completed."""
    seen: list[int] = []

    class FailsOnce(Relay):
        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            if tup["value"] % 3 == 0 and tup["value"] not in seen:
                seen.append(tup["value"])
                raise FailedTuple("not yet")
            super().process(tup, emit)

    note, watcher = Note(), Watcher()
    work = topology(range(30), Relay(), FailsOnce(), note)
    with LocalRunner(work, any_store.acker, retries=NO_PAUSE, observer=watcher):
        wait_until(lambda: len(watcher.completed) == 30, 30)
    assert sorted(note.values) == list(range(30))
    assert sorted(seen) == list(range(0, 30, 3))
    assert sorted(watcher.failed) == [(one, "failed") for one in range(0, 30, 3)]


def test_a_bolt_may_ack_from_another_thread(store: Store) -> None:
    """As with calls of a service that answers later."""

    class Asks(Bolt):
        def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
            super().prepare(context, collector)
            self._pool = ThreadPoolExecutor(4)

        def execute(self, tup: Tuple) -> None:
            self._pool.submit(self._answer, tup)

        def _answer(self, tup: Tuple) -> None:
            if tup["value"] == 5:
                self.collector.fail(tup, "wrong number", fatal=True)
            else:
                self.collector.ack(tup)

        def cleanup(self) -> None:
            self._pool.shutdown()

    runner = run(topology(range(50), Asks()), store)
    assert runner.counters()["source"].acked == 49
    assert [letter.message_id for letter in store.dead_letters(SPOUT_NAME)] == [5]


def test_acks_do_not_wait_for_the_tuple_that_takes_long(store: Store) -> None:
    gate, watcher = threading.Event(), Watcher()

    def ack_slowly(collector: OutputCollector, tup: Tuple) -> None:
        if tup["value"] == 2:
            gate.wait(30)
        collector.ack(tup)

    runner = LocalRunner(topology([1, 2, 3], Does(ack_slowly)), store.acker, observer=watcher)
    with runner:
        wait_until(lambda: list(watcher.completed) == [0])
        assert runner.counters()["bolt0"].executed == 1
        gate.set()
        assert runner.wait_until_idle(timeout_s=30)
    assert sorted(watcher.completed) == [0, 1, 2]


def test_a_bolt_prepares_once_and_cleans_up_once_per_task(store: Store) -> None:
    calls: list[tuple[str, int]] = []

    class Counts(Relay):
        def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
            super().prepare(context, collector)
            self.context = context
            calls.append(("prepare", context.task))
            assert (context.component, context.parallelism) == ("counts", 2)

        def cleanup(self) -> None:
            calls.append(("cleanup", self.context.task))

    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(range(10)))
    builder.bolt("counts", Counts(), parallelism=2).shuffle("source")
    run(builder.build(), store)
    assert sorted(calls) == [("cleanup", 0), ("cleanup", 1), ("prepare", 0), ("prepare", 1)]


def test_a_bolt_without_execute_and_a_basic_bolt_without_process_fail_their_tuples(store: Store) -> None:
    builder = TopologyBuilder("job")
    builder.spout("source", ListSpout([Message(["a"], id="a"), Message(["b"], id="b")]))
    builder.bolt("empty", Bolt()).shuffle("source")
    builder.bolt("basic", BasicBolt()).shuffle("source")
    run(builder.build(), store, retries=ONE_ATTEMPT)
    letters = store.dead_letters(SPOUT_NAME)
    assert sorted(str(letter.message_id) for letter in letters) == ["a", "b"]
    assert {letter.history[0].error for letter in letters} == {"NotImplementedError: "}

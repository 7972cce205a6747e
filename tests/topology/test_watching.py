"""What observers are told, and what the counters count."""

from __future__ import annotations

import threading
from collections.abc import Callable

from redis_acker import BasicBolt, FailedTuple, LocalRunner, OutputCollector, TopologyBuilder, Tuple
from redis_acker.components.component import ComponentCounters
from redis_acker.spouts.iterable import IterableSpout
from tests.components.store import Store
from tests.topology.parts import NO_PAUSE, SPOUT_NAME, Does, Raises, Relay, Watcher, run, topology
from tests.waiting import wait_until


def test_a_completion_is_told_with_its_latency(store: Store) -> None:
    gate, watcher = threading.Event(), Watcher()

    def wait_and_ack(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)
        collector.ack(tup)

    with LocalRunner(topology([1, 2], Does(wait_and_ack)), store.acker, observer=watcher) as runner:
        wait_until(lambda: store.acker.pending_count() == 2)
        store.clock.advance(1234)
        gate.set()
        assert runner.wait_until_idle(timeout_s=30)
    assert watcher.completed == {0: 1234, 1: 1234}
    assert (watcher.failed, watcher.letters) == ([], [])


def test_every_failed_attempt_and_the_dead_letter_are_told(store: Store) -> None:
    watcher = Watcher()
    with LocalRunner(
        topology(["good", "bad"], Raises(ValueError("no"), ["bad"])), store.acker, retries=NO_PAUSE, observer=watcher
    ):
        wait_until(lambda: watcher.letters and watcher.completed)
    assert list(watcher.completed) == [0]
    assert watcher.failed == [(1, "failed")] * 3
    [letter] = watcher.letters
    assert store.dead_letters(SPOUT_NAME) == [letter]
    assert (letter.message_id, letter.spout, letter.payload, letter.fatal) == (1, SPOUT_NAME, ["bad"], False)
    assert [(one.attempt, one.component, one.error) for one in letter.history] == [
        (attempt, "bolt0", "ValueError: no") for attempt in (1, 2, 3)
    ]


def test_counters_are_kept_for_each_component(store: Store) -> None:
    class Splits(BasicBolt):
        fields = ("word",)

        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            for word in tup["value"].split():
                emit(word)

    class Counts(BasicBolt):
        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            if tup["word"] == "rude":
                raise FailedTuple(fatal=True)

    builder = TopologyBuilder("job")
    builder.spout("lines", IterableSpout(["a b c", "d e", "", "f rude"]), parallelism=2)
    builder.bolt("split", Splits(), parallelism=2).shuffle("lines")
    builder.bolt("count", Counts(), parallelism=3).fields("split", "word")
    builder.bolt("also", Relay()).all("lines")
    runner = run(builder.build(), store)
    assert runner.counters() == {
        "lines": ComponentCounters(emitted=4, acked=3, failed=1, dead=1),
        "split": ComponentCounters(executed=4, emitted=7, acked=4),
        "count": ComponentCounters(executed=7, acked=6, failed=1),
        "also": ComponentCounters(executed=4, emitted=4, acked=4),
    }


def test_replays_are_counted(store: Store) -> None:
    watcher = Watcher()
    with LocalRunner(
        topology(range(20), Raises(ValueError("no"), [3])), store.acker, retries=NO_PAUSE, observer=watcher
    ) as runner:
        wait_until(lambda: watcher.letters and len(watcher.completed) == 19)
    assert runner.counters()["source"] == ComponentCounters(emitted=22, acked=19, failed=3, replayed=2, dead=1)


def test_rounds_that_wait_for_room_are_counted(store: Store) -> None:
    gate = threading.Event()

    def wait_and_ack(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)
        collector.ack(tup)

    with LocalRunner(topology(range(5), Does(wait_and_ack)), store.acker, max_pending=2) as runner:
        wait_until(lambda: runner.counters()["source"].waited > 0)
        assert (runner.counters()["source"].emitted, store.acker.pending_count()) == (2, 2)
        gate.set()
        assert runner.wait_until_idle(timeout_s=30)
    assert runner.counters()["source"].acked == 5


def test_counters_may_be_read_while_the_topology_runs(store: Store) -> None:
    gate = threading.Event()

    def wait_and_ack(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)
        collector.ack(tup)

    runner = LocalRunner(topology(range(5), Relay(), Does(wait_and_ack)), store.acker)
    assert runner.counters()["bolt0"] == ComponentCounters()
    with runner:
        wait_until(lambda: runner.counters()["bolt0"].acked == 5)
        assert runner.counters()["bolt1"].executed == 0
        gate.set()
        assert runner.wait_until_idle(timeout_s=30)
    assert runner.counters()["bolt1"] == ComponentCounters(executed=5, acked=5)

"""Switching it off: no acker, no id, nobody who listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis_acker import BasicBolt, Message, OutputCollector, TopologyBuilder, Tuple
from tests.components.store import Store
from tests.topology.parts import Does, ListSpout, Note, Raises, Relay, run, topology


def initialised(store: Store) -> int:
    return sum(spout.initialised for spout in store.acker.stats().spouts)


def test_a_message_without_id_is_emitted_and_not_tracked(store: Store) -> None:
    note, spout = Note(), ListSpout([Message(["a"]), Message(["b"])])
    runner = run(topology(spout, Relay(), note), store)
    assert sorted(note.values) == ["a", "b"]
    assert all(tup.anchors == {} for tup in note.tuples)
    assert initialised(store) == 0
    assert spout.told == []
    assert runner.counters()["source"].emitted == 2


def test_tracked_and_untracked_messages_may_come_in_one_batch(store: Store) -> None:
    note, spout = Note(), ListSpout([Message(["a"]), Message(["b"], id="b"), Message(["c"])])
    run(topology(spout, Relay(), note), store)
    assert sorted(note.values) == ["a", "b", "c"]
    assert initialised(store) == 1
    assert spout.told == [("ack", "b")]


def test_the_failure_of_an_untracked_message_reaches_nobody_but_the_counters(store: Store) -> None:
    spout = ListSpout([Message([1])])
    runner = run(topology(spout, Raises(ValueError("no"), [1])), store)
    assert runner.counters()["bolt0"].failed == 1
    assert runner.counters()["source"].failed == 0
    assert spout.told == []


def test_without_acker_the_spout_is_acked_as_soon_as_it_emits() -> None:
    note, spout = Note(), ListSpout([Message(["a"], id="a"), Message(["b"])])
    runner = run(topology(spout, Relay(), note), None)
    assert sorted(note.values) == ["a", "b"]
    assert all(tup.anchors == {} for tup in note.tuples)
    assert spout.told == [("ack", "a")]
    assert runner.counters()["bolt0"].acked == 2


def test_without_acker_a_failure_is_not_replayed() -> None:
    spout = ListSpout([Message([1], id=1)])
    runner = run(topology(spout, Raises(ValueError("no"), [1])), None)
    assert runner.counters()["bolt0"].failed == 1
    assert spout.told == [("ack", 1)]


def test_a_runner_without_acker_is_idle_only_when_the_last_tuple_is_worked_off() -> None:
    """Many times, because nothing but the runner's own count can tell."""
    for _ in range(50):
        note = Note()
        run(topology(range(10), Relay(), Relay(), Relay(), note), None)
        assert sorted(note.values) == list(range(10))


def test_a_message_that_nobody_listens_to_is_acked_at_once(store: Store) -> None:
    builder = TopologyBuilder("job")
    spout = ListSpout([Message(["a"], id="a")])
    builder.spout("source", spout)
    run(builder.build(), store)
    assert spout.told == [("ack", "a")]
    assert initialised(store) == 0


def test_a_tuple_that_nobody_listens_to_is_done_with_its_ack(store: Store) -> None:
    spout = ListSpout([Message(["a"], id="a")])
    runner = run(topology(spout, Relay()), store)
    assert spout.told == [("ack", "a")]
    assert runner.counters()["bolt0"].emitted == 1


def test_an_unanchored_emit_may_fail_without_failing_the_message(store: Store) -> None:
    def emit_unanchored(collector: OutputCollector, tup: Tuple) -> None:
        collector.emit(tup.values)
        collector.ack(tup)

    spout = ListSpout([Message([1], id="a")])
    runner = run(topology(spout, Does(emit_unanchored), Raises(ValueError("no"), [1])), store)
    assert runner.counters()["bolt1"].failed == 1
    assert spout.told == [("ack", "a")]


def test_a_stream_that_nobody_listens_to_costs_no_edge(store: Store) -> None:
    class Splits(BasicBolt):
        fields = ("value",)
        streams = {"odd": ["value"]}  # noqa: RUF012

        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            emit(tup["value"], stream="odd" if tup["value"] % 2 else "default")

    note = Note()
    spout = ListSpout([Message([number], id=number) for number in range(4)])
    run(topology(spout, Splits(), note), store)
    assert sorted(note.values) == [0, 2]
    told: list[Any] = sorted(spout.told)
    assert told == [("ack", number) for number in range(4)]

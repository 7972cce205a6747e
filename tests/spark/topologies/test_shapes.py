"""Topologies of every shape: joins, several spouts and streams, cycles, no tracking."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from redis_acker import BasicBolt, Bolt, RetryPolicy, TopologyBuilder, Tuple
from redis_acker.errors import BadInput, BadTopology
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.testing import simulated_acker
from spark_integration.topologies.plan import make_plan
from spark_integration.topologies.runner import SparkRunner
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Note, Relay, builder_of


class Pair(Bolt):
    """Joins what both sides say of a value. What it emits is anchored to both."""

    fields = ("value", "sides")

    def execute(self, tup: Tuple) -> None:
        waiting: dict[int, Tuple] = self.__dict__.setdefault("waiting", {})
        other = waiting.pop(tup["value"], None)
        if other is None:
            waiting[tup["value"]] = tup
            return
        self.collector.emit([tup["value"], sorted([tup.component, other.component])], anchors=[tup, other])
        self.collector.ack(tup)
        self.collector.ack(other)


class Countdown(BasicBolt):
    """Sends a number to itself until it is zero."""

    fields = ("value",)
    streams = {"again": ("value",), "unheard": ("value",)}  # noqa: RUF012 -- overridden as a whole, never changed

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        left = tup["value"] - 1
        emit(left, stream="unheard")
        if left > 0:
            emit(left, stream="again")
        else:
            emit(left)


class Alternates(BasicBolt):
    """Sends even values one way and all others the other."""

    fields = ("value",)
    streams = {"odd": ("value",)}  # noqa: RUF012 -- overridden as a whole, never changed

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        emit(tup["value"], stream="odd" if tup["value"] % 2 else "default")


def test_both_halves_of_a_message_meet_in_a_join(bench: Bench) -> None:
    builder = builder_of(range(300))
    builder.bolt("left", Relay(), parallelism=2).shuffle("source")
    builder.bolt("right", Relay(), parallelism=2).shuffle("source")
    builder.bolt("detour", Relay()).shuffle("right")
    builder.bolt("pair", Pair(), parallelism=2).fields("left", "value").fields("detour", "value")
    builder.bolt("note", Note(bench.notebook)).global_("pair")
    bench.run(builder.build())

    assert bench.notebook.read() == [("note", 0, value, ["detour", "left"]) for value in range(300)]
    assert bench.books() == (300, 0, 0, 0)
    assert bench.strays() == 0


def test_messages_of_two_spouts_are_joined_and_both_complete(bench: Bench) -> None:
    builder = TopologyBuilder("job")
    builder.spout("orders", IterableSpout(range(100)), parallelism=2)
    builder.spout("payments", IterableSpout(range(100)))
    builder.bolt("pair", Pair(), parallelism=2).fields("orders", "value").fields("payments", "value")
    builder.bolt("note", Note(bench.notebook)).shuffle("pair")
    # They meet when they are in one micro-batch; until then both are replayed.
    runner = bench.run(builder.build(), retries=RetryPolicy(max_attempts=100, first_ms=5, longest_ms=500))

    values = [note[2] for note in bench.notebook.read()]
    assert set(values) == set(range(100))
    assert {name: runner.counters()[name].acked for name in ("orders", "payments")} == {"orders": 100, "payments": 100}
    assert [bench.books()[at] for at in (0, 2, 3)] == [200, 0, 0]


def test_tuples_that_go_round_in_a_circle_come_back_in_later_micro_batches(bench: Bench) -> None:
    builder = builder_of([1, 3, 2])
    builder.bolt("countdown", Countdown(), parallelism=2).shuffle("source").shuffle("countdown", stream="again")
    builder.bolt("note", Note(bench.notebook)).shuffle("countdown")
    runner = bench.run(builder.build())

    assert [note[2] for note in bench.notebook.read()] == [0, 0, 0]
    assert runner.counters()["countdown"].executed == 6
    assert bench.books() == (3, 0, 0, 0)


def test_each_level_has_the_bolts_that_listen_to_those_before() -> None:
    builder = builder_of([])
    builder.bolt("c", Relay()).shuffle("b").shuffle("source")
    builder.bolt("b", Relay()).shuffle("a")
    builder.bolt("a", Relay()).shuffle("source")
    builder.bolt("d", Relay()).shuffle("source").shuffle("d")
    builder.bolt("lonely", Relay()).shuffle("lonely")

    assert make_plan(builder.build()).levels == [["a"], ["b"], ["c"], ["d"], ["lonely"]]


def test_streams_and_unusual_values_arrive_as_they_were_emitted(bench: Bench) -> None:
    values = [0, 1, -(2**70), True, 2.5, 3]
    builder = builder_of(values)
    builder.bolt("sort", Alternates()).global_("source")
    builder.bolt("even", Note(bench.notebook)).shuffle("sort")
    builder.bolt("odd", Note(bench.notebook)).shuffle("sort", stream="odd")
    bench.run(builder.build())

    assert [note for note in bench.notebook.read() if note[0] == "even"] == [("even", 0, 0), ("even", 0, -(2**70))]
    assert [note[2] for note in bench.notebook.read() if note[0] == "odd"] == [1, True, 2.5, 3]
    assert bench.books() == (6, 0, 0, 0)


def test_without_acker_everything_is_worked_on_and_nothing_tracked(bench: Bench) -> None:
    builder = builder_of(range(50))
    builder.bolt("relay", Relay()).shuffle("source")
    builder.bolt("note", Note(bench.notebook), parallelism=2).shuffle("relay")
    with SparkRunner(builder.build(), None, bench.spark) as runner:
        assert runner.wait_until_idle(timeout_s=60)

    assert sorted(note[2] for note in bench.notebook.read()) == list(range(50))
    assert bench.books() == (0, 0, 0, 0)


def test_a_bolt_that_cannot_be_pickled_is_refused_with_its_name(bench: Bench) -> None:
    relay = Relay()
    relay.lock = threading.Lock()  # type: ignore[attr-defined]
    builder = builder_of([1])
    builder.bolt("relay", relay).shuffle("source")
    with pytest.raises(BadTopology, match=r"'relay' cannot be sent to executors .*: open connections, files and locks"):
        bench.runner(builder.build())


def test_simulated_time_is_refused_on_spark(bench: Bench) -> None:
    builder = builder_of([1])
    builder.bolt("relay", Relay()).shuffle("source")
    with (
        simulated_acker() as (acker, time),
        pytest.raises(BadInput, match=r"^SparkRunner does not work in simulated time: .* Test .* with LocalRunner\.$"),
    ):
        SparkRunner(builder.build(), acker, bench.spark)
    with pytest.raises(BadInput, match=r"^SparkRunner does not work in simulated time: "):
        bench.runner(builder.build(), clock=time)


def test_ticks_are_refused_on_spark(bench: Bench) -> None:
    builder = builder_of([1])
    builder.bolt("gather", Relay(), tick_every_s=1).shuffle("source")
    with pytest.raises(BadTopology, match="'gather' wants tick tuples, but on Spark a copy of a bolt lives for one"):
        bench.runner(builder.build())

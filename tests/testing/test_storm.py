"""Storm's own tests of timeouts and acking, by behaviour, on simulated time as there.

Storm's timeout of 10 s means here that a message times out 10 to 15 s after it was emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redis_acker import BasicBolt, Bolt, LocalRunner, RetryPolicy, Rotator, TopologyBuilder, Tuple, new_edges
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.testing import FeederSpout
from tests.testing.conftest import Simulate, Simulated
from tests.topology.parts import Does, Note, Shared

ONE_ATTEMPT = RetryPolicy(max_attempts=1)


class Branch(BasicBolt):
    """Emits several tuples for each."""

    fields = ("value",)

    def __init__(self, branches: int) -> None:
        self._branches = branches

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        for number in range(self._branches):
            emit(number)


class Aggregate(Bolt):
    """Gathers some tuples, and emits one that is anchored to all of them."""

    fields = ("value",)

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._gathered: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self._gathered.append(tup)
        if len(self._gathered) == self._amount:
            self.collector.emit([0], anchors=self._gathered)
            while self._gathered:
                self.collector.ack(self._gathered.pop())


class AckEveryOther(Bolt):
    """Acks the first tuple, forgets the second, acks the third, and so on."""

    def __init__(self) -> None:
        self._acks = False

    def execute(self, tup: Tuple) -> None:
        self._acks = not self._acks
        if self._acks:
            self.collector.ack(tup)


class Takes(list[Any]):
    """The ids that a feeder was told were acked since it was last asked."""

    def __init__(self, feeder: FeederSpout) -> None:
        self._feeder, self._number = feeder, 0

    def feed(self) -> None:
        self._number += 1
        self._feeder.feed(1, id=self._number)

    def acks(self) -> int:
        found = len(self._feeder.acked)
        self._feeder.acked.clear()
        return found


def test_what_was_forgotten_fails_after_the_timeout_and_the_rest_is_acked(simulate: Simulate) -> None:
    """testTimeout"""
    acker, time = simulate(timeout_ms=10_000)
    feeder, builder = FeederSpout(), TopologyBuilder("job")
    builder.spout("1", feeder)
    builder.bolt("2", AckEveryOther()).global_("1")
    with LocalRunner(builder.build(), acker, retries=ONE_ATTEMPT):
        time.advance(11)
        for number, value in enumerate("abc", start=1):
            feeder.feed(value, id=number)
        time.advance(9)
        assert feeder.acked == [1, 3]
        assert feeder.given_up == []
        time.advance(6)
        assert feeder.given_up == [2]
    assert feeder.acked == [1, 3]


def test_extending_a_tuple_restarts_its_timeout(simulate: Simulate) -> None:
    """testResetTimeout"""
    acker, time = simulate(timeout_ms=10_000)
    feeder, builder, first = FeederSpout(), TopologyBuilder("job"), Shared[Tuple]()

    def act(collector: Any, tup: Tuple) -> None:
        match tup["value"]:
            case "a":
                first.append(tup)
            case "b":
                pass  # times out
            case "c" | "d":
                assert collector.extend(first[0]) == 1
                collector.ack(tup)
            case "e":
                collector.ack(first[0])
                collector.ack(tup)

    builder.spout("1", feeder)
    builder.bolt("2", Does(act)).global_("1")
    with LocalRunner(builder.build(), acker, retries=ONE_ATTEMPT):
        for value in "ab":
            feeder.feed(value, id=value)
        for value in "cd":
            time.advance(9)
            feeder.feed(value, id=value)
            time.wait()
            assert feeder.acked[-1] == value
        time.advance(2)
        assert feeder.given_up == ["b"]
        feeder.feed("e", id="e")
        time.wait()
    assert sorted(map(str, feeder.acked)) == ["a", "c", "d", "e"]
    assert feeder.given_up == ["b"]


def test_a_message_is_acked_when_all_that_came_of_it_is(simulated: Simulated) -> None:
    """testAcking"""
    acker, time = simulated
    one, two, three = feeders = [Takes(FeederSpout()) for _ in range(3)]
    builder = TopologyBuilder("job")
    for number, (takes, branches) in enumerate(zip(feeders, [2, 4, 1], strict=True), start=1):
        builder.spout(str(number), takes._feeder)
        builder.bolt(str(number + 3), Branch(branches)).shuffle(str(number))
    builder.bolt("7", Aggregate(3)).shuffle("4").shuffle("5").shuffle("6")
    builder.bolt("8", Branch(2)).shuffle("7")
    builder.bolt("9", Note()).shuffle("8")
    with LocalRunner(builder.build(), acker):
        one.feed()
        time.wait()
        assert one.acks() == 0
        two.feed()
        time.wait()
        assert (one.acks(), two.acks()) == (1, 1)
        one.feed()
        time.wait()
        assert one.acks() == 0
        one.feed()
        time.wait()
        assert one.acks() == 1
        three.feed()
        time.wait()
        assert (one.acks(), three.acks()) == (0, 0)
        two.feed()
        time.wait()
        assert (one.acks(), three.acks()) == (1, 1)
    assert time.elapsed_s == 0


def test_two_branches_of_one_message_meet_again(simulated: Simulated) -> None:
    """testAckBranching"""
    acker, time = simulated
    takes, builder = Takes(FeederSpout()), TopologyBuilder("job")
    builder.spout("1", takes._feeder)
    for name in "23":
        builder.bolt(name, Branch(1)).shuffle("1")
    builder.bolt("4", Aggregate(4)).shuffle("2").shuffle("3")
    with LocalRunner(builder.build(), acker):
        takes.feed()
        time.wait()
        assert takes.acks() == 0
        takes.feed()
        time.wait()
        assert takes.acks() == 2


def test_a_tuple_may_be_anchored_twice_to_the_same_one(simulated: Simulated) -> None:
    """testAckingSelfAnchor"""
    acker, time = simulated

    def anchor_twice(collector: Any, tup: Tuple) -> None:
        collector.emit([1], anchors=[tup, tup])
        collector.ack(tup)

    takes, builder = Takes(FeederSpout()), TopologyBuilder("job")
    builder.spout("1", takes._feeder)
    builder.bolt("2", Does(anchor_twice)).shuffle("1")
    builder.bolt("3", Note()).shuffle("2")
    with LocalRunner(builder.build(), acker):
        for many in (1, 3):
            for _ in range(many):
                takes.feed()
            time.wait()
            assert takes.acks() == many


def test_a_topology_runs_until_its_sources_are_empty(simulated: Simulated) -> None:
    """testBasicTopology: completeTopology"""
    acker, time = simulated
    note, builder = Note(), TopologyBuilder("job")
    builder.spout("1", IterableSpout(["nathan", "bob", "joey", "nathan"]))
    builder.bolt("2", Branch(1), parallelism=4).fields("1", "value")
    builder.bolt("3", note).global_("2")
    with LocalRunner(builder.build(), acker) as runner:
        assert runner.wait_until_idle()
        assert runner.counters()["1"].acked == 4
    assert len(note.values) == 4
    assert time.elapsed_s == 0


def test_a_bolt_that_asks_for_ticks_gets_one_at_each_interval(simulated: Simulated) -> None:
    """TickTupleTest"""
    acker, time = simulated
    at, builder = Shared[float](), TopologyBuilder("job")

    def note_tick(collector: Any, tup: Tuple) -> None:
        assert tup.is_tick
        at.append(time.elapsed_s)
        collector.ack(tup)

    builder.spout("1", FeederSpout())
    builder.bolt("2", Does(note_tick), tick_every_s=1).shuffle("1")
    with LocalRunner(builder.build(), acker):
        time.advance(0.999)
        assert at == []
        time.advance(9.001)
    assert at == list(range(1, 11))


def test_without_ackers_a_message_is_acked_at_once() -> None:
    """TOPOLOGY_ACKER_EXECUTORS = 0"""
    from redis_acker.testing import SimulatedTime

    time, takes, builder = SimulatedTime(), Takes(FeederSpout()), TopologyBuilder("job")
    builder.spout("1", takes._feeder)
    builder.bolt("2", Does(lambda collector, tup: time.sleep(100))).shuffle("1")
    with LocalRunner(builder.build(), None, clock=time):
        takes.feed()
        time.wait()
        assert takes.acks() == 1


def test_a_message_without_id_is_neither_acked_nor_failed(simulated: Simulated) -> None:
    acker, time = simulated
    feeder, builder = FeederSpout(), TopologyBuilder("job")
    builder.spout("1", feeder)
    builder.bolt("2", Does(lambda collector, tup: None)).shuffle("1")
    with LocalRunner(builder.build(), acker) as runner:
        feeder.feed(1)
        time.advance(100)
        assert runner.counters()["2"].executed == 1
    assert feeder.acked == feeder.failed == feeder.given_up == []


def test_an_unanchored_tuple_does_not_hold_up_its_message(simulated: Simulated) -> None:
    acker, time = simulated

    def emit_unanchored(collector: Any, tup: Tuple) -> None:
        collector.emit([1])
        collector.ack(tup)

    takes, builder = Takes(FeederSpout()), TopologyBuilder("job")
    builder.spout("1", takes._feeder)
    builder.bolt("2", Does(emit_unanchored)).shuffle("1")
    builder.bolt("3", Does(lambda collector, tup: None)).shuffle("2")
    with LocalRunner(builder.build(), acker):
        takes.feed()
        time.wait()
        assert takes.acks() == 1


def test_a_failed_tuple_fails_its_message_at_once(simulated: Simulated) -> None:
    acker, time = simulated
    feeder, builder = FeederSpout(), TopologyBuilder("job")
    builder.spout("1", feeder)
    builder.bolt("2", Does(lambda collector, tup: collector.fail(tup))).shuffle("1")
    with LocalRunner(builder.build(), acker, retries=ONE_ATTEMPT):
        feeder.feed(1, id=1)
        time.wait()
        assert feeder.given_up == [1]
    assert time.elapsed_s == 0


def test_a_join_that_waits_for_a_part_fails_all_that_it_holds(simulated: Simulated) -> None:
    acker, time = simulated
    feeder, builder = FeederSpout(), TopologyBuilder("job")
    builder.spout("1", feeder)
    builder.bolt("2", Aggregate(3)).shuffle("1")
    with LocalRunner(builder.build(), acker, retries=ONE_ATTEMPT):
        feeder.feed(1, id=1)
        time.advance(20)
        feeder.feed(2, id=2)
        time.advance(26)
        assert feeder.given_up == [1]
        time.advance(20)
        assert feeder.given_up == [1, 2]


def test_a_spout_has_no_more_than_max_pending_messages_in_work(simulated: Simulated) -> None:
    """TOPOLOGY_MAX_SPOUT_PENDING"""
    acker, time = simulated
    held, builder = Shared[Tuple](), TopologyBuilder("job")
    builder.spout("1", IterableSpout(range(10)))
    builder.bolt("2", Does(lambda collector, tup: held.append(tup))).shuffle("1")
    with LocalRunner(builder.build(), acker, max_pending=3, retries=ONE_ATTEMPT) as runner:
        time.wait()
        assert len(held) == 3
        runner.bolts["2"][0].bolt.collector.ack(held[0])
        time.wait()
        assert len(held) == 4
        time.advance(46)  # what is forgotten leaves room when it times out
        assert len(held) == 7


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_what_is_not_acked_expires_between_t_and_one_tick_later(simulate: Simulate, buckets: int) -> None:
    """RotatingMapTest"""
    acker, time = simulate(timeout_ms=12_000, buckets=buckets)
    with Rotator(acker).start():
        time.advance(1)
        roots, edges = acker.allocate("orders", 4), new_edges(4)
        acker.init(roots, edges)
        acker.ack(roots[:1], edges[:1])
        time.advance(11.999)
        assert acker.pending_count() == 3
        time.advance(12 / (buckets - 1))
        assert acker.pending_count() == 0
        with acker.failures("orders") as failures:
            [failure] = failures.read()
        assert list(failure.roots) == list(roots[1:])
        assert all(12_000 <= age <= 12_000 + 12_000 / (buckets - 1) for age in failure.ages_ms)


def test_a_failed_message_comes_again_when_its_pause_is_over(simulated: Simulated) -> None:
    acker, time = simulated
    at, builder, feeder = Shared[float](), TopologyBuilder("job"), FeederSpout()

    def fail(collector: Any, tup: Tuple) -> None:
        at.append(time.elapsed_s)
        collector.fail(tup)

    builder.spout("1", feeder)
    builder.bolt("2", Does(fail)).shuffle("1")
    retries = RetryPolicy(max_attempts=5, first_ms=1000, longest_ms=5000, jitter=0)
    with LocalRunner(builder.build(), acker, retries=retries):
        feeder.feed(1, id=1)
        time.advance(60)
    assert at == [0, 1, 3, 7, 12]
    assert feeder.failed == [1] * 4
    assert feeder.given_up == [1]

"""Simulated time: things happen in their order, threads are waited for, and only the test lets time pass."""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from redis_acker import (
    BasicBolt,
    DeadLetters,
    FailedTuple,
    LocalRunner,
    Message,
    OutputCollector,
    RetryPolicy,
    Rotator,
    Topology,
    TopologyBuilder,
    Tuple,
    new_edges,
)
from redis_acker.clock import Signal
from redis_acker.errors import BadInput, SimulationStuck
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.testing import FeederSpout, SimulatedTime
from tests.testing.conftest import Simulate, Simulated
from tests.topology.parts import Does, Raises, Shared, topology

TWO_ATTEMPTS = RetryPolicy(max_attempts=2, first_ms=1000, jitter=0)


class Sleeps(BasicBolt):
    """Works on each tuple for a time."""

    fields = ("value",)

    def __init__(self, time: SimulatedTime, seconds: float) -> None:
        self._time, self._seconds = time, seconds
        self.ended_at: Shared[float] = Shared()

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        self._time.sleep(self._seconds)
        self.ended_at.append(self._time.elapsed_s)


# -- things happen in their order -------------------------------------------------------------------------------------


def test_what_waits_for_a_slow_bolt_is_worked_on_once_however_far_time_jumps(simulated: Simulated) -> None:
    acker, time = simulated
    bolt = Sleeps(time, 20)
    with LocalRunner(topology(range(10), bolt), acker) as runner:
        time.advance(1000)
        assert runner.wait_until_idle(timeout_s=0.001)
        assert runner.counters()["source"].acked == 10
        assert runner.counters()["source"].failed == 0
    assert bolt.ended_at == [20.0 * number for number in range(1, 11)]


def test_a_bolt_that_hangs_is_named_and_replaced(simulated: Simulated) -> None:
    acker, time = simulated
    with LocalRunner(topology([1], Sleeps(time, math.inf)), acker, retries=TWO_ATTEMPTS) as runner:
        assert runner.wait_until_idle()
    [letter] = DeadLetters(acker)
    assert [(one.reason, one.component) for one in letter.history] == [("timeout", "bolt0")] * 2
    assert letter.history[0].error == "bolt0 has worked on it for 45.0 s and has not come back"


def test_two_simulations_of_the_same_are_the_same(simulate: Simulate) -> None:
    def history() -> list[Any]:
        acker, time = simulate(timeout_ms=7_000, buckets=4)
        with LocalRunner(topology([1, 2], Sleeps(time, math.inf)), acker, retries=TWO_ATTEMPTS) as runner:
            assert runner.wait_until_idle()
        return [time.elapsed_s, *((letter.message_id, letter.history) for letter in DeadLetters(acker))]

    assert history() == history()


def test_waiting_until_idle_lets_as_much_time_pass_as_it_takes(simulated: Simulated) -> None:
    acker, time = simulated
    retries = RetryPolicy(max_attempts=3, first_ms=1000, jitter=0)
    with LocalRunner(topology([1], Raises(FailedTuple("no"), [1])), acker, retries=retries) as runner:
        assert not runner.wait_until_idle(timeout_s=2.999)
        assert time.elapsed_s == 2.999
        assert runner.wait_until_idle()
        assert time.elapsed_s == 3
        assert runner.counters()["source"].dead == 1


def test_what_can_happen_without_time_takes_none(simulated: Simulated) -> None:
    acker, time = simulated
    feeder, bolt = FeederSpout(), Sleeps(time, 0)
    with LocalRunner(topology(feeder, bolt), acker, max_pending=7) as runner:
        for number in range(100):
            feeder.feed(number, id=number)
        time.wait()
        assert sorted(map(int, feeder.acked)) == list(range(100))
        assert runner.wait_until_idle()
    assert time.elapsed_s == 0


def test_the_timeouts_of_a_reader_are_simulated(simulated: Simulated) -> None:
    acker, time = simulated
    with Rotator(acker).start(), acker.failures("orders") as failures:
        assert failures.read(wait_ms=5_000) == []
        assert time.elapsed_s == 5
        acker.init(acker.allocate("orders", 2), new_edges(2))
        [failure] = failures.read(wait_ms=100_000)
        assert time.elapsed_s == 45
        assert failure.reason == "timeout"
        failures.release([failure])


def test_stopping_takes_the_time_that_is_given_and_leaves_behind_what_hangs(simulated: Simulated) -> None:
    acker, time = simulated
    runner = LocalRunner(topology([1], Sleeps(time, math.inf)), acker).start()
    time.wait()
    assert not runner.stop(timeout_s=5)
    assert time.elapsed_s == 5


def test_a_thread_of_a_bolt_takes_part_if_the_time_makes_it(simulated: Simulated) -> None:
    acker, time = simulated

    def ack_later(collector: Any, tup: Tuple) -> None:
        def later() -> None:
            time.sleep(10)
            collector.ack(tup)

        time.thread("later", later).start()

    with LocalRunner(topology([1], Does(ack_later)), acker) as runner:
        time.advance(9.999)
        assert runner.counters()["source"].acked == 0
        time.advance(0.001)
        assert runner.counters()["source"].acked == 1


# -- drivers and their leases -----------------------------------------------------------------------------------------


def orders(spout: FeederSpout) -> Topology:
    builder = TopologyBuilder("job")
    builder.spout("orders", spout)
    builder.bolt("sink", Does(lambda collector, tup: collector.ack(tup))).shuffle("orders")
    return builder.build()


def test_another_driver_takes_over_when_the_lease_of_a_dead_one_ends(simulate_everywhere: Simulate) -> None:
    acker, time = simulate_everywhere()
    dead = LocalRunner(orders(FeederSpout()), acker).drivers[0]
    assert dead.open()
    feeder = FeederSpout()
    with LocalRunner(orders(feeder), acker, wait_for_lease=True):
        feeder.feed(1, id=1)
        time.advance(9.999)
        assert feeder.acked == []
        time.advance(0.001)
        assert feeder.acked == [1]


def test_a_driver_that_lives_keeps_its_lease_however_far_time_jumps(simulate: Simulate) -> None:
    acker, time = simulate(timeout_ms=300_000)  # so that nothing else is due while a lease lasts
    first, second = FeederSpout(), FeederSpout()
    with LocalRunner(orders(first), acker):
        time.wait()
        standby = LocalRunner(orders(second), acker, wait_for_lease=True).start()
        second.feed(2, id=2)
        time.advance(300)
        first.feed(1, id=1)
        time.wait()
        assert (first.acked, second.acked) == ([1], [])
    time.wait()
    assert second.acked == [2]
    standby.stop()


class Breaks(FeederSpout):
    """Raises an error when the test wants it."""

    is_broken = False

    def next_batch(self, limit: int) -> list[Message]:
        if self.is_broken:
            raise OSError("the source is gone")
        return super().next_batch(limit)


def test_waiting_looks_again_at_what_was_looked_at_before_something_else_happened(simulated: Simulated) -> None:
    acker, time = simulated
    first, second = Breaks(), FeederSpout()
    runner = LocalRunner(orders(first), acker).start()
    time.wait()
    with LocalRunner(orders(second), acker, wait_for_lease=True):
        second.feed(2, id=2)
        time.wait()
        # From here on the driver pauses later than the one that waits for its lease, and is looked at after it.
        runner.drivers[0].wake()
        time.wait()
        first.is_broken = True
        time.wait()
        assert second.acked == [2]
    with pytest.raises(OSError, match="the source is gone"):
        runner.stop()


# -- what cannot be ---------------------------------------------------------------------------------------------------


def test_time_does_not_move_past_a_thread_that_is_at_work() -> None:
    time, gate = SimulatedTime(), threading.Event()
    time.patience_s = 0.05

    def hang(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)

    with LocalRunner(topology([1], Does(hang)), None, clock=time):
        with pytest.raises(SimulationStuck, match=r"^Time cannot move on: bolt0/0 did not pause within 0.05 s\. Wait "):
            time.advance(1)
        assert time.elapsed_s == 0
        time.patience_s = 30
        with pytest.raises(SimulationStuck, match=r"did not pause within 30 s"):  # at once: it is known by now
            time.wait()
        gate.set()
        time.advance(1)
    assert time.elapsed_s == 1


def test_a_run_with_a_thread_that_is_at_work_for_ever_ends_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    time, gate = SimulatedTime(), threading.Event()
    time.patience_s = 0.05

    def hang(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)

    with pytest.raises(SimulationStuck, match="bolt0/0"), LocalRunner(topology([1], Does(hang)), None, clock=time):
        time.wait()
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("bolt0/0 does not end within 30 s and is left behind: it has worked on Tuple((1,), ")
    gate.set()


def test_waiting_for_what_will_never_be_is_an_error() -> None:
    time = SimulatedTime()
    with pytest.raises(SimulationStuck, match=r"^Nothing is due at any time"):
        time.wait_for(Signal(), None)


def test_a_bolt_cannot_let_time_pass(simulated: Simulated) -> None:
    acker, time = simulated
    runner = LocalRunner(
        topology([1], Does(lambda collector, tup: time.advance(1))), acker, retries=RetryPolicy(max_attempts=1)
    )
    with runner:
        assert runner.wait_until_idle()
    [letter] = DeadLetters(acker)
    assert letter.history[0].error.startswith("BadInput: bolt0/0 cannot let simulated time pass, only the thread of")


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan, "5", True, None])
def test_time_advances_by_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(BadInput, match=r"^Time advances by a number of seconds, 0 or more, not "):
        SimulatedTime().advance(seconds)


@pytest.mark.parametrize("seconds", [-1, math.nan, "5", True, None])
def test_a_sleep_takes_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(BadInput, match=r"^A sleep takes a number of seconds, 0 or more, not "):
        SimulatedTime().sleep(seconds)


def test_seconds_are_counted_to_the_ms() -> None:
    time = SimulatedTime()
    for _ in range(100):
        time.advance(0.07)
    assert time.elapsed_s == 7


def test_simulated_time_does_not_leave_its_process(simulated: Simulated) -> None:
    for one in simulated:
        with pytest.raises(BadInput, match=r"cannot be pickled: use LocalRunner\.$"):
            pickle.dumps(one)


# -- without tracking -------------------------------------------------------------------------------------------------


def test_ticks_and_sleeps_need_no_acker() -> None:
    time, ticks = SimulatedTime(), Shared[float]()
    builder = TopologyBuilder("job")
    builder.spout("numbers", IterableSpout([]))
    builder.bolt("ticks", Does(lambda collector, tup: ticks.append(time.elapsed_s)), tick_every_s=2.5).all("numbers")
    with LocalRunner(builder.build(), None, clock=time):
        time.advance(10)
    assert ticks == [2.5, 5, 7.5, 10]

"""Tick tuples: a bolt that gathers others hears that time has passed."""

from __future__ import annotations

from typing import Any

import pytest

from redis_acker import Bolt, LocalRunner, Topology, TopologyBuilder, Tuple
from redis_acker.errors import BadTopology
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.testing import SimulatedTime, simulated_acker
from tests.components.store import Store
from tests.topology.parts import Relay, Shared
from tests.waiting import wait_until


class Gathers(Bolt):
    """Acks what it has gathered when a tick comes."""

    def __init__(self) -> None:
        self.batches: Shared[list[Any]] = Shared()
        self._gathered: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if not tup.is_tick:
            self._gathered.append(tup)
            return
        assert len(tup) == len(tup.anchors) == 0
        if self._gathered:
            self.batches.append([one["value"] for one in self._gathered])
        while self._gathered:
            self.collector.ack(self._gathered.pop())
        self.collector.ack(tup)


def gathering(bolt: Gathers, *, parallelism: int = 1, every_s: float = 0.01) -> Topology:
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(range(10)))
    builder.bolt("gather", bolt, parallelism=parallelism, tick_every_s=every_s).shuffle("source")
    return builder.build()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_task_of_a_bolt_gets_ticks_and_messages_complete_by_them(store: Store, parallelism: int) -> None:
    bolt = Gathers()
    with LocalRunner(gathering(bolt, parallelism=parallelism), store.acker) as runner:
        wait_until(lambda: runner.counters()["source"].acked == 10)
        wait_until(lambda: runner.wait_until_idle(timeout_s=0))
    assert sorted(value for batch in bolt.batches for value in batch) == list(range(10))


def test_ticks_come_with_tracking_off_too() -> None:
    bolt = Gathers()
    with LocalRunner(gathering(bolt), None):
        wait_until(lambda: sum(map(len, bolt.batches)) == 10)


def test_ticks_do_not_pile_up_in_front_of_a_busy_bolt(store: Store) -> None:
    runner = LocalRunner(gathering(Gathers()), store.acker)
    [task] = runner.bolts["gather"]
    for _ in range(3):
        task.tick()
    assert [tup.is_tick for tup in task.queue.snapshot()] == [True]


def test_a_tick_overtakes_a_long_queue_or_what_is_held_back_until_it_comes_would_time_out() -> None:
    class Slow(Gathers):
        def __init__(self, time: SimulatedTime) -> None:
            super().__init__()
            self._time = time

        def execute(self, tup: Tuple) -> None:
            self._time.sleep(0.5)
            super().execute(tup)

    with simulated_acker(timeout_ms=2_000) as (acker, time):
        with LocalRunner(gathering(Slow(time), every_s=1), acker) as runner:
            assert runner.wait_until_idle()
        counters = runner.counters()["source"]
    assert (counters.emitted, counters.acked) == (10, 10)


@pytest.mark.parametrize("every_s", [0, -1, True, "5", float("nan"), float("inf")])
def test_a_tick_needs_a_time(every_s: Any) -> None:
    with pytest.raises(BadTopology, match=r"tick_every_s of 'relay' must be a number of seconds above 0, not "):
        TopologyBuilder("job").bolt("relay", Relay(), tick_every_s=every_s)


def test_no_component_has_the_name_that_ticks_come_from() -> None:
    with pytest.raises(BadTopology, match="'__system' is the name of the runner itself: choose another"):
        TopologyBuilder("job").bolt("__system", Relay())

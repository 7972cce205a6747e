"""On Spark too, what waits for slow bolts is kept alive, and what nobody needs any more is not worked on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from redis_acker import Anchors, BasicBolt, Message, Tuple
from redis_acker.components.component import ComponentCounters
from spark_integration.topologies.micro_batch import Gatherer
from spark_integration.topologies.plan import make_plan
from spark_integration.topologies.wire import unpack_values
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Relay, chain
from tests.topology.parts import ListSpout
from tests.waiting import wait_until


class Slow(BasicBolt):
    """Takes a while for each tuple."""

    fields = ("value",)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        time.sleep(0.1)
        emit(tup["value"])


class TestWithAShortTimeout:
    @pytest.fixture
    def timeout_ms(self) -> int:
        return 1_000

    @pytest.mark.slow
    def test_each_message_is_worked_on_once_however_long_it_waits(self, bench: Bench) -> None:
        runner = bench.run(chain(range(60), Slow(), Relay()), max_pending=20)
        assert sorted(map(int, bench.completed)) == list(range(60))
        assert bench.books() == (60, 0, 0, 0)
        assert runner.counters()["bolt0"] == ComponentCounters(executed=60, emitted=60, acked=60)


def refuse(tup: Tuple, error: str) -> None:
    raise AssertionError(error)


def test_a_delivery_whose_tree_is_over_is_in_no_micro_batch() -> None:
    plan = make_plan(chain([1], Relay()))
    gatherer = Gatherer(plan, refuse)
    for number, anchors in enumerate([{1: 7}, {2: 7}, {1: 7, 2: 7}, {}]):
        gatherer.put(0, Tuple([number], anchors=Anchors(anchors), component="source"))
    batch = gatherer.begin(threading.Event(), {1})
    assert batch is not None
    assert [unpack_values(delivery.values) for _, delivery in batch.deliveries] == [(0,), (2,), (3,)]
    assert (gatherer.delivered, gatherer.finished, gatherer.untracked) == (4, 1, 1)
    gatherer.finish(batch)
    assert (gatherer.delivered, gatherer.finished, gatherer.untracked) == (4, 4, 0)


def test_messages_without_ids_wait_for_room_too(bench: Bench) -> None:
    class Endless(ListSpout):
        def next_batch(self, limit: int) -> list[Message]:
            return [Message([1]) for _ in range(limit)]

    runner = bench.runner(chain(Endless([]), Relay()), max_pending=50)
    with runner:
        wait_until(lambda: runner.counters()["source"].waited > 3, timeout_s=60)
        assert runner._delivered() - runner._finished() <= 50
        wait_until(lambda: runner.counters()["bolt0"].executed > 100, timeout_s=60)

"""A Python worker that dies; test_attempts.py has the worst that may happen, test_cluster.py what a cluster does."""

from __future__ import annotations

from collections.abc import Callable

from redis_acker import Acker, BasicBolt, Bolt, Tuple
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Notebook, chain, die

MESSAGES = 200


class DiesOnce(BasicBolt):
    """Its first run, of any task, ends in a crash after all of its work."""

    fields = ("value",)

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        emit(tup["value"])

    def cleanup(self) -> None:
        if self.notebook.count("crash") == 1:
            die()


class AcksAtOnce(Bolt):
    """The control: sends each ack to the store as it goes, and a task that is run again sends it twice."""

    def __init__(self, acker: Acker, notebook: Notebook) -> None:
        self.store, self.notebook = acker, notebook

    def execute(self, tup: Tuple) -> None:
        self.store.ack(list(tup.anchors), list(tup.anchors.values()))
        tup.outcome = "acked"

    def cleanup(self) -> None:
        if self.notebook.count("crash") == 1:
            die()


def test_a_task_that_dies_after_its_work_is_run_again_and_counted_once(bench: Bench) -> None:
    runner = bench.run(chain(range(MESSAGES), DiesOnce(bench.notebook), DiesOnce(bench.notebook)))

    assert bench.notebook.count("crash") > 4  # two tasks at two levels, and one of them again
    assert bench.books() == (MESSAGES, 0, 0, 0)
    assert bench.strays() == 0
    assert runner.counters()["bolt0"].executed == runner.counters()["bolt1"].executed == MESSAGES


def test_control_acks_that_are_sent_at_once_are_sent_twice(bench: Bench) -> None:
    bench.run_until_executed(chain(range(MESSAGES), AcksAtOnce(bench.acker, bench.notebook)), "bolt0", MESSAGES)

    assert bench.strays() > 0

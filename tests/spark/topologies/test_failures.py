"""What fails is replayed, and what keeps failing is given up; the rest is not held up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from redis_acker import BasicBolt, Bolt, FailedTuple, OutputCollector, TaskContext, Tuple
from spark_integration.topologies.runner import SparkRunner
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Calls, Note, Notebook, Relay, chain, die
from tests.unprintable import StrictHandler, Unprintable


class FailsAtFirst(BasicBolt):
    """Fails every hundredth value at its first attempt."""

    fields = ("value",)

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] % 100 == 0 and self.notebook.count(tup["value"]) == 1:
            raise FailedTuple("not yet")
        emit(tup["value"])


class Rejects(BasicBolt):
    """Cannot work on negative values."""

    fields = ("value",)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] < 0:
            raise FailedTuple(f"{tup['value']} is no amount", fatal=tup["value"] < -1)
        emit(tup["value"])


class Breaks(Bolt):
    """Raises errors outside of execute(), until it has done so often enough."""

    fields = ("value",)

    def __init__(self, phase: str, notebook: Notebook) -> None:
        self.phase, self.notebook = phase, notebook

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self._break("prepare")

    def execute(self, tup: Tuple) -> None:
        self.collector.emit(tup.values, anchors=tup)
        self.collector.ack(tup)

    def cleanup(self) -> None:
        self._break("cleanup")

    def _break(self, phase: str) -> None:
        if phase == self.phase and self.notebook.count(phase) <= 2:
            raise OSError("no connection")


def test_one_in_a_hundred_tuples_fails_and_is_replayed(bench: Bench) -> None:
    runner = bench.run(chain(range(2_000), FailsAtFirst(bench.notebook), Relay()))

    assert sorted(bench.completed) == list(range(2_000))
    assert bench.books() == (2_000, 20, 0, 0)
    assert bench.strays() == 0
    counters = runner.counters()
    assert (counters["source"].replayed, counters["source"].dead) == (20, 0)
    assert (counters["bolt0"].executed, counters["bolt0"].acked, counters["bolt0"].failed) == (2_020, 2_000, 20)
    assert (counters["bolt0"].emitted, counters["bolt1"].executed, counters["bolt1"].acked) == (2_000, 2_000, 2_000)


def test_a_poison_message_is_dead_after_its_last_attempt_with_its_history(bench: Bench) -> None:
    bench.run(chain([1, -1, 2, -2], Relay(), Rejects()))

    tried, given_up = bench.letters()
    assert sorted(bench.completed) == [0, 2]
    assert (tried.message_id, tried.payload, tried.fatal) == (1, [-1], False)
    assert [(one.attempt, one.reason, one.component, one.error) for one in tried.history] == [
        (attempt, "failed", "bolt1", "-1 is no amount") for attempt in (1, 2, 3)
    ]
    assert (given_up.message_id, len(given_up.history), given_up.fatal) == (3, 1, True)
    assert bench.strays() == 0  # the acks of the bolt before are not sent for a message that has failed


class EmitsAndRejects(BasicBolt):
    """Rejects odd values, after it has emitted them."""

    fields = ("value",)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        emit(tup["value"])
        if tup["value"] % 2:
            raise FailedTuple("odd", fatal=True)


def test_what_was_emitted_for_a_message_that_has_failed_is_not_worked_on(bench: Bench) -> None:
    runner = bench.run(chain(range(10), EmitsAndRejects(), Note(bench.notebook)))

    assert sorted(bench.completed) == [0, 2, 4, 6, 8]
    assert bench.books() == (5, 5, 0, 0)
    counters = runner.counters()
    assert (counters["bolt0"].executed, counters["bolt1"].executed) == (10, 5)


@pytest.mark.parametrize("phase", ["prepare", "cleanup"])
def test_an_error_in_prepare_or_cleanup_fails_the_tuples_of_the_task(bench: Bench, phase: str) -> None:
    topology = chain([1], Breaks(phase, bench.notebook), Note(bench.notebook))
    bench.run(topology)

    assert bench.books() == (1, 2, 0, 0)
    assert bench.completed == [0]


def test_the_error_of_cleanup_is_in_the_history(bench: Bench) -> None:
    def act(self: Calls, tup: Tuple) -> None:
        self.collector.ack(tup)
        self.cleanup = lambda: 1 // 0  # type: ignore[method-assign, assignment]

    bench.run(chain([1], Calls(act)))

    [letter] = bench.letters()
    assert letter.history[-1].error == "cleanup() raised ZeroDivisionError: integer division or modulo by zero"
    assert letter.history[-1].component == "bolt0"


@pytest.mark.parametrize("phase", ["prepare", "cleanup"])
def test_an_error_in_prepare_or_cleanup_that_cannot_be_printed(bench: Bench, phase: str) -> None:
    class Silent(Bolt):
        def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
            super().prepare(context, collector)
            logging.getLogger("spark_integration").addHandler(StrictHandler())
            self._break("prepare")

        def execute(self, tup: Tuple) -> None:
            self.collector.ack(tup)

        def cleanup(self) -> None:
            self._break("cleanup")

        def _break(self, now: str) -> None:
            if now == phase:
                raise Unprintable

    bench.run(chain([1], Silent()))

    [letter] = bench.letters()
    assert letter.history[-1].error == f"{phase}() raised Unprintable"


def test_a_tuple_that_is_open_at_the_end_of_the_micro_batch_fails(bench: Bench) -> None:
    bench.run(chain([1], Calls(lambda self, tup: None)))

    [letter] = bench.letters()
    assert letter.history[-1].component == "bolt0"
    assert letter.history[-1].error == "it was neither acked nor failed by the end of its micro-batch"


def test_a_bolt_may_ack_in_cleanup_what_it_was_given(bench: Bench) -> None:
    class Gathers(Bolt):
        fields = ("value",)

        def execute(self, tup: Tuple) -> None:
            self.kept: list[Tuple] = [*getattr(self, "kept", []), tup]

        def cleanup(self) -> None:
            self.collector.emit([sum(tup["value"] for tup in self.kept)], anchors=self.kept)
            for tup in self.kept:
                self.collector.ack(tup)

    runner = bench.run(chain(range(100), Gathers(), Note(bench.notebook)))

    assert sum(value for _, _, value in bench.notebook.read()) == sum(range(100))
    assert runner.counters()["bolt1"].executed <= 4
    assert bench.books() == (100, 0, 0, 0)


def test_values_that_cannot_be_pickled_fail_their_tuple_alone(bench: Bench) -> None:
    def act(self: Calls, tup: Tuple) -> None:
        self.collector.emit([threading.Lock() if tup["value"] == 1 else tup["value"]], anchors=tup)
        self.collector.ack(tup)

    bench.run(chain([0, 1, 2], Calls(act), Relay()))

    [letter] = bench.letters()
    assert sorted(bench.completed) == [0, 2]
    assert "must be picklable" in letter.history[-1].error
    assert letter.history[-1].component == "bolt0"


def test_a_message_that_cannot_be_pickled_is_dead_at_once(bench: Bench) -> None:
    class Locks(list[Any]):
        def __deepcopy__(self, memo: object) -> Locks:
            return self

    bench.run(chain(Locks([0, threading.Lock(), 2]), Relay()))

    [letter] = bench.letters()
    assert sorted(bench.completed) == [0, 2]
    assert (letter.message_id, len(letter.history), letter.fatal) == (1, 1, True)
    assert letter.history[-1].component == "source"


class DiesOf(BasicBolt):
    """Kills its worker when it meets a negative value."""

    fields = ("value",)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] < 0:
            die()
        emit(tup["value"])


def test_with_tracking_off_a_micro_batch_whose_job_fails_twice_is_dropped_and_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Its messages counted as done when they were emitted, as in Storm without ackers."""
    with SparkRunner(chain([-1], DiesOf(), Note(bench.notebook)), None, bench.spark) as runner:
        assert runner.wait_until_idle(timeout_s=180)

    assert "A micro-batch of 1 deliveries is given up" in caplog.text
    assert bench.notebook.read() == []

"""Tasks ack straight to the store: while the job runs, once, and never without all of their deliveries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from redis_acker import Acker, BasicBolt, OutputCollector, RetryPolicy, TaskContext, Tuple
from redis_acker.errors import BadInput
from redis_acker.store.message_ids import MessageId
from spark_integration.topologies.acks import SEND_EVERY_S, TaskAcks
from spark_integration.topologies.runner import SparkRunner
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Note, Notebook, Relay, builder_of, chain, die
from tests.waiting import wait_until

COMPLETED = "completed"


class WaitsForCompletions(BasicBolt):
    """Does not come back from some values before other messages are complete."""

    def __init__(self, notebook: Notebook, values: range) -> None:
        self.notebook, self.values = notebook, values

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] in self.values:
            wait_until(lambda: self.notebook.has_counted(COMPLETED), timeout_s=20)


class Tells(Bench):
    """Tells bolts that a message is complete."""

    def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
        super().on_complete(message_id, latency_ms)
        self.notebook.count(COMPLETED)


def test_messages_complete_while_the_job_runs(bench: Bench) -> None:
    """The second task waits until the spout knows that messages of the first are complete."""
    builder = builder_of(range(10))
    builder.bolt("waits", WaitsForCompletions(bench.notebook, range(1, 10, 2)), parallelism=2).shuffle("source")
    Tells(bench.spark, bench.acker, bench.notebook).run(builder.build())

    assert bench.books() == (10, 0, 0, 0)


class WaitsInTheMiddle(WaitsForCompletions):
    """Takes its time before it waits, so that the task sends what is done."""

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] == 500:
            with pytest.raises(AssertionError):
                wait_until(lambda: False, timeout_s=SEND_EVERY_S)
        super().process(tup, emit)


def test_messages_complete_while_their_task_runs(bench: Bench) -> None:
    """The roots of a block are acked as soon as the task has done all of it."""
    builder = builder_of(range(502))
    builder.bolt("waits", WaitsInTheMiddle(bench.notebook, range(501, 502))).shuffle("source")
    Tells(bench.spark, bench.acker, bench.notebook).run(builder.build())

    assert bench.books() == (502, 0, 0, 0)


class TakesItsTime(BasicBolt):
    """Is slow with one value, so that the task sends what is final by then. cleanup() fails once, if told to."""

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] == 3:
            with pytest.raises(AssertionError):
                wait_until(lambda: False, timeout_s=SEND_EVERY_S)


class PutsOff(TakesItsTime):
    """Writes in cleanup(), which fails the first time."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def cleanup(self) -> None:
        if self.notebook.count("cleanup") == 1:
            raise OSError("cannot write")


def test_a_block_is_acked_as_a_whole(bench: Bench) -> None:
    builder = builder_of(range(10))
    builder.bolt("slow", TakesItsTime()).shuffle("source")
    bench.run(builder.build())

    assert bench.books() == (10, 0, 0, 0)


def test_nothing_is_acked_before_the_cleanup_of_a_bolt_that_has_one(bench: Bench) -> None:
    builder = builder_of([3])
    builder.bolt("puts off", PutsOff(bench.notebook)).shuffle("source")
    bench.run(builder.build())

    assert bench.books() == (1, 1, 0, 0)


class DiesAround(BasicBolt):
    """Emits three values for each it gets. The first worker to come dies before or after it has sent its acks."""

    fields = ("value", "run", "part")

    def __init__(self, notebook: Notebook, when: str, is_random: bool) -> None:
        self.notebook, self.when, self.is_random = notebook, when, is_random

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        if self.notebook.count("armed") > 1:
            return
        send, when = TaskAcks.send, self.when

        def send_and_die(acks: TaskAcks, **options: Any) -> None:
            if when == "after":
                send(acks, **options)
            die()

        TaskAcks.send = send_and_die  # type: ignore[method-assign, assignment]

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        run = uuid4().hex if self.is_random else ""
        for part in range(3):
            emit(tup["value"], run, part)


def values_done(bench: Bench) -> set[int]:
    """Values of which all three parts of one run have come to the end."""
    parts = defaultdict(set)
    for _, _, value, run, part in bench.notebook.read():
        parts[value, run].add(part)
    return {value for (value, _), found in parts.items() if len(found) == 3}


class TestShortTimeout:
    @pytest.fixture
    def timeout_ms(self) -> int:
        return 2_000

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_worker_that_dies_around_its_acks_is_counted_once(self, bench: Bench, when: str) -> None:
        topology = chain(range(50), DiesAround(bench.notebook, when, is_random=False), Note(bench.notebook))
        bench.run(topology)

        assert bench.books() == (50, 0, 0, 0)
        assert values_done(bench) == set(range(50))
        assert (bench.strays() > 0) == (when == "after")

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_what_a_second_attempt_does_otherwise_does_not_complete_what_the_first_has_acked(
        self, bench: Bench, when: str
    ) -> None:
        """Acked, and then lost: such messages time out and are replayed."""
        topology = chain(range(50), DiesAround(bench.notebook, when, is_random=True), Note(bench.notebook))
        bench.run(topology, retries=RetryPolicy(first_ms=1))

        completed, failed, timed_out, pending = bench.books()
        assert (completed, failed, pending) == (50, 0, 0)
        assert (0 < timed_out <= 25) if when == "after" else timed_out == 0
        assert values_done(bench) == set(range(50))
        assert len(bench.completed) == len(set(bench.completed)) == 50


def test_what_is_left_over_says_so_when_it_times_out(bench: Bench) -> None:
    runner = bench.run(chain([1], Relay()))
    runner._left = {5}
    assert runner._holders([5, 6])[5].error.startswith("its micro-batch has ended, but not its tree: a task that ran")
    assert 6 not in runner._holders([5, 6])


def test_an_acker_that_executors_cannot_open_is_refused(bench: Bench) -> None:
    topology, namespace = chain([1], Relay()), bench.acker.namespace
    on_client = Acker(bench.notebook._client(), namespace=namespace)
    with pytest.raises(BadInput, match="An Acker on client objects cannot be pickled: open it with a URL"):
        SparkRunner(topology, on_client, bench.spark)
    with_clock = Acker(bench.notebook.url, namespace=namespace, clock=lambda: 0)
    with with_clock, pytest.raises(BadInput, match="An Acker with a clock of its own cannot be used on Spark"):
        SparkRunner(topology, with_clock, bench.spark)

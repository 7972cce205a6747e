"""What components do wrong without knowing, what is not tracked, what goes on elsewhere: on Spark as in threads."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from redis_acker import BasicBolt, Bolt, FailedTuple, Inbox, Message, OutputCollector, RetryPolicy, TaskContext, Tuple
from redis_acker.topology.routing import task_of_key
from spark_integration.topologies.runner import SparkRunner
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Calls, Note, Notebook, Relay, builder_of, chain
from tests.topology.parts import ListSpout, Shared
from tests.waiting import wait_until

ONCE = RetryPolicy(max_attempts=1)


class Slips(BasicBolt):
    """Makes another mistake for each value, and forgets to call prepare() of its class."""

    fields = ("value",)

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        self.context = context

    def process(self, tup: Tuple, emit: Callable[..., Any]) -> None:
        match tup["value"]:
            case "a dict":
                self.collector.emit({"value": 1}, anchors=tup)  # type: ignore[arg-type]
            case "a set":
                self.collector.emit({1}, anchors=tup)  # type: ignore[arg-type]
            case "too many":
                emit(1, 2)
            case "cancelled":
                raise asyncio.CancelledError("shut down")
            case good:
                emit(good)


def test_a_slip_fails_its_tuple_alone_and_says_why(bench: Bench) -> None:
    values = ["a dict", "a set", "too many", "cancelled", "good"]
    bench.run(chain(values, Slips(), Note(bench.notebook)), retries=ONCE)
    assert [note[2] for note in bench.notebook.read()] == ["good"]
    assert bench.completed == [4]
    assert [letter.history[-1].error for letter in bench.letters()] == [
        "BadInput: 'bolt0' emits {'value': 1}, which is not a list of values: put it into one.",
        "BadInput: 'bolt0' emits {1}, which is not a list of values: put it into one.",
        "BadInput: 'bolt0' emits 2 values to stream 'default', which has fields ['value'].",
        "CancelledError: shut down",
    ]
    assert {letter.history[-1].component for letter in bench.letters()} == {"bolt0"}


class CancelledIn(Relay):
    def __init__(self, phase: str) -> None:
        self.phase = phase

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        if self.phase == "prepare":
            raise asyncio.CancelledError("shut down")

    def cleanup(self) -> None:
        if self.phase == "cleanup":
            raise asyncio.CancelledError("shut down")


@pytest.mark.parametrize("phase", ["prepare", "cleanup"])
def test_a_bolt_that_is_cancelled_in_prepare_or_cleanup_fails_its_tuples_and_no_job(
    bench: Bench, caplog: pytest.LogCaptureFixture, phase: str
) -> None:
    bench.run(chain([1], CancelledIn(phase)), retries=ONCE)
    [letter] = bench.letters()
    assert letter.history[-1].error == f"{phase}() raised CancelledError: shut down"
    assert "The Spark job of" not in caplog.text


def test_what_is_not_a_number_goes_to_the_same_task_whichever_worker_sends_it(bench: Bench) -> None:
    builder = builder_of([math.nan] * 12)
    builder.bolt("relay", Relay(), parallelism=4).shuffle("source")
    builder.bolt("note", Note(bench.notebook), parallelism=5).fields("relay", "value")
    bench.run(builder.build())
    notes = bench.notebook.read()
    assert len(notes) == 12
    assert {note[1] for note in notes} == {task_of_key([math.nan], 5)}


class ToNotebook(logging.Handler):
    """The log of a worker, where the test can read it."""

    def __init__(self, notebook: Notebook) -> None:
        super().__init__()
        self.notebook = notebook

    def emit(self, record: logging.LogRecord) -> None:
        self.notebook.write("log", record.getMessage())


class Untracked(BasicBolt):
    """Extends each tuple, and fails the first."""

    fields = ("value",)

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        self.handler = ToNotebook(self.notebook)
        logging.getLogger("redis_acker").addHandler(self.handler)

    def process(self, tup: Tuple, emit: Callable[..., Any]) -> None:
        self.notebook.write("extend", self.collector.extend(tup))
        if tup["value"] == 0:
            raise FailedTuple("not today")
        emit(tup["value"])

    def cleanup(self) -> None:
        logging.getLogger("redis_acker").removeHandler(self.handler)


@pytest.mark.parametrize("is_tracked", [True, False], ids=["without ids", "tracking off"])
def test_an_untracked_tuple_that_fails_is_logged_and_its_work_is_not_in_vain(bench: Bench, is_tracked: bool) -> None:
    spout = ListSpout([Message([number]) for number in range(3)])
    work = chain(spout, Untracked(bench.notebook), Note(bench.notebook))
    with SparkRunner(work, bench.acker if is_tracked else None, bench.spark) as runner:
        assert runner.wait_until_idle(timeout_s=120)
    notes = bench.notebook.read()
    assert [note for note in notes if note[0] == "extend"] == [("extend", 1)] * 3
    assert sorted(note[2] for note in notes if note[0] == "bolt1") == [1, 2]
    assert [note[1] for note in notes if note[0] == "log"] == [
        "Bolt bolt0 failed Tuple((0,), from 'source', 0 roots), which is in no tree, so nothing replays it: not today"
    ]


class HandsOver(Bolt):
    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def execute(self, tup: Tuple) -> None:
        self.notebook.write(self.collector.hand_over(tup).to_bytes().hex())
        self.collector.ack(tup)


def test_another_program_acks_what_a_bolt_hands_over_and_a_redelivery_does_not_undo_it(bench: Bench) -> None:
    with bench.runner(chain(range(4), HandsOver(bench.notebook))) as runner:
        wait_until(lambda: runner.counters()["bolt0"].acked == 4, timeout_s=60)
        headers = [bytes.fromhex(note[0]) for note in bench.notebook.read()]
        assert bench.acker.pending_count() == 4
        inbox = Inbox(bench.acker, name="mailer")
        for header in headers[:2] * 2:  # the broker delivers each again
            inbox.ack([one for one in inbox.receive([header]) if one])
        for header in headers[2:]:
            anchors = inbox.receive([header])[0].anchors  # type: ignore[union-attr]
            for _ in range(2):
                bench.acker.ack(list(anchors), list(anchors.values()), token=header)
        assert runner.wait_until_idle(timeout_s=60)
    assert sorted(map(int, bench.completed)) == [0, 1, 2, 3]
    assert bench.books() == (4, 0, 0, 0)


class Counts(ListSpout):
    """Notes the rounds of its driver."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__(messages)
        self.rounds: Shared[None] = Shared()

    def keep_alive(self) -> None:
        self.rounds.append(None)


def test_a_spout_is_paused_and_resumed(bench: Bench) -> None:
    spout = Counts([Message([number], id=number) for number in range(20)])
    runner = bench.runner(chain(spout, Calls(lambda bolt, tup: bolt.collector.ack(tup))))
    runner.pause("source")
    with runner:
        wait_until(lambda: len(spout.rounds) > 5)
        assert runner.counters()["source"].emitted == 0
        runner.resume("source")
        assert runner.wait_until_idle(timeout_s=60)
    assert len(bench.completed) == 20

"""Bolts at work in a topology: what they raise, when they ack, and what becomes of the messages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redis_acker import (
    BasicBolt,
    Bolt,
    FailedTuple,
    LocalRunner,
    Message,
    OutputCollector,
    RetryPolicy,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from redis_acker.sources.iterable import IterableSpout
from tests.reliability.parts import (
    NO_PAUSE,
    ONE_ATTEMPT,
    SPOUT_NAME,
    Does,
    ListSpout,
    Note,
    Raises,
    Relay,
    Watcher,
    run,
    topology,
)
from tests.reliability.store import Store
from tests.waiting import wait_until


def test_a_basic_bolt_anchors_and_acks_by_itself(any_store: Store) -> None:
    """On every kind of store: what fails once is replayed, and all is completed."""
    seen: list[int] = []

    class FailsOnce(Relay):
        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            if tup["value"] % 3 == 0 and tup["value"] not in seen:
                seen.append(tup["value"])
                raise FailedTuple("not yet")
            super().process(tup, emit)

    note, watcher = Note(), Watcher()
    work = topology(range(30), Relay(), FailsOnce(), note)
    with LocalRunner(work, any_store.acker, retries=NO_PAUSE, observer=watcher):
        wait_until(lambda: len(watcher.completed) == 30, 30)
    assert sorted(note.values) == list(range(30))
    assert sorted(seen) == list(range(0, 30, 3))
    assert sorted(watcher.failed) == [(one, "failed") for one in range(0, 30, 3)]


def test_only_the_tuple_fails_whose_bolt_raised(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a batch; with the type and text of the error and the component."""
    note = Note()
    runner = run(topology(range(20), Relay(), Raises(ValueError("no sevens"), [7]), note), store)
    assert sorted(note.values) == [one for one in range(20) if one != 7]
    [letter] = store.dead_letters(SPOUT_NAME)
    assert (letter.message_id, letter.fatal, letter.payload) == (7, False, [7])
    [attempt] = letter.history
    assert (attempt.component, attempt.error, attempt.reason) == ("bolt1", "ValueError: no sevens", "failed")
    assert runner.counters()["bolt1"].failed == 1
    [record] = [one for one in caplog.records if one.name == "redis_acker.bolt"]
    assert record.levelname == "WARNING"
    assert record.exc_info


def test_a_failed_tuple_says_why_in_its_own_words(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    run(topology([1], Raises(FailedTuple("the shop is closed"), [1])), store)
    [letter] = store.dead_letters(SPOUT_NAME)
    assert [attempt.error for attempt in letter.history] == ["the shop is closed"]
    assert not letter.fatal
    assert [one for one in caplog.records if one.name == "redis_acker.bolt"] == []


def test_a_fatal_tuple_is_not_tried_again(store: Store) -> None:
    bolt = Raises(FailedTuple("not a number", fatal=True), [1])
    runner = run(topology([1, 2], bolt), store, retries=RetryPolicy(max_attempts=9))
    [letter] = store.dead_letters(SPOUT_NAME)
    assert (letter.payload, letter.fatal, len(letter.history)) == ([1], True, 1)
    assert runner.counters()["source"].replayed == 0


def test_an_error_that_cannot_be_printed_fails_its_tuple_all_the_same(store: Store) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    run(topology([1], Raises(Unprintable(), [1])), store)
    [letter] = store.dead_letters(SPOUT_NAME)
    assert letter.history[0].error == "Unprintable"


def test_an_error_after_the_ack_is_logged_and_does_not_fail_the_tuple(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def ack_and_raise(collector: OutputCollector, tup: Tuple) -> None:
        collector.ack(tup)
        raise ValueError("too late")

    runner = run(topology([1], Does(ack_and_raise)), store)
    assert runner.counters()["source"].acked == 1
    [record] = [one for one in caplog.records if one.name == "redis_acker.bolt"]
    assert record.levelno == logging.ERROR
    assert "bolt0 raised an error after Tuple((1,), from 'source', 1 roots) was acked" in record.getMessage()


def test_an_emit_after_the_ack_is_logged_because_the_child_is_lost(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def ack_and_emit(collector: OutputCollector, tup: Tuple) -> None:
        collector.ack(tup)
        collector.emit([1], anchors=tup)

    note = Note()
    run(topology([1], Does(ack_and_emit), note), store)
    assert note.values == []
    assert "emit first, then ack" in caplog.text


@pytest.mark.parametrize(
    ("emit", "error"),
    [
        (
            lambda collector, tup: collector.emit([1], anchors=tup, stream="errors"),
            "'bolt0' emits to stream 'errors', which it does not declare: it has ['default'].",
        ),
        (
            lambda collector, tup: collector.emit([1, 2], anchors=tup),
            "'bolt0' emits 2 values to stream 'default', which has fields ['value'].",
        ),
        (
            lambda collector, tup: collector.emit("x", anchors=tup),
            "'bolt0' emits 'x', which is no list of values: put it into one.",
        ),
        (
            lambda collector, tup: collector.emit(5, anchors=tup),
            "'bolt0' emits 5, which is no list of values: put it into one.",
        ),
    ],
    ids=["undeclared stream", "too many values", "a text", "a number"],
)
def test_a_wrong_emit_fails_just_its_tuple_with_a_clear_error(
    store: Store, emit: Callable[[OutputCollector, Tuple], None], error: str
) -> None:
    def emit_wrongly_once(collector: OutputCollector, tup: Tuple) -> None:
        if tup["value"] == 1:
            emit(collector, tup)
        collector.emit(tup.values, anchors=tup)
        collector.ack(tup)

    note = Note()
    run(topology(range(3), Does(emit_wrongly_once), note), store)
    [letter] = store.dead_letters(SPOUT_NAME)
    assert letter.message_id == 1
    assert letter.history[0].error == f"BadInput: {error}"
    assert sorted(note.values) == [0, 2]


class Pairs(Bolt):
    """Adds up two values at a time: emits their sum anchored to both, and only then acks both."""

    fields = ("value",)

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self._waiting: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self._waiting.append(tup)
        if len(self._waiting) == 2:
            self.collector.emit([sum(one["value"] for one in self._waiting)], anchors=self._waiting)
            for one in self._waiting:
                self.collector.ack(one)
            self._waiting = []


def test_a_bolt_may_ack_its_inputs_from_a_later_call(store: Store) -> None:
    note, watcher = Note(), Watcher()
    run(topology([1, 2, 3, 4], Pairs(), note), store, observer=watcher)
    assert note.values == [3, 7]
    assert len(note.tuples[0].anchors) == 2
    assert sorted(watcher.completed) == [0, 1, 2, 3]


def test_the_failure_of_an_aggregate_fails_all_its_inputs(store: Store) -> None:
    watcher = Watcher()
    run(topology([1, 2, 3, 4], Pairs(), Raises(FailedTuple("too much"), [7])), store, observer=watcher)
    assert sorted(watcher.completed) == [0, 1]
    assert sorted(letter.message_id for letter in store.dead_letters(SPOUT_NAME)) == [2, 3]


def test_inputs_of_an_aggregate_are_pending_until_it_is_acked(store: Store) -> None:
    gate, watcher = threading.Event(), Watcher()

    def wait_and_ack(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)
        collector.ack(tup)

    runner = LocalRunner(topology([1, 2], Pairs(), Does(wait_and_ack)), store.acker, observer=watcher)
    with runner:
        wait_until(lambda: runner.counters()["bolt0"].acked == 2)
        assert store.acker.pending_count() == 2
        assert watcher.completed == {}
        gate.set()
        assert runner.wait_until_idle(timeout_s=30)
    assert sorted(watcher.completed) == [0, 1]


class Join(Bolt):
    """Waits for an order and its payment, whichever comes first."""

    fields = ("number", "item", "paid")

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self._waiting: dict[int, Tuple] = {}

    def execute(self, tup: Tuple) -> None:
        other = self._waiting.pop(tup["number"], None)
        if other is None:
            self._waiting[tup["number"]] = tup
            return
        order, payment = (tup, other) if tup.component == "orders" else (other, tup)
        self.collector.emit([order["number"], order["item"], payment["paid"]], anchors=[order, payment])
        self.collector.ack(order)
        self.collector.ack(payment)


def join_of(orders: list[Any], payments: list[Any], last: Bolt) -> Any:
    builder = TopologyBuilder("job")
    builder.spout("orders", IterableSpout(orders, fields=("number", "item")))
    builder.spout("payments", IterableSpout(payments, fields=("number", "paid")))
    builder.bolt("join", Join(), parallelism=2).fields("orders", "number").fields("payments", "number")
    builder.bolt("last", last).shuffle("join")
    return builder.build()


def test_a_join_completes_both_sides(store: Store) -> None:
    note, count = Note(), 20
    orders = [(number, f"item {number}") for number in range(count)]
    payments = [(number, 10 * number) for number in reversed(range(count))]
    runner = run(join_of(orders, payments, note), store)
    assert sorted(note.values) == [(number, f"item {number}", 10 * number) for number in range(count)]
    counters = runner.counters()
    assert (counters["orders"].acked, counters["payments"].acked) == (count, count)
    assert (counters["join"].executed, counters["join"].emitted, counters["join"].acked) == (
        2 * count,
        count,
        2 * count,
    )


def test_a_failure_behind_a_join_is_told_to_both_spouts(store: Store) -> None:
    def fail(collector: OutputCollector, tup: Tuple) -> None:
        collector.fail(tup, "out of stock", fatal=True)

    run(join_of([(1, "tea")], [(1, 5)], Does(fail)), store)
    for spout in ("job/orders/0", "job/payments/0"):
        [letter] = store.dead_letters(spout)
        assert (letter.message_id, letter.history[0].error) == (0, "out of stock")


def test_one_side_of_a_join_that_never_comes_leaves_the_other_pending(store: Store) -> None:
    runner = LocalRunner(join_of([(1, "tea"), (2, "milk")], [(1, 5)], Note()), store.acker)
    with runner:
        wait_until(lambda: runner.counters()["orders"].acked == 1)
        wait_until(lambda: runner.counters()["join"].executed == 3)
        assert not runner.wait_until_idle(timeout_s=0)
        assert [one.message_id for one in store.acker.pending()] == [1]


def test_a_bolt_may_ack_from_another_thread(store: Store) -> None:
    """As with calls of a service that answers later."""

    class Asks(Bolt):
        def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
            super().prepare(context, collector)
            self._pool = ThreadPoolExecutor(4)

        def execute(self, tup: Tuple) -> None:
            self._pool.submit(self._answer, tup)

        def _answer(self, tup: Tuple) -> None:
            if tup["value"] == 5:
                self.collector.fail(tup, "wrong number", fatal=True)
            else:
                self.collector.ack(tup)

        def cleanup(self) -> None:
            self._pool.shutdown()

    runner = run(topology(range(50), Asks()), store)
    assert runner.counters()["source"].acked == 49
    assert [letter.message_id for letter in store.dead_letters(SPOUT_NAME)] == [5]


def test_acks_do_not_wait_for_the_tuple_that_takes_long(store: Store) -> None:
    gate, watcher = threading.Event(), Watcher()

    def ack_slowly(collector: OutputCollector, tup: Tuple) -> None:
        if tup["value"] == 2:
            gate.wait(30)
        collector.ack(tup)

    runner = LocalRunner(topology([1, 2, 3], Does(ack_slowly)), store.acker, observer=watcher)
    with runner:
        wait_until(lambda: list(watcher.completed) == [0])
        assert runner.counters()["bolt0"].executed == 1
        gate.set()
        assert runner.wait_until_idle(timeout_s=30)
    assert sorted(watcher.completed) == [0, 1, 2]


def test_a_bolt_prepares_once_and_cleans_up_once_per_task(store: Store) -> None:
    calls: list[tuple[str, int]] = []

    class Counts(Relay):
        def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
            super().prepare(context, collector)
            self.context = context
            calls.append(("prepare", context.task))
            assert (context.component, context.parallelism) == ("counts", 2)

        def cleanup(self) -> None:
            calls.append(("cleanup", self.context.task))

    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(range(10)))
    builder.bolt("counts", Counts(), parallelism=2).shuffle("source")
    run(builder.build(), store)
    assert sorted(calls) == [("cleanup", 0), ("cleanup", 1), ("prepare", 0), ("prepare", 1)]


def test_a_bolt_without_execute_and_a_basic_bolt_without_process_fail_their_tuples(store: Store) -> None:
    builder = TopologyBuilder("job")
    builder.spout("source", ListSpout([Message(["a"], id="a"), Message(["b"], id="b")]))
    builder.bolt("empty", Bolt()).shuffle("source")
    builder.bolt("basic", BasicBolt()).shuffle("source")
    run(builder.build(), store, retries=ONE_ATTEMPT)
    letters = store.dead_letters(SPOUT_NAME)
    assert sorted(str(letter.message_id) for letter in letters) == ["a", "b"]
    assert {letter.history[0].error for letter in letters} == {"NotImplementedError: "}

"""Tuples that are anchored to several others: aggregates and joins."""

from __future__ import annotations

import threading
from typing import Any

from redis_acker import (
    Bolt,
    FailedTuple,
    LocalRunner,
    OutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from redis_acker.spouts.iterable import IterableSpout
from tests.components.store import Store
from tests.topology.parts import (
    SPOUT_NAME,
    Does,
    Note,
    Raises,
    Watcher,
    run,
    topology,
)
from tests.waiting import wait_until


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

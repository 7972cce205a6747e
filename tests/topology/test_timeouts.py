"""Tuples that are forgotten, kept alive or tried again, on a clock that the test moves."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial

import pytest

from redis_acker import LocalRunner, Message, OutputCollector, RetryPolicy, Tuple
from redis_acker.store.message_ids import MessageId
from redis_acker.topology.task_queue import CLEAN_AFTER, HELD_LIMIT, HeldTuples
from tests.components.desk import tuple_of
from tests.components.store import TICK_MS, Store
from tests.topology.parts import ONE_ATTEMPT, Does, ListSpout, Raises, Relay, Watcher, topology
from tests.waiting import wait_until


class Rounds(ListSpout):
    """Hands out failed messages again, and counts the rounds of its driver."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__(messages)
        self.all = {message.id: message for message in messages}
        self.rounds: list[int] = []

    def __deepcopy__(self, memo: object) -> Rounds:
        return self

    def next_batch(self, limit: int) -> list[Message]:
        self.rounds.append(limit)
        return super().next_batch(limit)

    def fail(self, message_id: MessageId) -> None:
        super().fail(message_id)
        self._messages.append(self.all[message_id])

    def wait_rounds(self, more: int = 3) -> None:
        """Waits until the driver has looked so many times more: whatever is due has happened by then."""
        seen = len(self.rounds)
        wait_until(lambda: len(self.rounds) >= seen + more)


def forget(collector: OutputCollector, tup: Tuple) -> None:
    """What a bolt does that neither acks nor fails."""


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def test_a_bolt_that_forgets_to_ack_is_named_by_the_timeout(store: Store, watcher: Watcher) -> None:
    runner = LocalRunner(
        topology([1], Relay(), Does(forget)), store.acker, retries=ONE_ATTEMPT, observer=watcher, clock=store.clock
    )
    with runner:
        wait_until(lambda: runner.counters()["bolt1"].executed == 1)
        assert store.expire() == 1
        wait_until(lambda: watcher.letters)
    [attempt] = watcher.letters[0].history
    assert (attempt.reason, attempt.component) == ("timeout", "bolt1")
    assert re.fullmatch(r"bolt1 was given it \d+\.\d s ago and has neither acked nor failed it", attempt.error)
    assert watcher.failed == [(0, "timeout")]


def test_a_bolt_that_hangs_is_named_by_the_timeout(store: Store, watcher: Watcher) -> None:
    gate = threading.Event()

    def hang(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)

    runner = LocalRunner(
        topology([1], Does(hang)), store.acker, retries=ONE_ATTEMPT, observer=watcher, clock=store.clock
    )
    with runner:
        wait_until(lambda: store.acker.pending_count() == 1)
        wait_until(runner.bolts["bolt0"][0].in_hands)
        assert store.expire() == 1
        wait_until(lambda: watcher.letters)
        gate.set()
    [attempt] = watcher.letters[0].history
    assert (attempt.reason, attempt.component) == ("timeout", "bolt0")
    assert re.fullmatch(r"bolt0 has worked on it for \d+\.\d s and has not come back", attempt.error)


def test_a_root_that_no_bolt_holds_times_out_without_a_name(store: Store, watcher: Watcher) -> None:
    """It was handed over to another program, which has not acked it."""

    def hand_over(collector: OutputCollector, tup: Tuple) -> None:
        assert len(collector.hand_over(tup)) == 1
        collector.ack(tup)

    runner = LocalRunner(
        topology([1], Does(hand_over)), store.acker, retries=ONE_ATTEMPT, observer=watcher, clock=store.clock
    )
    with runner:
        wait_until(lambda: runner.counters()["bolt0"].acked == 1)
        assert store.expire() == 1
        wait_until(lambda: watcher.letters)
    [attempt] = watcher.letters[0].history
    assert attempt.component == ""
    assert attempt.error == "nothing in this process holds it, 45000 ms after it was emitted: another program does"


def test_tuples_that_were_finished_later_are_not_held_any_more() -> None:
    held, tuples = HeldTuples(), [tuple_of((root, 1), (root + 1_000_000, 1)) for root in range(1, 2 * CLEAN_AFTER)]
    for tup in tuples:
        held.add(tup)
    assert set(held.all()) == set(tuples)
    for tup in tuples[1:]:
        tup.outcome = "acked"
    assert set(held.all()) == {tuples[0]}


def test_a_bolt_that_forgets_for_ever_does_not_fill_the_memory() -> None:
    held = HeldTuples()
    for root in range(1, 5 * HELD_LIMIT):
        held.add(tuple_of((root, 1)))
    assert len(held._by_root) <= 2 * HELD_LIMIT + CLEAN_AFTER
    assert 5 * HELD_LIMIT - 1 in {root for tup in held.all() for root in tup.anchors}


def test_unanchored_tuples_are_never_held() -> None:
    held = HeldTuples()
    for _ in range(10):
        held.add(tuple_of())
    assert held._by_root == {}


def test_a_bolt_keeps_its_tree_alive_by_extending_it(store: Store, watcher: Watcher) -> None:
    wanted, extended, done = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def extend_until_done(collector: OutputCollector, tup: Tuple) -> None:
        while wanted.acquire(timeout=30) and not done.is_set():
            assert collector.extend(tup) == 1
            extended.release()
        collector.ack(tup)

    runner = LocalRunner(topology([1], Does(extend_until_done)), store.acker, observer=watcher, clock=store.clock)
    with runner:
        wait_until(lambda: store.acker.pending_count() == 1)
        for _ in range(8):
            assert store.pass_time(TICK_MS) == 0
            wanted.release()
            assert extended.acquire(timeout=30)
        done.set()
        wanted.release()
        assert runner.wait_until_idle(timeout_s=30)
    assert watcher.completed == {0: 8 * TICK_MS}
    assert watcher.failed == []


def test_the_pause_doubles_between_attempts_up_to_the_longest(store: Store, watcher: Watcher) -> None:
    spout = Rounds([Message([1], id="a")])
    policy = RetryPolicy(max_attempts=5, first_ms=1000, longest_ms=5000, jitter=0)
    runner = LocalRunner(
        topology(spout, Raises(ValueError("no"), [1])),
        store.acker,
        retries=policy,
        observer=watcher,
        clock=store.clock,
    )
    with runner:
        for attempt, pause_ms in enumerate([1000, 2000, 4000, 5000], start=1):
            wait_until(partial(watcher.has_failed, attempt))
            spout.wait_rounds()
            store.clock.advance(pause_ms - 1)
            spout.wait_rounds()
            assert runner.counters()["source"].emitted == attempt
            assert not runner.wait_until_idle(timeout_s=0)
            store.clock.advance(1)
        wait_until(lambda: watcher.letters)
    [letter] = watcher.letters
    assert [one.attempt for one in letter.history] == [1, 2, 3, 4, 5]
    assert spout.told == [("fail", "a")] * 4 + [("dead", "a")]


def test_a_message_that_times_out_is_tried_again_and_may_succeed(store: Store, watcher: Watcher) -> None:
    forgotten: list[str] = []

    def forget_once(collector: OutputCollector, tup: Tuple) -> None:
        if not forgotten:
            forgotten.append(tup["value"])
            return
        collector.ack(tup)

    spout = Rounds([Message(["x"], id="a")])
    policy = RetryPolicy(max_attempts=2, first_ms=0)
    runner = LocalRunner(
        topology(spout, Does(forget_once)), store.acker, retries=policy, observer=watcher, clock=store.clock
    )
    with runner:
        wait_until(lambda: forgotten)
        assert store.expire() == 1
        wait_until(lambda: watcher.completed)
    assert watcher.failed == [("a", "timeout")]
    assert spout.told == [("fail", "a"), ("ack", "a")]


def test_the_late_ack_of_a_forgotten_tuple_does_not_touch_the_replay(store: Store, watcher: Watcher) -> None:
    kept: list[tuple[OutputCollector, Tuple]] = []
    keep: Callable[[OutputCollector, Tuple], None] = lambda collector, tup: kept.append((collector, tup))  # noqa: E731
    spout = Rounds([Message(["x"], id="a")])
    policy = RetryPolicy(max_attempts=2, first_ms=0)
    runner = LocalRunner(topology(spout, Does(keep)), store.acker, retries=policy, observer=watcher, clock=store.clock)
    with runner:
        wait_until(lambda: len(kept) == 1)
        assert store.expire() == 1
        wait_until(lambda: len(kept) == 2)
        collector, late = kept[0]
        collector.ack(late)
        wait_until(lambda: sum(shard.late for shard in store.acker.stats().shards) == 1)
        assert store.acker.pending_count() == 1
        assert watcher.completed == {}
        collector.ack(kept[1][1])
        wait_until(lambda: watcher.completed)

"""Many messages through a topology in which tuples fail at random: all are completed, and every attempt is counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from redis_acker import BasicBolt, FailedTuple, LocalRunner, OutputCollector, RetryPolicy, TaskContext, Tuple
from redis_acker.store.message_ids import MessageId
from tests.components.store import FIXED_KEYS, Store
from tests.topology.parts import SPOUT_NAME, Watcher, topology
from tests.waiting import wait_until

BOLTS = 4


class Unsteady(BasicBolt):
    """Fails some of its tuples, whichever they are."""

    fields = ("value",)

    def __init__(self, share: float, seed: int) -> None:
        self._share, self._seed = share, seed

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self._random = random.Random(self._seed)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if self._random.random() < self._share:
            raise FailedTuple("unlucky")
        emit(tup["value"])


class Attempts(Watcher):
    """Counts the attempts at each message."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: Counter[MessageId] = Counter()

    def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
        super().on_complete(message_id, latency_ms)
        self.attempts[message_id] += 1

    def on_fail(self, message_id: MessageId, reason: str) -> None:
        super().on_fail(message_id, reason)
        self.attempts[message_id] += 1


def work_off(store: Store, count: int, share: float, max_attempts: int) -> tuple[LocalRunner, Attempts]:
    watcher = Attempts()
    bolts = [Unsteady(share, seed) for seed in range(BOLTS)]
    policy = RetryPolicy(max_attempts=max_attempts, first_ms=10, longest_ms=100)
    runner = LocalRunner(topology(range(count), *bolts), store.acker, retries=policy, observer=watcher)
    with runner:
        wait_until(lambda: len(watcher.completed) + len(watcher.letters) == count, 300)
        assert runner.wait_until_idle(timeout_s=30)
    return runner, watcher


def check_books(store: Store, runner: LocalRunner, watcher: Attempts, count: int) -> None:
    counters = runner.counters()
    source, bolts = counters["source"], [counters[f"bolt{number}"] for number in range(BOLTS)]
    [stats] = [one for one in store.acker.stats().spouts if one.name == SPOUT_NAME]
    assert sum(watcher.attempts.values()) == source.emitted == stats.initialised
    assert len(watcher.failed) == source.failed == stats.failed == sum(bolt.failed for bolt in bolts)
    assert stats.failed == source.replayed + source.dead
    assert stats.completed == source.acked == count - source.dead
    assert (stats.timeout, stats.pending) == (0, 0)
    assert bolts[0].executed == source.emitted
    for before, after in pairwise(bolts):
        assert before.executed == before.acked + before.failed
        assert before.emitted == before.acked == after.executed
    assert sum(shard.duplicates + shard.orphans for shard in store.acker.stats().shards) == 0
    # The ack of a tuple is late if its child failed and the fail was quicker.
    assert sum(shard.late for shard in store.acker.stats().shards) <= BOLTS * stats.failed
    store.expire()
    assert store.keys() <= FIXED_KEYS


@pytest.mark.slow
def test_50_000_messages_are_all_completed_though_one_in_a_hundred_tuples_fails(store: Store) -> None:
    count = 50_000
    runner, watcher = work_off(store, count, share=0.01, max_attempts=30)
    assert set(watcher.completed) == set(range(count))
    assert watcher.letters == []
    assert runner.counters()["source"].replayed > count * BOLTS * 0.008
    check_books(store, runner, watcher, count)


def test_messages_are_completed_or_dead_and_never_both(store: Store) -> None:
    count = 2_000
    runner, watcher = work_off(store, count, share=0.1, max_attempts=2)
    dead = {letter.message_id for letter in watcher.letters}
    assert dead
    assert dead.isdisjoint(watcher.completed)
    assert dead | set(watcher.completed) == set(range(count))
    assert {letter.message_id for letter in store.dead_letters(SPOUT_NAME)} == dead
    assert all(watcher.attempts[message_id] == 2 for message_id in dead)
    check_books(store, runner, watcher, count)

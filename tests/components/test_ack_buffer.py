"""Acks and fails on their way to the store: together, once, and none is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from redis_acker import Acker, Acks, Anchors, Fails, Token, Tuple, new_edge
from redis_acker.errors import ServerUnavailable
from redis_acker.store.ids import Ids
from redis_acker.store.streams import Cause
from tests.components.desk import Desk, tuple_of
from tests.components.store import Store


class Unlucky(Acker):
    """An acker that has trouble on demand."""

    lose_replies = refuse = 0
    calls = 0

    def ack(self, roots: Ids, ack_vals: Ids, *, token: Token | str | bytes | None = None) -> Acks:
        self.calls += 1
        known = token if isinstance(token, Token) else Token.of(f"{new_edge()}")
        error = ServerUnavailable("gone")
        error.token = known
        if self.refuse:
            self.refuse -= 1
            raise error
        reply = super().ack(roots, ack_vals, token=known)
        if self.lose_replies:
            self.lose_replies -= 1
            raise error
        return reply

    def fail_all(self, fails: Iterable[tuple[Ids, Cause]]) -> Fails:
        self.calls += 1
        if self.refuse:
            self.refuse -= 1
            raise ServerUnavailable("gone")
        return super().fail_all(fails)


@pytest.fixture
def unlucky(store: Store) -> Iterator[Unlucky]:
    acker = Unlucky(store.backend.target, namespace=store.acker.namespace, clock=store.clock)
    yield acker
    acker.close()


def test_a_flush_sends_all_acks_in_one_call(store: Store, unlucky: Unlucky) -> None:
    roots, desk = [store.start_root(edge) for edge in range(1, 51)], Desk(unlucky)
    desk.ack(*(tuple_of((root, edge)) for edge, root in enumerate(roots, start=1)))
    assert unlucky.calls == 1
    assert store.completed() == roots
    desk.buffer.flush()
    assert unlucky.calls == 1


@pytest.mark.parametrize("causes", [1, 5])
def test_fails_go_in_one_call_whatever_their_causes(store: Store, unlucky: Unlucky, causes: int) -> None:
    roots, desk = [store.start_root(7) for _ in range(10)], Desk(unlucky)
    for i, root in enumerate(roots):
        desk.collector.fail(tuple_of((root, 7)), f"broken {i % causes}")
    desk.buffer.flush()
    assert unlucky.calls == 1
    assert sorted(store.failed()) == roots


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_acks_whose_reply_was_lost_are_sent_again_and_count_once(store: Store, unlucky: Unlucky, times: int) -> None:
    root, desk = store.start_root(7 ^ 8), Desk(unlucky)
    desk.collector.ack(tuple_of((root, 7)))
    unlucky.lose_replies = times
    for _ in range(times):
        with pytest.raises(ServerUnavailable):
            desk.buffer.flush()
    desk.buffer.flush()
    assert store.ack_val(root) == 8
    desk.ack(tuple_of((root, 8)))
    assert store.completed() == [root]


def test_what_comes_while_the_store_is_away_is_sent_after_it(store: Store, unlucky: Unlucky) -> None:
    first, second, third, desk = store.start_root(7), store.start_root(8), store.start_root(9), Desk(unlucky)
    unlucky.refuse = 3
    desk.collector.fail(tuple_of((first, 7)), "broken")
    desk.collector.ack(tuple_of((second, 8)))
    for _ in range(2):
        with pytest.raises(ServerUnavailable):
            desk.buffer.flush()
    desk.collector.ack(tuple_of((third, 9)))
    with pytest.raises(ServerUnavailable):
        desk.buffer.flush()
    desk.buffer.flush()
    assert store.failed() == [first]
    assert store.completed() == [second, third]


def test_without_acker_nothing_is_gathered() -> None:
    desk = Desk(None)
    desk.collector.ack(tuple_of((1, 7)))
    desk.collector.fail(tuple_of((2, 8)), "broken")
    assert len(desk.buffer) == 0
    desk.buffer.flush()


class FlushesInBetween(int):
    """An edge in the midst of whose ack another thread flushes."""

    flush: Callable[[], int]

    def __xor__(self, other: int) -> int:
        flusher = threading.Thread(target=self.flush)
        flusher.start()
        flusher.join(0.3)  # it must wait for the ack, which goes on after this
        return int(self) ^ other


def test_a_flush_does_not_cut_an_ack_in_two(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    edge = FlushesInBetween(7)
    edge.flush = desk.buffer.flush
    desk.collector.ack(Tuple(["value"], anchors=Anchors.trusted({root: edge})))
    desk.buffer.flush()
    assert store.completed() == [root]


def test_threads_may_share_a_collector(store: Store) -> None:
    """Each thread acks and emits; others flush all the while. No ack is lost, none is sent twice."""
    count, desk = 400, Desk(store.acker, consumers=2)
    roots = [store.start_root(7) for _ in range(count)]
    done = threading.Event()

    def flush_all_the_while() -> None:
        while not done.is_set():
            desk.buffer.flush()

    def work(root: int) -> None:
        given = tuple_of((root, 7))
        desk.collector.emit([root], anchors=given)
        desk.collector.ack(given)

    with ThreadPoolExecutor(8) as pool:
        flushers = [pool.submit(flush_all_the_while) for _ in range(2)]
        list(pool.map(work, roots))
        list(pool.map(desk.collector.ack, list(desk.wire.delivered)))
        done.set()
        for flusher in flushers:
            flusher.result()
    desk.buffer.flush()
    assert (desk.collector.counters.emitted, desk.collector.counters.acked) == (count, 3 * count)
    assert store.completed() == sorted(roots)

"""Each tuple is finished once: what a second ack, a late fail or a late emit does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redis_acker import OutputCollector, Tuple
from redis_acker.errors import BadInput, TupleFinished
from tests.components.desk import Desk, tuple_of
from tests.components.store import TICK_MS, TIMEOUT_MS, Store

Act = Callable[[OutputCollector, Tuple], object]

ACK: Act = lambda collector, tup: collector.ack(tup)  # noqa: E731
FAIL: Act = lambda collector, tup: collector.fail(tup)  # noqa: E731
EMIT: Act = lambda collector, tup: collector.emit(["value"], anchors=tup)  # noqa: E731
HAND_OVER: Act = lambda collector, tup: collector.hand_over(tup)  # noqa: E731


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (ACK, "was acked already and cannot be acked too: finish each tuple once"),
        (FAIL, "was acked already and cannot be failed too: finish each tuple once"),
        (EMIT, "was acked before it was anchored to: emit first, then ack"),
        (HAND_OVER, "was acked before it was handed over: emit first, then ack"),
    ],
    ids=["ack", "fail", "emit", "hand over"],
)
def test_a_tuple_that_was_acked_stays_acked(store: Store, again: Act, text: str) -> None:
    root, desk = store.start_root(7 ^ 8), Desk(store.acker)
    first, second = tuple_of((root, 7)), tuple_of((root, 8))
    desk.collector.ack(first)
    with pytest.raises(TupleFinished, match=text):
        again(desk.collector, first)
    desk.buffer.flush()
    assert store.ack_val(root) == 8
    desk.ack(second)
    assert store.completed() == [root]
    assert store.failures() == []
    assert desk.wire.delivered == []
    assert (desk.collector.counters.acked, desk.collector.counters.failed, desk.collector.counters.emitted) == (2, 0, 0)


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (ACK, "was failed already and cannot be acked too: finish each tuple once"),
        (FAIL, "was failed already and cannot be failed too: finish each tuple once"),
        (EMIT, "was failed before it was anchored to: emit first, then ack"),
        (HAND_OVER, "was failed before it was handed over: emit first, then ack"),
    ],
    ids=["ack", "fail", "emit", "hand over"],
)
def test_a_tuple_that_was_failed_stays_failed(store: Store, again: Act, text: str) -> None:
    root, desk = store.start_root(7), Desk(store.acker, "billing")
    given = tuple_of((root, 7))
    desk.collector.fail(given, "no such account")
    with pytest.raises(TupleFinished, match=text):
        again(desk.collector, given)
    desk.buffer.flush()
    [failure] = store.failures()
    assert (failure.roots.tolist(), failure.reason, failure.error) == ([root], "failed", "no such account")
    assert store.completed() == []
    assert desk.wire.delivered == []
    assert (desk.collector.counters.acked, desk.collector.counters.failed, desk.collector.counters.emitted) == (0, 1, 0)


def test_an_emit_anchored_to_a_finished_and_an_open_tuple_touches_neither(store: Store) -> None:
    root, desk = store.start_root(7 ^ 8), Desk(store.acker)
    done, open_ = tuple_of((root, 7)), tuple_of((root, 8))
    desk.ack(done)
    with pytest.raises(TupleFinished):
        desk.emit(open_, done)
    assert open_.child_edges == 0
    desk.ack(open_)
    assert store.completed() == [root]


def test_the_fail_of_one_tuple_fails_the_root_whatever_the_others_do(store: Store) -> None:
    root, desk = store.start_root(7 ^ 8), Desk(store.acker)
    desk.collector.ack(tuple_of((root, 7)))
    desk.collector.fail(tuple_of((root, 8)), "broken", fatal=True)
    desk.buffer.flush()
    [failure] = store.failures()
    assert (failure.roots.tolist(), failure.fatal) == ([root], True)
    assert store.completed() == []


def test_two_tuples_of_a_root_may_both_fail_and_the_first_text_stands(store: Store) -> None:
    root, desk = store.start_root(7 ^ 8), Desk(store.acker)
    desk.collector.fail(tuple_of((root, 7)), "first")
    desk.collector.fail(tuple_of((root, 8)), "second")
    desk.buffer.flush()
    assert [failure.error for failure in store.failures()] == ["first"]


def test_the_late_acks_of_a_failed_root_change_nothing(store: Store) -> None:
    root, desk = store.start_root(7 ^ 8), Desk(store.acker)
    desk.collector.fail(tuple_of((root, 7)))
    desk.buffer.flush()
    desk.ack(tuple_of((root, 8)))
    assert store.failed() == [root]
    assert store.completed() == []
    assert sum(shard.late for shard in store.acker.stats().shards) == 1


@pytest.mark.parametrize("wrong", [None, "tuple", 7, ["value"]])
@pytest.mark.parametrize("verb", ["acked", "failed", "extended", "handed over"])
def test_only_tuples_can_be_finished(wrong: object, verb: str) -> None:
    collector = Desk(None).collector
    acts: dict[str, Callable[[Any], object]] = {
        "acked": collector.ack,
        "failed": collector.fail,
        "extended": collector.extend,
        "handed over": collector.hand_over,
    }
    with pytest.raises(BadInput, match=f"Only a tuple that the bolt was given can be {verb}, not"):
        acts[verb](wrong)


@pytest.mark.parametrize("error", [ValueError("no"), None, 5, {}])
def test_the_error_of_a_fail_is_a_text_and_else_nothing_happens(store: Store, error: object) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    with pytest.raises(BadInput, match="The error of a fail is a text for people, not"):
        desk.collector.fail(given, error)  # type: ignore[arg-type]
    assert given.outcome == ""
    desk.ack(given)
    assert store.completed() == [root]


def test_extend_restarts_the_clock_of_a_pending_root(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    for _ in range(5):
        assert store.pass_time(TICK_MS) == 0
        assert desk.collector.extend(given) == 1
    assert store.pass_time(TIMEOUT_MS) == 0
    desk.ack(given)
    assert store.completed() == [root]


def test_without_extend_the_same_root_times_out(store: Store) -> None:
    root = store.start_root(7)
    assert sum(store.pass_time(TICK_MS) for _ in range(5)) == 1
    [failure] = store.failures()
    assert (failure.roots.tolist(), failure.reason) == ([root], "timeout")


def test_extend_counts_the_trees_that_are_still_pending(store: Store) -> None:
    done, pending, desk = store.start_root(7), store.start_root(8), Desk(store.acker)
    [both] = desk.emit(tuple_of((done, 7)), tuple_of((pending, 8)))
    assert desk.collector.extend(both) == 2
    store.acker.fail(done)
    assert desk.collector.extend(both) == 1
    store.acker.fail(pending)
    assert desk.collector.extend(both) == 0
    assert store.failed() == [done, pending]


def test_extend_on_a_finished_root_does_not_bring_it_back(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    desk.ack(given)
    assert desk.collector.extend(given) == 0
    assert store.completed() == [root]
    assert store.expire() == 0


def test_extend_of_an_unanchored_tuple_asks_nobody() -> None:
    assert Desk(None).collector.extend(Tuple(["value"])) == 1
    assert Desk(None).collector.extend(tuple_of((1, 2))) == 1

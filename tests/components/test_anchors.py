"""What a tuple is anchored to, and what its ack then says."""

from __future__ import annotations

import pytest

from redis_acker import Tuple
from redis_acker.errors import BadInput
from tests.components.desk import Desk, tuple_of
from tests.components.store import Store


def test_a_tuple_of_one_input_joins_its_tree(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    [child] = desk.emit(given)
    assert list(child.anchors) == [root]
    desk.ack(given)
    assert store.ack_val(root) == child.anchors[root]
    desk.ack(child)
    assert store.completed() == [root]


def test_a_tuple_of_several_inputs_joins_all_their_trees(store: Store) -> None:
    roots, desk = [store.start_root(7), store.start_root(8), store.start_root(9)], Desk(store.acker)
    given = [tuple_of((root, edge)) for root, edge in zip(roots, (7, 8, 9), strict=True)]
    [child] = desk.emit(*given)
    assert set(child.anchors) == set(roots)
    desk.ack(*given)
    assert all(store.is_pending(root) for root in roots)
    desk.ack(child)
    assert store.completed() == roots


def test_each_of_several_inputs_is_waited_for_in_its_own_tree_alone(store: Store) -> None:
    first, second, desk = store.start_root(7), store.start_root(8), Desk(store.acker)
    given1, given2 = tuple_of((first, 7)), tuple_of((second, 8))
    [child] = desk.emit(given1, given2)
    desk.ack(child, given1)
    assert store.completed() == [first]
    assert store.ack_val(second) is not None
    desk.ack(given2)
    assert store.completed() == [second]


def test_an_input_that_is_named_twice_counts_like_one(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    [child] = desk.emit(given, given)
    desk.ack(given)
    assert store.ack_val(root) == child.anchors[root] != 0
    desk.ack(child)
    assert store.completed() == [root]


def test_two_inputs_of_the_same_tree_close_a_diamond(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    top = tuple_of((root, 7))
    [left], [right] = desk.emit(top), desk.emit(top)
    [bottom] = desk.emit(left, right)
    for tup in (left, bottom, top):
        desk.ack(tup)
        assert store.is_pending(root)
    desk.ack(right)
    assert store.completed() == [root]


def test_every_consumer_gets_an_edge_of_its_own(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker, consumers=3)
    given = tuple_of((root, 7))
    children = desk.emit(given)
    assert len({child.anchors[root] for child in children}) == 3
    desk.ack(given, *children[:2])
    assert store.ack_val(root) == children[2].anchors[root]
    desk.ack(children[2])
    assert store.completed() == [root]


def test_an_emit_that_nobody_hears_leaves_no_edge(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker, consumers=0)
    given = tuple_of((root, 7))
    assert desk.collector.emit(["value"], anchors=given) == []
    desk.ack(given)
    assert store.completed() == [root]


def test_an_emit_without_anchors_is_outside_of_every_tree(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    [outside] = desk.emit()
    assert outside.anchors == {}
    desk.ack(given)
    assert store.completed() == [root]
    desk.ack(outside)
    desk.collector.fail(desk.emit()[0], "of no consequence")
    desk.buffer.flush()
    assert store.failures() == []


def test_what_hangs_on_an_unanchored_tuple_is_outside_too(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    [outside] = desk.emit()
    [child] = desk.emit(outside)
    assert child.anchors == {}
    [mixed] = desk.emit(outside, given)
    assert list(mixed.anchors) == [root]
    desk.ack(given, mixed)
    assert store.completed() == [root]


def test_a_tuple_of_many_trees_fails_all_of_them(store: Store) -> None:
    roots, desk = [store.start_root(7), store.start_root(8)], Desk(store.acker, "billing")
    [child] = desk.emit(tuple_of((roots[0], 7)), tuple_of((roots[1], 8)))
    desk.collector.fail(child, "no such account")
    desk.buffer.flush()
    [failure] = store.failures()
    assert sorted(failure.roots.tolist()) == roots
    assert (failure.component, failure.error, failure.fatal) == ("billing", "no such account", False)


@pytest.mark.parametrize("wrong", ["a text", 5, [7], [Tuple(["good"]), "bad"], {"root": "edge"}])
def test_only_tuples_can_be_anchored_to(wrong: object) -> None:
    desk = Desk(None)
    with pytest.raises(BadInput, match=r"Only a tuple that the bolt was given can be anchored to, not"):
        desk.collector.emit(["value"], anchors=wrong)  # type: ignore[arg-type]
    assert desk.wire.delivered == []


def test_a_value_is_read_by_name_and_by_place() -> None:
    tup = Tuple(["apple", 3], fields=["fruit", "count"], component="basket")
    assert (tup["fruit"], tup[1], len(tup), tup.values) == ("apple", 3, 2, ("apple", 3))
    with pytest.raises(BadInput, match=r"A tuple of 'basket' has the fields \('fruit', 'count'\), not 'colour'"):
        tup["colour"]


def test_a_long_tuple_is_shown_in_short() -> None:
    assert len(repr(Tuple(["x" * 10_000]))) < 300

"""A tuple that leaves for another program stays in its tree until that program acks it."""

from __future__ import annotations

import multiprocessing

import pytest

from redis_acker import Acker, Anchors, new_edge
from tests.components.desk import Desk, tuple_of
from tests.components.store import Store


def ack_elsewhere(url: str, namespace: str, header: bytes) -> None:
    """What the other program does."""
    anchors = Anchors.from_bytes(header)
    with Acker(url, namespace=namespace, create=False) as acker:
        acker.ack(list(anchors), list(anchors.values()))


def test_the_root_waits_for_the_ack_of_another_program(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    header = desk.collector.hand_over(given).to_bytes()
    desk.ack(given)
    assert store.is_pending(root)
    assert desk.wire.delivered == []
    other = multiprocessing.get_context("spawn").Process(
        target=ack_elsewhere, args=(store.backend.target, store.acker.namespace, header)
    )
    other.start()
    other.join(60)
    assert other.exitcode == 0
    assert store.completed() == [root]


def test_the_other_program_may_be_first(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    anchors = Anchors.from_json(desk.collector.hand_over(given).to_json())
    store.acker.ack(list(anchors), list(anchors.values()))
    assert store.is_pending(root)
    desk.ack(given)
    assert store.completed() == [root]


def test_the_other_program_may_go_on_with_the_tree(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    [(root_there, edge)] = desk.collector.hand_over(given).items()
    desk.ack(given)
    child = new_edge()
    store.acker.ack(root_there, edge ^ child)
    assert store.ack_val(root) == child
    store.acker.ack(root_there, child)
    assert store.completed() == [root]


def test_the_other_program_may_fail_it(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    anchors = desk.collector.hand_over(given)
    desk.ack(given)
    store.acker.fail(list(anchors), component="mailer", error="no such address")
    [failure] = store.failures()
    assert (failure.roots.tolist(), failure.component, failure.error) == ([root], "mailer", "no such address")


def test_a_tuple_of_several_trees_is_handed_over_with_all_of_them(store: Store) -> None:
    roots, desk = [store.start_root(7), store.start_root(8)], Desk(store.acker)
    given = [tuple_of((roots[0], 7)), tuple_of((roots[1], 8))]
    anchors = desk.collector.hand_over(given)
    assert set(anchors) == set(roots)
    desk.ack(*given)
    store.acker.ack(list(anchors), list(anchors.values()))
    assert store.completed() == roots


def test_each_program_it_is_handed_over_to_is_waited_for(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    first, second = desk.collector.hand_over(given), desk.collector.hand_over(given)
    desk.ack(given)
    for anchors in (first, second):
        assert store.is_pending(root)
        store.acker.ack(list(anchors), list(anchors.values()))
    assert store.completed() == [root]


def test_a_delivery_that_comes_twice_is_acked_once_under_its_header_as_token(store: Store) -> None:
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    mail, other = (desk.collector.hand_over(given) for _ in range(2))
    desk.ack(given)
    for _ in range(2):  # the broker delivers it again
        store.acker.ack(list(mail), list(mail.values()), token=mail.to_bytes())
    store.acker.ack(list(other), list(other.values()), token=other.to_bytes())
    assert store.completed() == [root]


@pytest.mark.parametrize("parents", [(), (tuple_of(),)], ids=["of nothing", "of an unanchored tuple"])
def test_what_is_in_no_tree_is_handed_over_without_anchors(parents: tuple[()]) -> None:
    assert Desk(None).collector.hand_over(parents).to_bytes() == b""

"""The examples by which Storm and JStorm explain the acker, number by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import reduce
from operator import xor
from typing import TypeAlias

import pytest

from redis_acker import Acker, Acks, Token, new_edge
from redis_acker.store.ids import INDEX_BITS, Ids, as_u64
from tests.components.desk import Desk, tuple_of
from tests.components.store import SPOUT, Store
from tests.model.reference import Model

OpenTree: TypeAlias = "Callable[[int], Tree]"


class Twin(Acker):
    """An acker that holds every ack against the model."""

    model: Model

    def ack(self, roots: Ids, ack_vals: Ids, *, token: Token | str | bytes | None = None) -> Acks:
        known = token if isinstance(token, Token) else Token.of(token or f"{new_edge()}")
        reply = super().ack(roots, ack_vals, token=known)
        assert reply == self.model.ack(as_u64(roots, "roots").tolist(), as_u64(ack_vals, "vals").tolist(), token=known)
        return reply


class Tree(AbstractContextManager["Tree"]):
    """One root, in the store and in the model."""

    def __init__(self, store: Store, ack_val: int) -> None:
        self.store = store
        self.acker = Twin(store.backend.target, namespace=store.acker.namespace, clock=store.clock)
        self.acker.model = self.model = Model(self.acker.settings, store.clock)
        self.root = store.start_root(ack_val)
        self.model.init([self.root], [ack_val])

    def __exit__(self, *exc_info: object) -> None:
        self.acker.close()

    def desk(self, name: str, *edges: int) -> Desk:
        return Desk(self.acker, name, edges=edges)

    def ack_val(self) -> int | None:
        """The stored ack val, the same in both; None when the root is complete."""
        stored = self.store.ack_val(self.root)
        number = self.root >> INDEX_BITS
        block = self.model.shard_of(number).blocks.get(number)
        assert stored == (block.ack_vals[0] if block else None)
        return stored


@pytest.fixture
def tree_of(any_store: Store) -> Iterator[OpenTree]:
    with ExitStack() as opened:
        yield lambda ack_val: opened.enter_context(Tree(any_store, ack_val))


def test_a_chain_adds_up_as_storm_explains_it(tree_of: OpenTree) -> None:
    """Spout -> A -> B: (s) ^ (s ^ a) ^ (a) = 0."""
    s, a = 0x8000_0000_0000_0001, 0xFFFF_FFFF_FFFF_FFFF
    tree = tree_of(s)
    assert tree.ack_val() == s
    first = tree.desk("A", a)
    given = tuple_of((tree.root, s))
    [sent] = first.emit(given)
    first.ack(given)
    assert tree.ack_val() == s ^ (s ^ a) == a
    tree.desk("B").ack(sent)
    assert tree.ack_val() is None
    assert tree.store.completed() == [tree.root]


def test_two_branches_that_meet_add_up_as_jstorm_explains_it(tree_of: OpenTree) -> None:
    """Spout -> bolt1 and bolt2 -> bolt3: 1^2, 1^3, 2^4, 3, 4 = 0."""
    tree = tree_of(1 ^ 2)
    bolt1, bolt2, bolt3 = tree.desk("bolt1", 3), tree.desk("bolt2", 4), tree.desk("bolt3")
    given1, given2 = tuple_of((tree.root, 1)), tuple_of((tree.root, 2))
    sums = [1 ^ 2]
    assert tree.ack_val() == sums[0]
    [sent3] = bolt1.emit(given1)
    [sent4] = bolt2.emit(given2)
    for desk, tup, ack_val in [(bolt1, given1, 1 ^ 3), (bolt2, given2, 2 ^ 4), (bolt3, sent3, 3)]:
        desk.ack(tup)
        sums.append(ack_val)
        assert tree.ack_val() == reduce(xor, sums) != 0
    bolt3.ack(sent4)
    assert reduce(xor, [*sums, 4]) == 0
    assert tree.ack_val() is None
    assert tree.store.completed() == [tree.root]


def test_a_bolt_behind_the_meeting_point_is_waited_for_too(tree_of: OpenTree) -> None:
    """Spout -> bolt1 and bolt2 -> bolt3 -> bolt4: 1^2, 1^3, 2^4, 3^5, 4^6, 5, 6 = 0."""
    tree = tree_of(1 ^ 2)
    bolt1, bolt2 = tree.desk("bolt1", 3), tree.desk("bolt2", 4)
    bolt3, bolt4 = tree.desk("bolt3", 5, 6), tree.desk("bolt4")
    given1, given2 = tuple_of((tree.root, 1)), tuple_of((tree.root, 2))
    [sent3], [sent4] = bolt1.emit(given1), bolt2.emit(given2)
    [sent5], [sent6] = bolt3.emit(sent3), bolt3.emit(sent4)
    acks = [(bolt1, given1), (bolt2, given2), (bolt3, sent3), (bolt3, sent4), (bolt4, sent5), (bolt4, sent6)]
    sums = [1 ^ 2, 1 ^ 3, 2 ^ 4, 3 ^ 5, 4 ^ 6, 5, 6]
    for number, (desk, tup) in enumerate(acks, start=1):
        assert tree.ack_val() == reduce(xor, sums[:number]) != 0
        desk.ack(tup)
    assert reduce(xor, sums) == 0
    assert tree.ack_val() is None
    assert tree.store.completed() == [tree.root]


def test_a_join_of_both_branches_takes_the_xor_of_one_edge_from_each(tree_of: OpenTree) -> None:
    """bolt3 emits one tuple anchored to both inputs, with edges 5 and 6: 1^2, 1^3, 2^4, 3^5, 4^6, 5^6 = 0."""
    tree = tree_of(1 ^ 2)
    bolt1, bolt2, bolt3 = tree.desk("bolt1", 3), tree.desk("bolt2", 4), tree.desk("bolt3", 5, 6)
    given1, given2 = tuple_of((tree.root, 1)), tuple_of((tree.root, 2))
    [sent3], [sent4] = bolt1.emit(given1), bolt2.emit(given2)
    [joined] = bolt3.emit(sent3, sent4)
    assert joined.anchors == {tree.root: 5 ^ 6}
    sums = [1 ^ 2, 1 ^ 3, 2 ^ 4, 3 ^ 5, 4 ^ 6, 5 ^ 6]
    acks = [(bolt1, given1), (bolt2, given2), (bolt3, sent3), (bolt3, sent4), (tree.desk("bolt4"), joined)]
    for number, (desk, tup) in enumerate(acks, start=1):
        assert tree.ack_val() == reduce(xor, sums[:number]) != 0
        desk.ack(tup)
    assert tree.ack_val() is None


def test_one_edge_for_two_deliveries_would_hide_both(tree_of: OpenTree) -> None:
    """1^2, 1^3, 2^4, 3^5, 4^5, 5, 5 is 0 as well, but it is 0 already before the last two: so every delivery gets an
    edge of its own."""
    tree = tree_of(1 ^ 2)
    bolt1, bolt2, bolt3 = tree.desk("bolt1", 3), tree.desk("bolt2", 4), tree.desk("bolt3", 5, 5)
    given1, given2 = tuple_of((tree.root, 1)), tuple_of((tree.root, 2))
    [sent3], [sent4] = bolt1.emit(given1), bolt2.emit(given2)
    sent5 = bolt3.emit(sent3) + bolt3.emit(sent4)
    bolt1.ack(given1)
    bolt2.ack(given2)
    bolt3.ack(sent3)
    assert tree.ack_val() == 4 ^ 5
    bolt3.ack(sent4)
    assert tree.ack_val() is None
    tree.desk("bolt4").ack(*sent5)
    assert tree.store.completed(SPOUT) == [tree.root]


def test_acks_of_the_example_may_come_in_any_order_and_before_the_init(any_store: Store) -> None:
    root = int(any_store.acker.allocate(SPOUT, 1)[0])
    for ack_val in (4, 3, 2 ^ 4, 1 ^ 3):
        any_store.acker.ack(root, ack_val)
    assert any_store.acker.inspect(root).ack_val == 1 ^ 2
    assert any_store.acker.init(root, 1 ^ 2).completed == 1
    assert any_store.completed() == [root]
